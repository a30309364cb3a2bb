"""A process that has beans of every type."""

from __future__ import annotations

from inbound.ledger.base import LedgerStatus
from inbound.observe.status.status import IngressStatus, ProcessStatus, ReloadStatus, ShippingStatus
from inbound.runtime.instruments import HistogramStatus
from tests.observe.status.made_status import NOW, channel, partition, process

DISPATCHER = {
    "subscriber": "http://shop/events", "subscriber_problem": None, "in_flight": 1, "open": 3, "waiting_dead_letters": 0,
    "standing": None, "partitions": {"orders/1": "503 Service Unavailable"}, "delivered_total": 40,
    "dead_lettered_total": 1, "filtered_total": 0, "skipped_total": 0, "undecodable_total": 0, "replied_total": 2,
    "retries_total": 5, "answers": {"200": 40, "503": 5},
}  # fmt: skip


def everything() -> ProcessStatus:
    """Return a process with an ingress, a ledger that is shipped, and a dispatcher."""
    ingress = IngressStatus(
        url="http://127.0.0.1:8080", client="confluent-kafka", away=None, topics=3, connections=1,
        connections_refused_total=0, answers={"202": 7}, accepted_events_total=7, written_events_total=7,
        failed_events_total=0, received_bytes_total=700, in_flight_bytes=0, in_flight_events=0, draining=False,
    )  # fmt: skip
    shipping = ShippingStatus(
        target="s3://ledgers/svc", files_waiting=1, bytes_waiting=10, files_total=4, failures_total=0, problem=None
    )
    reload = ReloadStatus(digest="0123456789ab", applied_total=1, last_outcome="applied", last_at=NOW, last_steps=["a"])
    standing = partition(0, cause="slow", cause_since=NOW, stalled={"cause": "slow", "since": NOW})
    ledger = LedgerStatus(entries_total=3, bytes_total=300, sync_seconds=HistogramStatus((1.0,), (3, 0), 0.3))
    dispatching = channel(processor=DISPATCHER, ledger=ledger, partitions=[standing])
    return process(channels=[dispatching], ingress=ingress, ledger_shipping=shipping, reload=reload)

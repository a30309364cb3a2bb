"""A snapshot of a process in which everything that can have a metric is there."""

from __future__ import annotations

from typing import Any

from inbound.coordinators.subscriber_status import SubscriberStatus
from inbound.kafka.base import FAILURES as REQUEST_FAILURES
from inbound.kafka.base import STATISTICS, BrokerFigures
from inbound.ledger.base import LedgerStatus
from inbound.mirror.plan import FAILURES, MirrorStatus
from inbound.observe.status.status import (
    ChannelStatus,
    GroupOffsets,
    IngressStatus,
    OffsetsStatus,
    PartitionOffsets,
    ProcessStatus,
    RefusedManifestStatus,
    ReloadStatus,
    ResetsStatus,
    ShippingStatus,
    TracingStatus,
    stalled,
)
from inbound.partition.meters import CHANGES, HOLDS, PASSED_OVER, REVERTS, TRIGGERS, MetersStatus
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.runtime.instruments import LONG_SECONDS, SECONDS, Histogram, HistogramStatus, Kinds
from tests.observe.status.made_status import NOW, channel, partition, process, session


def seen(*values: float, bounds: tuple[float, ...] = SECONDS) -> HistogramStatus:
    """Return what a histogram says that has seen these values."""
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    return histogram.status()


def meters(**changes: Any) -> MetersStatus:
    """Return what a channel counts that has seen everything."""
    made: dict[str, Any] = {
        "batch_seconds": seen(0.003, 0.003, 0.2, 1000.0),
        "commit_seconds": seen(0.004),
        "record_age_seconds": seen(2.0, 7200.0, bounds=LONG_SECONDS),
        "rebalance_seconds": seen(1.5),
        "rebalances": Kinds(*TRIGGERS).counts() | {"start": 1, "leave": 2},
        "ownership": Kinds(*CHANGES).counts() | {"claimed": 5, "released": 2, "lost": 1},
        "reverts": Kinds(*REVERTS).counts() | {"error": 3},
        "holds": Kinds(*HOLDS).counts() | {"record": 1},
        "exceptions": {"ValueError": 3, "OSError": 1},
        "passed_over": Kinds(*PASSED_OVER).counts() | {"skip": 4},
        "retention_lost": 17,
    }
    return MetersStatus(**{**made, **changes})


def dispatching() -> dict[str, Any]:
    """Return what a dispatcher says of itself that has lived a little."""
    counters = DispatchCounters(
        delivered=90,
        dead_lettered=2,
        filtered=7,
        skipped=1,
        undecodable=3,
        replied=4,
        retries=5,
        dead_letter_failures=6,
        headers_left_out=8,
    )
    for status in (202, 202, 503, 0):
        counters.answers.add(str(status))
        counters.request_seconds.observe(0.02)
        counters.event_seconds.observe(0.5)
    return {
        "subscriber": "http://subscriber",
        "subscriber_problem": "answered 503",
        "in_flight": 7,
        "open": 8,
        "waiting_dead_letters": 1,
        "standing": "orders/0: offset 4",
        "partitions": {"orders/0": "offset 4"},
        **counters.as_dict(),
    }


def figures(broker: int) -> BrokerFigures:
    """Return what a client tells of a broker that tells everything."""
    return BrokerFigures(
        broker=broker,
        requests_per_second=34.25,
        sent_bytes_per_second=2000.0,
        received_bytes_per_second=1_500_000.0,
        request_seconds={name: 0.01 * number for number, name in enumerate(STATISTICS, 1)},
        throttle_seconds=dict.fromkeys(STATISTICS, 0.0),
        in_flight=2,
        failures=dict.fromkeys(REQUEST_FAILURES, 0) | {"disconnect": 3},
    )


def rich_channel(**changes: Any) -> ChannelStatus:
    """Return a channel of which everything is known."""
    made: dict[str, Any] = {
        "meters": meters(),
        "processor": dispatching(),
        "ledger": LedgerStatus(entries_total=20, bytes_total=4000, failures_total=1, sync_seconds=seen(0.006, 0.02)),
        "mirror": MirrorStatus(
            group="orders-kafka",
            state="failing",
            problem="no answer",
            waiting=1,
            offsets_total=30,
            failures=dict.fromkeys(FAILURES, 0) | {"unreachable": 2},
            last_success_age=4.0,
        ),
        "buffer_limit_bytes": 1 << 26,
        "brokers": [figures(1), figures(2)],
        "subscriber": SubscriberStatus(uid="u", observedGeneration=1, ready="True", message=""),
        "partitions": [partition(0, attempts=2, stalled=stalled("poison-event", NOW)), partition(1)],
    }
    return channel(**{**made, **changes})


def rich_process(**changes: Any) -> ProcessStatus:
    """Return a process in which everything runs."""
    made: dict[str, Any] = {
        "session": session(suspensions_total=2),
        "channels": [rich_channel()],
        "reload": ReloadStatus(digest="0123456789ab", applied_total=3, refused_total=1, last_outcome="applied", last_at=NOW),
        "ledger_shipping": ShippingStatus(
            target="s3://bucket", files_waiting=3, bytes_waiting=700, files_total=9, failures_total=2, problem=None
        ),
        "ingress": IngressStatus(
            url="http://127.0.0.1:8080", client="kafka-python", away=None, topics=2, connections=3,
            connections_refused_total=1, answers={"202": 10, "503": 1}, accepted_events_total=10, written_events_total=10,
            failed_events_total=1, received_bytes_total=5000, in_flight_bytes=10, in_flight_events=1, draining=False,
            in_flight_requests=1, request_seconds=seen(0.004, 0.02), headers_left_out_total=2,
            produced={"orders/0": 4, "orders/1": 6},
            brokers=[figures(1)],
        ),
        "tracing": TracingStatus(
            backend="otlp", endpoint="http://collector/v1/traces", sample_rate=0.1, sent_total=900, dropped_total=3, waiting=7
        ),
        "resets": ResetsStatus(unfinished=1, ended_total={"succeeded": 2, "refused": 0}, last_seconds={"succeeded": 1.5}),
        "refused_manifests": [
            RefusedManifestStatus(
                kind="KafkaChannel", namespace="shop", name="orders", subscriber=uid, file="a.yaml", where="a.yaml:8",
                problem="a.yaml:8: no", kept=["shop.orders.u"],
            )
            for uid in ("u", "v")
        ],
        "brokers": [figures(3)],
        "offsets": OffsetsStatus(
            looks_total=4, looked_at=NOW, look_seconds=0.2,
            groups=[GroupOffsets(group="bills", members=0, unowned=2, uncommitted=1, unreadable=0, closed_gates=0)],
            partitions=[
                PartitionOffsets(channel="bills", group="bills", topic="bills", partition=p, committed=7, lag=p) for p in (0, 1)
            ],
        ),
    }  # fmt: skip
    return process(**{**made, **changes})

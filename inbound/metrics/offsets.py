"""Metrics of groups' offsets as ZooKeeper and Kafka have them: of `inbound offsets show --metrics`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inbound.metrics.definition import Section, counter, gauge, of_process
from inbound.offsets.status import GroupOffsets, OffsetsStatus
from inbound.status import ProcessStatus


def _groups(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterator[tuple[tuple[str, ...], GroupOffsets]]:
    if process.offsets is not None:
        for group in process.offsets.groups:
            yield (group.group,), group


GROUPS = Section(
    "Groups, as `inbound offsets show --metrics` sees them",
    "For each group that it looks at; none while ZooKeeper does not answer.",
    ("group",),
    _groups,
    (
        gauge("inbound_offsets_members", "Members that are alive", lambda g: g.members),
        gauge("inbound_offsets_unowned_partitions", "Partitions that nobody owns", lambda g: g.unowned),
        gauge("inbound_offsets_uncommitted_partitions", "Partitions without an offset", lambda g: g.uncommitted),
        gauge(
            "inbound_offsets_unreadable_partitions",
            "Partitions whose offset's node holds something else",
            lambda g: g.unreadable,
        ),
        gauge("inbound_offsets_closed_gates", "Topics whose gate a reset has closed", lambda g: g.closed_gates),
    ),
)

EXPORTERS: Section[OffsetsStatus] = Section(
    "`inbound offsets show --metrics` itself",
    "For its process.",
    (),
    of_process(lambda process: process.offsets),
    (
        gauge(
            "inbound_offsets_zookeeper_available",
            "0 while ZooKeeper does not answer: then there is no series of groups and partitions",
            lambda o: o.zookeeper_problem is None,
        ),
        gauge(
            "inbound_offsets_kafka_available",
            "0 while a leader does not answer: then the lag of its partitions has no series",
            lambda o: o.kafka_problem is None,
        ),
        gauge(
            "inbound_offsets_last_look_timestamp_seconds",
            "Unix time of the last look that ZooKeeper answered; all that is shown is of then",
            lambda o: o.looked_at,
        ),
        gauge("inbound_offsets_look_duration_seconds", "How long the last look took", lambda o: o.look_seconds),
        counter("inbound_offsets_looks_total", "Looks, answered or not", lambda o: o.looks_total),
    ),
)

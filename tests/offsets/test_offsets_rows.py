"""A group's offsets: rows from ZooKeeper's nodes and the brokers' answers."""

from __future__ import annotations

import json

import pytest

from inbound.kafka.base import LogRange, TopicMeta
from inbound.offsets.model import (
    GroupSnapshot,
    Logs,
    PartitionNodes,
    PartitionSelection,
    Row,
    TopicNodes,
    Total,
    as_json,
    rows_of,
)
from inbound.topic_partition import TopicPartition


def nodes(*partitions: PartitionNodes, gate: str | None = None, known_from_start: int = 1 << 31) -> GroupSnapshot:
    """Return a group that has these partitions of `orders`."""
    topic = TopicNodes(gate=gate, known_from_start=known_from_start, partitions=dict(enumerate(partitions)))
    return GroupSnapshot(group="svc", members=("a",), topics={"orders": topic})


def logs(*ranges: tuple[int, int], topic: str = "orders", problem: str | None = None) -> Logs:
    """Return what brokers say who have these logs."""
    return Logs(
        topics={topic: TopicMeta(len(ranges), "id")},
        ranges={TopicPartition(topic, p): LogRange(*limits) for p, limits in enumerate(ranges)},
        problem=problem,
    )


def only(rows: list[Row]) -> Row:
    (row,) = rows
    return row


@pytest.mark.parametrize(
    ("committed", "limits", "begins", "lag", "note"),
    [
        (7, (0, 10), "earliest", 3, ()),
        (10, (0, 10), None, 0, ()),
        (0, (4, 10), "earliest", 10, ("below the log's start: 4 offsets are lost to retention",)),
        (12, (0, 10), "earliest", 0, ("beyond the log's end by 2: see on_truncation",)),
        (None, (4, 10), "earliest", 6, ("nothing committed; begins at the earliest offset (4)",)),
        (None, (4, 10), "latest", 0, ("nothing committed; begins at the latest offset (10)",)),
        (None, (4, 10), None, None, ("nothing committed",)),
    ],
)
def test_the_lag_is_from_the_offset_or_from_where_the_group_would_begin(
    committed: int | None, limits: tuple[int, int], begins: str | None, lag: int | None, note: tuple[str, ...]
) -> None:
    """Never below 0; a note beside it says what is unusual."""
    begin = {} if begins is None else {"orders": begins}
    row = only(rows_of(nodes(PartitionNodes(committed=committed)), logs(limits), begin))  # type: ignore[arg-type]
    assert (row.lag, row.start, row.end, row.notes) == (lag, *limits, note)


def test_a_partition_that_was_added_later_begins_at_its_smallest_offset() -> None:
    """For any auto_offset_reset of the others."""
    found = rows_of(nodes(*[PartitionNodes()] * 2, known_from_start=1), logs((0, 5), (0, 5)), {"orders": "latest"})
    assert [(row.lag, row.notes[0]) for row in found] == [
        (0, "nothing committed; begins at the latest offset (5)"),
        (5, "nothing committed; added later: begins at the earliest offset (0)"),
    ]


def test_partitions_of_either_side_are_there() -> None:
    """Those that only Kafka has, those that only ZooKeeper has, and those of a topic that is only configured."""
    both = Logs(
        topics={"orders": TopicMeta(1), "bills": TopicMeta(1)},
        ranges={TopicPartition("orders", 0): LogRange(0, 5), TopicPartition("bills", 0): LogRange(0, 2)},
    )
    found = rows_of(nodes(PartitionNodes(committed=1), PartitionNodes(committed=2)), both, {"bills": "earliest"})
    assert [(row.topic, row.partition, row.lag) for row in found] == [
        ("bills", 0, 2),
        ("orders", 0, 4),
        ("orders", 1, None),
    ]
    assert found[2].notes == ("not in Kafka: the topic has 1 partitions",)


def test_kafka_away_leaves_what_zookeeper_knows() -> None:
    """There is no note about a missing topic, and no made-up lag."""
    row = only(
        rows_of(nodes(PartitionNodes(committed=3, owner="a", epoch=4)), Logs(problem="away"), {"orders": "earliest"})
    )
    assert (row.committed, row.owner, row.epoch, row.lag, row.start, row.notes) == (3, "a", 4, None, None, ())


def test_a_leader_that_does_not_answer_leaves_its_partition_without_a_lag() -> None:
    """The others have theirs; the total is not known."""
    some = Logs(
        topics={"orders": TopicMeta(2)}, ranges={TopicPartition("orders", 0): LogRange(0, 5)}, problem="no leader"
    )
    found = rows_of(nodes(*[PartitionNodes(committed=1)] * 2), some, {})
    assert ([row.lag for row in found], Total.of(found).lag) == ([4, None], None)


def test_an_unreadable_offset_and_a_closed_gate_are_said() -> None:
    """A row without a number, which makes the command fail."""
    broken = nodes(PartitionNodes(problem="holds b'x', not an offset"), gate="/inbound/commands/reset-offset/r")
    row = only(rows_of(broken, logs((0, 5)), {"orders": "earliest"}))
    assert (row.lag, row.broken, row.notes) == (
        None,
        True,
        ("gate closed by /inbound/commands/reset-offset/r", "offset unreadable: holds b'x', not an offset"),
    )


def test_a_selection_leaves_the_others_out() -> None:
    """Topics, and partitions of a topic."""
    some = PartitionSelection(topics={"orders": frozenset({1})})
    found = rows_of(nodes(*[PartitionNodes(committed=1)] * 3), logs((0, 1), (0, 1), (0, 1)), {"bills": "latest"}, some)
    assert [(row.topic, row.partition) for row in found] == [("orders", 1)]


def test_json_has_everything_and_totals() -> None:
    """In a shape that carries its version."""
    group = nodes(PartitionNodes(committed=3, committed_at=1.5, owner="a", epoch=2), PartitionNodes())
    rows = rows_of(group, logs((0, 5), (0, 5)), {"orders": "earliest"})
    body = json.loads(json.dumps(as_json([(group, rows)], at=9.0, problems=["p"])))
    total = {"partitions": 2, "uncommitted": 1, "unowned": 1, "lag": 7}
    first = {
        "partition": 0, "committed": 3, "committed_at": 1.5, "log_start": 0, "log_end": 5, "lag": 2, "owner": "a", "epoch": 2,
        "notes": [],
    }  # fmt: skip
    (topic,) = body["groups"][0].pop("topics")
    assert body == {
        "format": 1, "at": 9.0, "problems": ["p"], "groups": [{"group": "svc", "members": ["a"], "total": total}],
    }  # fmt: skip
    assert (topic["topic"], topic["gate"], topic["total"], topic["partitions"][0]) == ("orders", "open", total, first)

"""What a replay is asked for, and what that is in the logs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.cli.spark.options import RANGE, asked_of
from inbound.errors import ConfigError, LedgerError
from inbound.kafka.base import LogRange
from inbound.spark.replay.plan import ReplayPlan, RequestedOffsets, Unit, chosen, cut, layers, resolved
from inbound.topic_partition import TopicPartition

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOGS = {ZERO: LogRange(100, 200), ONE: LogRange(0, 50)}


def asked(*flags: str, topics: tuple[str, ...] = ("orders",)) -> RequestedOffsets:
    """Return what these flags ask for."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for add in RANGE:
        add(parser)
    return asked_of(parser.parse_args(flags), topics)


def ranges(
    *flags: str, times: Mapping[TopicPartition, int | None] | None = None
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Return what these flags come to in LOGS; `times` is Kafka's answer to any time."""
    what = asked(*flags)
    return resolved(what, chosen(what, {"orders": 2}), LOGS, lambda at: times or {})


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("", {ZERO: [(100, 200)], ONE: [(0, 50)]}),
        ("--partitions 1", {ONE: [(0, 50)]}),
        ("--from-offset 150", {ZERO: [(150, 200)]}),
        ("--to-offset 20", {ONE: [(0, 20)]}),
        ("--partitions 0 --from-offset 120 --to-offset 130", {ZERO: [(120, 130)]}),
        ("--range 0:100:101 --range 0:150:160 --range 1:7:9", {ZERO: [(100, 101), (150, 160)], ONE: [(7, 9)]}),
    ],
)
def test_offsets_are_found_in_the_logs(flags: str, found: object) -> None:
    """By offset, by name, or all there is; a partition in which nothing is asked for is left out."""
    assert ranges(*flags.split()) == found


def test_times_are_what_kafka_says() -> None:
    """A time that no record reaches is the end of that partition."""
    found = ranges("--from-time", "2025-01-31T12:00:00Z", times={ZERO: 130, ONE: None})

    assert found == {ZERO: [(130, 200)]}


def test_milliseconds_are_asked_for() -> None:
    """Of the time in its own zone."""
    heard: list[int] = []

    def ask(at: int) -> dict[TopicPartition, int | None]:
        heard.append(at)
        return {ZERO: 110, ONE: 10}

    what = asked("--from-time", "2025-01-31T12:00:00+01:00", "--to-time", "2025-01-31T12:00:00.25Z")
    with pytest.raises(ConfigError, match="nothing to replay"):
        resolved(what, [ZERO, ONE], LOGS, ask)

    assert heard == [1738321200000, 1738324800250]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("--range 0:99:150", "orders/0: offsets 99 to 99 are not in the log any more, which holds 100 to 199"),
        ("--partitions 0 --from-offset 5", "orders/0: offsets 5 to 99 are not in the log any more"),
        ("--range 1:10:51", "orders/1: the log ends before 50, so offset 50 cannot be replayed; end at 50"),
        ("--partitions 1 --to-offset 60", "orders/1: the log ends before 50"),
        ("--range 1:10:10", "--range orders/1:10:10: it is empty"),
        ("--range 1:10:20 --range 1:19:22", "--range orders/1:19:22: it overlaps another"),
        ("--range 2:10:20", "topic orders has no partition 2: it has 0 to 1"),
        ("--partitions 0-3", "topic orders has no partition 2"),
        ("--from-offset 10 --to-offset 10", "the range is empty"),
        ("--from-time 2025-01-31T12:00:00Z --to-time 2025-01-31T12:00:00+00:00", "the range is empty"),
        ("--from-time 2025-01-31T12:00:00Z", r"nothing to replay .*orders/0 100 to 200, orders/1 0 to 50"),
        ("--range 0:1", "--range 0:1: need PARTITION:FIRST:NEXT"),
        ("--range other/0:1:2", "the channel does not read other; it reads orders"),
        ("--range 0:1:2 --from-offset 3", "--range names partitions and offsets itself"),
        ("--topic other", "--topic other: the channel does not read it; it reads orders"),
    ],
)
def test_what_is_not_there_is_refused(flags: str, problem: str) -> None:
    """With the partition, its offsets, and what is there."""
    with pytest.raises(ConfigError, match=problem):
        ranges(*flags.split())


@pytest.mark.parametrize(
    "flags", ["--from-offset -1", "--from-time 2025-01-31", "--from-time noon", "--partitions 3-1"]
)
def test_flags_that_say_nothing_are_refused(flags: str) -> None:
    """By argparse: the command ends with 2."""
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        ranges(*flags.split())


def test_a_topic_that_is_gone_is_named() -> None:
    """Deleted, or misspelt."""
    with pytest.raises(ConfigError, match="topic orders: Kafka has no such topic"):
        chosen(asked(), {})


def test_a_range_of_two_topics_says_which() -> None:
    """A partition alone would be ambiguous."""
    with pytest.raises(ConfigError, match="choose one: TOPIC/0:1:2"):
        asked("--range", "0:1:2", topics=("a", "b"))


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(1, 400)), min_size=1),
    st.integers(1, 40),
)
def test_units_cover_every_offset_once(parts: dict[int, tuple[int, int]], tasks: int) -> None:
    """However many tasks: no offset twice, none left out, and no layer has a partition twice."""
    wanted = {TopicPartition("t", p): [(first, first + length)] for p, (first, length) in parts.items()}

    units = cut(wanted, tasks, ordered=False)

    for tp, ((first, end),) in wanted.items():
        own = [unit for unit in units if unit.tp == tp]
        assert [offset for unit in own for offset in range(unit.first, unit.next)] == list(range(first, end))
    dealt = layers(units)
    assert sorted(unit for layer in dealt for topic in layer.values() for unit in topic.values()) == sorted(units)


def test_a_partition_in_order_is_one_unit() -> None:
    """More tasks than partitions are refused, unless the class says that order does not matter."""
    two = {ZERO: [(100, 200)], ONE: [(0, 50)]}

    assert cut(two, None, ordered=True) == (Unit(0, "orders", 0, 100, 200), Unit(1, "orders", 1, 0, 50))
    with pytest.raises(ConfigError, match=r"--tasks 3: 2 partitions .* `ordered = False`"):
        cut(two, 3, ordered=True)
    assert len(cut(two, 3, ordered=False)) == 3


PLAN = ReplayPlan(
    "jan", "orders", "g", RequestedOffsets(("orders",)), "m:C", "abc", None, (Unit(0, "orders", 0, 1, 9),)
)


def test_a_plan_reads_back() -> None:
    """From its file."""
    given_ranges = replace(PLAN, asked=RequestedOffsets(("orders",), "", "", (1, 2), (("orders", 0, 1, 9),)))

    assert [ReplayPlan.from_json(plan.to_json(), "x") for plan in (PLAN, given_ranges)] == [PLAN, given_ranges]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no plan of a replay"),
        ("[]", "no plan of a replay"),
        ('{"v": 1}', "no plan of a replay"),
        ('{"v": 2, "x": 1}', "version 2, this inbound reads up to 1"),
    ],
)
def test_a_plan_that_cannot_be_read_is_refused(text: str, problem: str) -> None:
    """Damaged, or of a newer inbound."""
    with pytest.raises(LedgerError, match=problem):
        ReplayPlan.from_json(text, "plan.json")


def test_another_replay_under_the_same_name_is_refused() -> None:
    """Offsets always; the processor's options once something is marked."""
    PLAN.refuse_other(replace(PLAN, units=(), options="corrected"), marked=False)
    with pytest.raises(ConfigError, match=r"begun with other offsets; it had .* from earliest to latest"):
        PLAN.refuse_other(replace(PLAN, asked=RequestedOffsets(("orders",), 5)), marked=False)
    with pytest.raises(ConfigError, match="other processor and options of the processor"):
        PLAN.refuse_other(replace(PLAN, options="x", processor="m:D"), marked=True)

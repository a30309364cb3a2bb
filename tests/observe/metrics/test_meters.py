"""What a channel counts: each story ends with what its status says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound import Batch, BatchResponse
from inbound.coordinators.pauses import Pause, ask_rebalance
from inbound.ledger import Done, FilesLedger, Range
from inbound.ledger.base import LedgerStatus
from inbound.partition.meters import TRIGGERS, MetersStatus, Rebalances
from inbound.runtime.instruments import OTHER, HistogramStatus, Kinds
from inbound.testing.clock import ManualClock
from inbound.testing.world import GROUP, World
from tests.channel.one_partition import answers, publish, start, world
from tests.processors.dispatch.dispatch_stage import OK, Stage

__all__ = ["world"]  # the fixture


def meters(world: World, name: str = "a") -> MetersStatus:
    """Return what a consumer's channel has counted."""
    return world.consumers[name].channel.status().meters


def counted(counts: dict[str, int]) -> dict[str, int]:
    """Return those that are not 0."""
    return {kind: count for kind, count in counts.items() if count}


def above(found: HistogramStatus | None, bound: float) -> int:
    """Return how many values were above a bound."""
    assert found is not None
    return sum(found.counts[list(found.bounds).index(bound) + 1 :])


# -- batches -----------------------------------------------------------------------------------------------------------


def test_batches_commits_and_the_age_of_records_are_timed(world: World) -> None:
    """One value for each batch of any size, and one for each commit, also the first position's."""
    publish(world, 1000)

    def slow(batch: Batch) -> BatchResponse:
        world.clock.advance(3.0)
        return BatchResponse.advance()

    start(world, slow, reader={"max_batch_records": 500})
    world.run(10)

    found = meters(world)
    assert found.batch_seconds is not None
    assert found.commit_seconds is not None
    assert (found.batch_seconds.count, above(found.batch_seconds, 2.5), above(found.batch_seconds, 5.0)) == (2, 2, 0)
    assert found.batch_seconds.sum == pytest.approx(6.0)
    assert found.commit_seconds.count == 3
    assert found.record_age_seconds is not None
    assert found.record_age_seconds.count == 2


@pytest.mark.parametrize(
    ("responses", "on_error", "expected"),
    [
        (
            [BatchResponse.revert(), RuntimeError("away"), BatchResponse.revert(), ValueError("bad")],
            {},
            {"reverts": {"processor": 2, "error": 2}, "exceptions": {"RuntimeError": 1, "ValueError": 1}},
        ),
        (
            [ValueError("bad")] * 5,
            {"max_attempts": 2},
            {"reverts": {"error": 2}, "holds": {"record": 1}, "exceptions": {"ValueError": 2}},
        ),
        ([BatchResponse.advance(6, skip=True)], {}, {"passed_over": {"processor": 5}}),
        (
            [ValueError("bad")],
            {"max_attempts": 1, "then": "skip"},
            {"passed_over": {"skip": 1}, "exceptions": {"ValueError": 1}},
        ),
    ],
    ids=["reverts", "a record that fails for good", "skipped by an answer", "skipped by on_error"],
)
def test_what_a_processor_answers_is_counted_by_its_reason(
    world: World, responses: list[object], on_error: dict[str, object], expected: dict[str, dict[str, int]]
) -> None:
    """Reverts and holds once each, what is passed over in offsets."""
    publish(world, 6)
    start(world, answers(*responses), on_error=on_error, reader={"max_batch_records": 1})
    world.run(10)

    found = meters(world)
    kinds = {name: counted(getattr(found, name)) for name in ("reverts", "holds", "passed_over", "exceptions")}
    assert {name: counts for name, counts in kinds.items() if counts} == expected


def test_what_retention_took_is_counted_in_offsets(world: World) -> None:
    """From the position to the log's start."""
    publish(world, 9)
    start(world)
    world.leave("a")
    world.kafka.publish("orders", 0, [b"x"] * 20)
    world.kafka.retain("orders", 0, 15)

    start(world)

    assert meters(world).retention_lost == 6


@pytest.mark.parametrize(("choice", "holds", "reverts"), [("hold", 1, 0), ("earliest", 0, 1)])
def test_a_truncated_log_is_a_hold_or_a_revert(world: World, choice: str, holds: int, reverts: int) -> None:
    """As `on_truncation` says."""
    publish(world, 9)
    start(world)
    world.leave("a")
    world.kafka.truncate("orders", 0, 4)

    start(world, on_truncation=choice)
    world.run(5)

    found = meters(world)
    assert (found.holds["truncation"], found.reverts["truncation"]) == (holds, reverts)


def test_there_are_never_more_kinds_than_fit() -> None:
    """What comes after is counted together, and what was there goes on."""
    kinds = Kinds("known", most=3)
    for kind in ("a", "b", "c", "d", "a", "known"):
        kinds.add(kind)

    assert kinds.counts() == {"known": 1, "a": 2, "b": 1, OTHER: 2}


# -- rebalances --------------------------------------------------------------------------------------------------------


@pytest.fixture
def six() -> World:
    """A world with one topic of six partitions and one consumer that has them all."""
    world = World()
    world.kafka.create_topic("orders", 6)
    world.join("a")
    world.run(10)
    return world


def rebalanced(world: World, name: str = "a") -> list[str]:
    """Return what set off a consumer's rebalances, in no order."""
    return [trigger for trigger, count in meters(world, name).rebalances.items() for _ in range(count)]


def test_the_first_start_is_a_rebalance_from_joining_to_the_last_claim(six: World) -> None:
    """It lasts for the join delay, which is 3 s."""
    found = meters(six)

    assert rebalanced(six) == ["start"]
    assert counted(found.ownership) == {"claimed": 6}
    assert found.rebalance_seconds is not None
    assert (found.rebalance_seconds.count, above(found.rebalance_seconds, 2.5)) == (1, 1)
    assert above(found.rebalance_seconds, 5.0) == 0


@pytest.mark.parametrize("dies", [False, True])
def test_a_join_and_a_leave_are_rebalances_of_those_who_give_and_take(six: World, dies: bool) -> None:
    """Once each, however many partitions move; a death is a leave, once the session has expired."""
    six.join("b")
    six.run(10)
    assert (rebalanced(six), rebalanced(six, "b")) == (["start", "join"], ["start"])
    assert counted(meters(six).ownership) == {"claimed": 6, "released": 3}

    if dies:
        six.kill("b")
        six.run(20)
    else:
        six.leave("b")
    six.run(10)

    assert rebalanced(six) == ["start", "join", "leave"]
    found = meters(six)
    assert counted(found.ownership) == {"claimed": 9, "released": 3}
    assert found.rebalance_seconds is not None
    assert found.rebalance_seconds.count == 3


def test_new_partitions_are_a_rebalance_by_topics(six: World) -> None:
    """The brokers tell of them."""
    six.kafka.create_topic("orders", 8)
    six.run(20)

    assert (len(six.owned()["a"]), rebalanced(six)) == (8, ["start", "topics"])


@pytest.mark.parametrize(("expires", "counts"), [(True, (1, 2)), (False, (1, 1))], ids=["expired", "connection lost"])
def test_lost_sessions_and_connections_are_counted_and_no_rebalance(
    six: World, expires: bool, counts: tuple[int, int]
) -> None:
    """A session that comes back under the same epochs moves nothing."""
    if expires:
        six.ensemble.expire_session("a")
    else:
        six.ensemble.disconnect("a")
    six.run(20)

    controller = six.consumers["a"].controller
    assert (controller.suspensions, controller.sessions) == counts
    assert (counted(meters(six).ownership), rebalanced(six)) == ({"claimed": 6}, ["start"])


def test_operators_rebalances_are_counted_apart() -> None:
    """If it moves anything: else the next thing that does is not taken for it."""
    found = Rebalances()
    look = {"session": 1, "members": ["a"], "topics": {"t": 1}, "news": False}
    found.looked(0.0, **look, asked=False, moving=True, content=True)  # type: ignore[arg-type]
    found.moved(0.5)
    found.looked(1.0, **look, asked=True, moving=False, content=True)  # type: ignore[arg-type]
    found.looked(2.0, **look, asked=True, moving=True, content=True)  # type: ignore[arg-type]
    found.moved(2.25)
    found.looked(3.0, **look, asked=False, moving=False, content=True)  # type: ignore[arg-type]
    found.looked(70.0, **look, asked=False, moving=True, content=True)  # type: ignore[arg-type]

    assert counted(found.started.counts()) == {"start": 1, "operator": 1, "interval": 1}
    assert (found.seconds.status().count, found.seconds.status().sum) == (2, 0.75)


def test_who_never_gets_its_share_ends_its_rebalance_all_the_same() -> None:
    """With the last partition that moved; and what had set it off is forgotten after a minute."""
    found = Rebalances()
    look = {"session": 1, "topics": {"t": 1}, "asked": False, "content": False}
    found.looked(0.0, **look, members=["a"], news=False, moving=True)  # type: ignore[arg-type]
    found.moved(2.0)
    found.looked(3.0, **look, members=["a"], news=False, moving=False)  # type: ignore[arg-type]
    assert found.trigger is not None
    found.looked(8.0, **look, members=["a", "b"], news=False, moving=False)  # type: ignore[arg-type]
    assert (found.seconds.status().count, found.seconds.status().sum) == (1, 2.0)

    found.looked(100.0, **look, members=["a", "b"], news=True, moving=True)  # type: ignore[arg-type]

    assert counted(found.started.counts()) == {"start": 1, "owners": 1}
    assert set(found.started.counts()) == set(TRIGGERS)


def test_an_operators_wish_reaches_the_member(six: World) -> None:
    """A rebalance that is asked for while nothing is to be moved moves nothing, and is none."""
    consumer = six.consumers["a"]
    call = consumer.tasks.spawn(ask_rebalance(consumer.zk, GROUP, Pause("operator")), "wish")
    six.run_until(lambda: call.done, within=5)
    six.run(5)

    assert rebalanced(six) == ["start"]


# -- ledger and dispatcher ---------------------------------------------------------------------------------------------


def test_the_ledger_counts_what_it_writes(tmp_path: Path) -> None:
    """Entries, their bytes, and how long an fsync took."""
    ledger = FilesLedger(tmp_path, "g", "c", ManualClock())

    ledger.begun(Range("orders", 0, 1, 0, 10, 10))
    ledger.done([Done("orders", 0, 1, 0, 10, 10), Done("orders", 1, 1, 0, 10, 10)])

    found = ledger.status()
    written = next(tmp_path.glob("*/*.jsonl")).read_bytes()
    header = written.index(b"\n") + 1
    assert isinstance(found, LedgerStatus)
    assert found.sync_seconds is not None
    assert (found.entries_total, found.bytes_total, found.failures_total) == (3, len(written) - header, 0)
    assert found.sync_seconds.count == 1
    ledger.close()


def test_a_dispatcher_times_its_requests() -> None:
    """Those to the subscriber, by the status of the answer."""
    stage = Stage()
    stage.seconds = lambda request: 0.2
    stage.start()
    stage.publish("1", "2", "3")
    stage.run(5)

    said = stage.world.consumers["a"].channel.status().processor

    assert said["answers"] == {str(OK.status): 3}
    assert sum(said["request_seconds"]["counts"]) == 3
    assert said["request_seconds"]["sum"] == pytest.approx(0.6, abs=0.1)

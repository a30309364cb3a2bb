"""What members do while a reset has closed the gate of a topic, and when it opens again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.pauses import Pause
from inbound.coordinators.static import StaticCoordinator
from inbound.coordinators.zookeeper import Create, Delete
from inbound.testing.world import World
from inbound.topic_partition import TopicPartition
from tests.controller.reset_offset.reset_by_hand import (
    COMMAND,
    NAME,
    Told,
    calls,
    close,
    events,
    move,
    open_again,
    reset,
    stopped,
    world_of,
    write,
)
from tests.simulation.stage import in_next_batch, lose_answer, seen

P0 = TopicPartition("orders", 0)


# -- stopping ------------------------------------------------------------------------------------------------------


def test_a_closed_gate_has_all_partitions_of_its_topic_released_gracefully() -> None:
    """The processor has the callbacks of a rebalance, everything is committed, and nobody takes anything."""
    world = world_of("a", "b")
    close(world)
    world.run_until(lambda: stopped(world), within=0.5)
    world.kafka.publish("orders", 0, [b"y"])
    world.run(5)
    told = sorted(call for name in ("a", "b") for call in calls(world, name))
    assert (told, world.commits(), world.owned()) == (
        [("termination", p, 3) for p in range(4)], dict.fromkeys(range(4), 3), {"a": set(), "b": set()},
    )  # fmt: skip


def test_a_batch_in_the_callback_ends_and_is_committed_before_its_partition_is_released() -> None:
    """So what the reset reads as the old offset, when nobody owns anything, is the exact one."""
    world = world_of("a", partitions=1)
    during: list[bool] = []

    def meanwhile() -> None:
        close(world)
        world.run(2)
        during.append(stopped(world))

    in_next_batch(world, "a", meanwhile)
    world.kafka.publish("orders", 0, [b"y"] * 2)
    world.run_until(lambda: bool(during), within=5)
    world.run_until(lambda: stopped(world), within=0.5)
    assert (during, world.commits(), seen(world, "a")) == ([False], {0: 5}, [0, 1, 2, 3, 4])


def test_other_topics_go_on_while_one_is_stopped() -> None:
    """What is free of another topic is still taken, too: the closed one does not stand in its way."""
    world = World()
    world.kafka.create_topic("orders", 4)
    world.kafka.create_topic("bills", 4)
    world.join("a", topics=["orders", "bills"])
    world.join("b", topics=["orders", "bills"])
    world.run(6)
    close(world)
    world.run_until(lambda: stopped(world), within=0.5)
    world.leave("b")
    for partition in range(4):
        world.kafka.publish("bills", partition, [b"x"])
    world.run(3)
    owners = {data.decode() for data in world.nodes(world.paths.owners("bills")).values()}
    assert (owners, world.commits("bills"), stopped(world)) == ({"a"}, dict.fromkeys(range(4), 1), True)


@pytest.mark.parametrize("down", [True, False], ids=["Kafka away", "Kafka there"])
def test_a_paused_group_and_a_reader_without_brokers_stop_as_well(down: bool) -> None:
    """Releasing needs neither records nor the reader; the pause is still there when the reset is over."""
    world = world_of("a")
    write(world, [Create(world.paths.pause("operator"), Pause("operator").encode())])
    world.run(1)
    if down:
        world.kafka.down()
    close(world)
    world.run_until(lambda: stopped(world), within=0.5)
    world.kafka.up()
    move(world, dict.fromkeys(range(4), 1))
    open_again(world)
    world.run(3)
    paused = seen(world, "a")
    write(world, [Delete(world.paths.pause("operator"))])
    world.run(3)
    assert (len(paused), len(seen(world, "a")), world.commits()) == (12, 20, dict.fromkeys(range(4), 3))


@pytest.mark.parametrize(
    "coordinator",
    [lambda: StaticCoordinator({"orders": [0, 1, 2]}), lambda: FixedCountCoordinator(3)],
    ids=["static", "fixed count"],
)
def test_every_kind_of_member_gives_up_what_it_has_and_takes_it_again(coordinator: Callable[[], object]) -> None:
    """For any plan of a coordinator, behind a closed gate there is nothing to be had."""
    world = World()
    world.kafka.create_topic("orders", 4)
    world.join("a", coordinator=coordinator())  # type: ignore[arg-type]
    world.run(6)
    before = world.owned()
    close(world)
    world.run_until(lambda: stopped(world), within=0.5)
    world.run(5)
    during = world.owned()
    open_again(world)
    world.run(1)
    assert (len(before["a"]), during, world.owned()) == (3, {"a": set()}, before)


# -- what does not end -----------------------------------------------------------------------------------------------


class Hanging(BatchEventProcessor):
    """Asynchronous; a batch of partition 0 that holds record 3 ends on demand."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.lost: list[bool] = []
        self.wait = asyncio.sleep

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.seen += [(batch.partition, record.offset) for record in batch.records]
        if batch.partition == 0 and any(record.offset == 3 for record in batch.records) and not self.lost:
            try:
                await asyncio.sleep(3600)
            finally:
                self.lost.append(batch.lost.is_set())
        return BatchResponse.advance()


def test_a_call_that_does_not_end_in_time_is_abandoned_and_its_partition_released_without_commit() -> None:
    """After shutdown_timeout; the other partitions do not wait for it, and nothing of the time before lands after."""
    world = World()
    world.kafka.create_topic("orders", 2)
    processor = Hanging()
    world.join("a", processor, shutdown_timeout="5s")
    world.run(4)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"] * 3)
    world.run(1)
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(1)
    close(world)
    world.run(4)
    others = set(world.nodes(world.paths.owners("orders")))
    world.run_until(lambda: stopped(world), within=2)
    move(world, {0: 1, 1: 1})
    open_again(world)
    world.run(3)
    told = " ".join(events(world, "a", "abandoned"))
    assert (others, processor.lost, world.commits(), world.owned()) == (
        {world.paths.owner("orders", 0)}, [True], {0: 6, 1: 3}, {"a": {0, 1}},
    )  # fmt: skip
    assert f"after shutdown_timeout (5 s) while reset {NAME} waits for it" in told


def test_a_call_that_hangs_in_a_worker_is_not_claimed_again_before_it_has_ended() -> None:
    """Nothing of two claims of one partition runs at once (T8); when it has ended, the partition is taken at once."""
    world = world_of("a", partitions=1, shutdown_timeout="2s", workers=2)
    during: list[object] = []

    def meanwhile() -> None:
        close(world)
        world.run_until(lambda: stopped(world), within=3)
        move(world, {0: 1})
        open_again(world)
        world.run(4)
        during.append(world.owned())

    in_next_batch(world, "a", meanwhile)
    world.kafka.publish("orders", 0, [b"y"])
    world.run_until(lambda: bool(during), within=5)
    world.run(0.5)
    assert (during, world.owned(), world.commits(), seen(world, "a")) == (
        [{"a": set()}], {"a": {0}}, {0: 4}, [0, 1, 2, 3, 1, 2, 3],
    )  # fmt: skip
    told = [call for call in calls(world, "a") if call[0] in ("exception", "reset", "termination")]
    assert told == [("exception", 0, "PartitionLostError"), ("reset", 0, 3, 1)]


def test_a_member_that_was_overtaken_in_a_call_gives_its_node_up_for_the_next_reset() -> None:
    """A reset that waited no longer has moved the epoch; the one after it must not wait for the hanging call forever."""
    world = world_of("a", partitions=1, shutdown_timeout="2s", workers=2)
    during: list[bool] = []

    def meanwhile() -> None:
        close(world)
        move(world, {0: 1})
        open_again(world)
        world.run(1)
        close(world, command=f"{COMMAND}-2")
        world.run(1)
        during.append(stopped(world))
        world.run_until(lambda: stopped(world), within=3)
        move(world, {0: 2}, command=f"{COMMAND}-2")
        open_again(world)

    in_next_batch(world, "a", meanwhile)
    world.kafka.publish("orders", 0, [b"y"])
    world.run_until(lambda: bool(during), within=5)
    world.run(1)
    assert (during, world.owned(), world.commits(), seen(world, "a")) == (
        [False], {"a": {0}}, {0: 4}, [0, 1, 2, 3, 2, 3],
    )  # fmt: skip


def test_a_gate_that_opens_before_the_time_is_over_leaves_the_call_alone() -> None:
    """A reset was cancelled: the batch ends, is committed, and nothing is repeated."""
    world = world_of("a", partitions=1, shutdown_timeout="2s", workers=2)

    def meanwhile() -> None:
        close(world)
        world.run(1)
        open_again(world)
        world.run(4)

    in_next_batch(world, "a", meanwhile)
    world.kafka.publish("orders", 0, [b"y"])
    world.run(8)
    assert (seen(world, "a"), world.commits(), world.owned()) == ([0, 1, 2, 3], {0: 4}, {"a": {0}})


# -- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [True, False], ids=["moved", "cancelled"])
def test_a_batch_whose_session_expired_is_not_committed_behind_a_closed_gate(moved: bool) -> None:
    """The reset does not wait for it and has read the old offsets. Moved: lost. Cancelled: got back, nothing repeated."""
    world = world_of("a", partitions=1, session=4.0)
    between: list[dict[int, int | None]] = []

    def meanwhile() -> None:
        world.ensemble.cut_off("a")
        world.ensemble.expire_session("a")
        close(world)
        world.ensemble.heal("a")

    in_next_batch(world, "a", meanwhile)
    world.kafka.publish("orders", 0, [b"y"])
    world.run(5)
    between.append(world.commits())
    if moved:
        move(world, {0: 1})
    open_again(world)
    world.run(2)
    again = [1, 2, 3] if moved else []
    told = ["lost: a reset has moved its epoch on; nothing more of it is committed"] if moved else []
    assert events(world, "a", "lost") == told
    assert (between, world.commits(), seen(world, "a")) == ([{0: 3}], {0: 4}, [0, 1, 2, 3, *again])


def test_a_process_that_was_frozen_through_a_reset_commits_nothing_of_the_time_before() -> None:
    """SIGSTOP inside the callback, past the session; on waking its result is discarded, and it begins at the new offset."""
    world = world_of("a", "b", partitions=2, session=4.0)
    name = next(n for n, owned in world.owned().items() if 0 in owned)

    def meanwhile() -> None:
        world.pause(name)
        world.run(5)
        reset(world, {0: 1, 1: 1})
        world.run(1)
        world.resume(name)

    in_next_batch(world, name, meanwhile)
    world.kafka.publish("orders", 0, [b"y"])
    world.run(8)
    world.run(4)  # the time in the callback was part of the first
    other = "b" if name == "a" else "a"
    assert (world.commits(), world.owned()[name] | world.owned()[other]) == ({0: 4, 1: 3}, {0, 1})
    assert ("reset", 0, 4, 1) in calls(world, other)  # it had taken over, and come to 4


def test_a_claim_whose_answer_was_lost_leaves_no_node_behind_a_closed_gate() -> None:
    """It executed before the gate was closed; nobody holds it, and the reset waits for its node."""
    world = World(session_timeout=10.0)
    world.kafka.create_topic("orders", 1)
    world.join("a")

    def is_claim(ops: object) -> bool:
        return any(isinstance(op, Create) and op.path == world.paths.owner(*P0) for op in ops)  # type: ignore[attr-defined]

    lose_answer(world, "a", is_claim)
    world.run_until(lambda: not stopped(world), within=10)
    close(world)
    world.run_until(lambda: stopped(world), within=5)
    world.run(2)
    assert (stopped(world), world.consumers["a"].channel.parts.schedule.held()) == (True, [])


def test_a_process_that_takes_an_id_over_takes_the_dead_ones_nodes_down() -> None:
    """They would else stand until its session expires, and the reset wait for them. A late commit of it is fenced."""
    world = world_of("a", session=30.0)
    before = {p: world.ensemble.tree.get(world.paths.epoch("orders", p)) for p in range(4)}
    world.kill("a")
    close(world)
    world.join("a2", Told(), consumer_id="a", owner_is_dead=lambda info: True)
    world.run_until(lambda: stopped(world), within=3)
    after = {p: world.ensemble.tree.get(world.paths.epoch("orders", p)) for p in range(4)}
    moved = [a.stat.version - b.stat.version for a, b in zip(after.values(), before.values(), strict=True) if a and b]
    assert moved == [1, 1, 1, 1]

"""What members do when the gate of a topic opens again after a reset, and whom they tell of it."""

from __future__ import annotations

import asyncio

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.coordinators.nodes import OPEN
from inbound.coordinators.pauses import Pause
from inbound.coordinators.zookeeper import Create, Delete, SetData
from inbound.proof.model import Verdict
from inbound.testing.world import Recording, World
from inbound.topic_partition import TopicPartition
from tests.controller.reset_offset.reset_by_hand import (
    COMMAND,
    NAME,
    Told,
    calls,
    close,
    events,
    move,
    notes,
    open_again,
    reset,
    stopped,
    world_of,
    write,
)
from tests.proof.world_proofs import proofs_of
from tests.simulation.stage import in_next_batch, seen

P0 = TopicPartition("orders", 0)


def test_everything_is_taken_again_at_once_and_read_from_the_new_offsets() -> None:
    """Within a fraction of a second, in even shares; each processor gets `on_reset` before the first batch."""
    world = world_of("a", "b", "c", "d", partitions=64, records=2)
    reset(world, dict.fromkeys(range(64), 1), within=1.0)
    world.run(0.6)
    shares = sorted(len(owned) for owned in world.owned().values())
    told = [call for name in "abcd" for call in calls(world, name) if call[0] in ("reset", "batch")]
    first = {p: next(call for call in told if call[1] == p) for p in range(64)}
    assert (shares, set(first.values())) == ([16] * 4, {("reset", p, 2, 1) for p in range(64)})
    assert sorted(call for call in told if call[0] == "batch") == [("batch", p, 1) for p in range(64)]


def test_nothing_that_is_asked_for_meanwhile_makes_anybody_read_behind_a_closed_gate() -> None:
    """A resume, a rebalance, a reconfigured channel: they take effect when the gate opens."""
    world = world_of("a")
    pause = world.paths.pause("operator")
    write(world, [Create(pause, Pause("operator").encode())])
    world.run(1)
    close(world)
    world.run_until(lambda: stopped(world), within=0.5)
    write(world, [Delete(pause), SetData(world.paths.rebalance, b"{}")])
    world.leave("a")  # as an edit of its configuration has it: another one comes in its place
    world.join("a2", Told(), consumer_id="a", owner_is_dead=lambda info: True)
    world.run(5)
    during = stopped(world), seen(world, "a2")
    move(world, dict.fromkeys(range(4), 1))
    open_again(world)
    world.run(1)
    assert (during, world.commits(), len(seen(world, "a2"))) == ((True, []), dict.fromkeys(range(4), 3), 8)


def test_what_an_operator_has_left_to_others_stays_with_them() -> None:
    """Who set a partition aside before the reset does not take it after."""
    world = world_of("a", "b", partitions=2)
    name = next(n for n, owned in world.owned().items() if 0 in owned)
    membership = world.consumers[name].channel.membership
    world.consumers[name].tasks.spawn(membership.give_up(P0, 600.0), "release by an operator")
    world.run(0.1)
    reset(world, {0: 1, 1: 1}, within=1)
    world.run(1)
    assert 0 not in world.owned()[name]


def test_what_another_claims_as_soon_as_the_gate_opens_is_lost_by_who_held_it_in_a_former_session() -> None:
    """Seen in the same look as the open gate, it has an owner and is not missing; who waited for it would go on to wait."""
    world = world_of("a", partitions=1, session=4.0)
    world.ensemble.cut_off("a")
    world.ensemble.expire_session("a")
    close(world)
    world.ensemble.heal("a")
    world.run(2)
    open_again(world)
    move(world, {0: 1})  # as a claim moves the epoch too
    write(world, [Create(world.paths.owner(*P0), b"b")])
    world.run(2)
    assert world.consumers["a"].channel.status().partitions == []


# -- telling ---------------------------------------------------------------------------------------------------------


def test_the_ledger_names_the_reset_before_the_claim_that_begins_there() -> None:
    """With the command, the old offset and the new one."""
    world = world_of("a", partitions=1)
    reset(world, {0: 1}, within=1)
    world.run(1)
    facts = {"old": 3, "new": 1, "reason": "offsets reset", "command": COMMAND, "since": 3}
    kinds = [getattr(e, "kind", "") for e in world.consumers["a"].ledger.entries]
    last = len(kinds) - 1 - kinds[::-1].index("claimed")
    assert (notes(world, "a", "reset"), kinds[last - 1]) == ([(0, facts)], "reset")


def test_each_claim_reports_a_reset_until_something_is_committed() -> None:
    """The first to claim dies in its first batch; the one after that finds the offset moved on.

    The proof names what that batch repeats as repeated for this, and not for the reset, which is one.
    """
    world = world_of("a", partitions=1, session=4.0)
    in_next_batch(world, "a", lambda: world.kill("a"))
    reset(world, {0: 1}, within=1)
    world.run(1)
    first = calls(world, "a")
    world.join("b", Told())
    world.run(10)
    second, proof = calls(world, "b"), proofs_of(world)[P0]
    world.leave("b")
    world.join("c", Told())
    world.run(5)
    told = [[call for call in calls if call[0] == "reset"] for calls in (first, second, calls(world, "c"))]
    assert told == [[("reset", 0, 3, 1)], [("reset", 0, 3, 1)], []]
    found = [(finding.kind, finding.first, finding.next) for finding in proof.findings]
    assert (proof.verdict, found, proof.explained) == (Verdict.PROVEN, [("repeated", 1, 3)], ((1, 3),))


def test_a_reset_reports_that_the_group_had_no_offset() -> None:
    """Nothing was committed before: there is no old offset."""
    world = World()
    world.kafka.create_topic("orders", 1)
    world.join("a", Told())
    close_when_made(world)
    move(world, {0: 1})
    world.kafka.publish("orders", 0, [b"x"] * 2)
    open_again(world)
    world.run(5)
    assert [call for call in calls(world, "a") if call[0] == "reset"] == [("reset", 0, None, 1)]


def close_when_made(world: World) -> None:
    """Close the gate as soon as it exists: there was no claim yet."""
    path = world.paths.offset(*P0)
    world.run_until(lambda: path in world.ensemble.tree.nodes, within=5)
    assert world.ensemble.tree.nodes[world.paths.gate("orders")].data == OPEN
    close(world)
    assert stopped(world)


def test_an_on_reset_that_fails_is_logged_and_reading_begins() -> None:
    """No reset can move the offset back for it."""

    class Failing(Told):
        def on_reset(self, partition: TopicPartition, old_offset: int | None, new_offset: int) -> None:
            raise ValueError("not now")

    world = World()
    world.kafka.create_topic("orders", 1)
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.join("a", Failing())
    world.run(5)
    reset(world, {0: 1}, within=1)
    world.run(1)
    failed = events(world, "a", "callback-failed")
    assert (len(failed), "on_reset failed: ValueError: not now" in failed[0]) == (1, True)
    assert (seen(world, "a"), world.commits()) == ([0, 1, 2, 1, 2], {0: 3})


def test_an_asynchronous_processor_learns_of_a_reset_on_its_event_loop() -> None:
    """Awaited before the first batch."""

    class Awaiting(BatchEventProcessor):
        def __init__(self) -> None:
            self.calls: list[tuple[object, ...]] = []

        async def on_reset(self, partition: TopicPartition, old_offset: int | None, new_offset: int) -> None:
            await asyncio.sleep(0.2)
            self.calls.append(("reset", old_offset, new_offset))

        async def on_next_batch(self, batch: Batch) -> BatchResponse:
            self.calls.append(("batch", batch.first_offset))
            return BatchResponse.advance()

    world = World()
    world.kafka.create_topic("orders", 1)
    world.kafka.publish("orders", 0, [b"x"] * 3)
    processor = Awaiting()
    world.join("a", processor)
    world.run(5)
    reset(world, {0: 1}, within=1)
    world.run(1)
    assert processor.calls == [("batch", 0), ("reset", 3, 1), ("batch", 1)]


def test_a_processor_with_offsets_of_its_own_learns_of_the_reset_before_it_says_where_to_begin() -> None:
    """The processor decides how to react: here it follows."""

    class Keeping(Recording):
        own = 0

        def on_reset(self, partition: TopicPartition, old_offset: int | None, new_offset: int) -> None:
            self.calls.append(("reset", old_offset, new_offset))
            self.own = new_offset

        def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
            self.calls.append(("claim", committed))
            return self.own

        def on_next_batch(self, batch: Batch) -> BatchResponse:
            self.own = batch.next_offset
            return super().on_next_batch(batch)

    world = World()
    world.kafka.create_topic("orders", 1)
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.join("a", Keeping())
    world.run(5)
    calls(world, "a")
    reset(world, {0: 1}, within=1)
    world.run(1)
    told = [call for call in calls(world, "a") if call[0] in ("reset", "claim")]
    assert (told, seen(world, "a")) == ([("reset", 3, 1), ("claim", 1)], [0, 1, 2, 1, 2])


# -- for people ------------------------------------------------------------------------------------------------------


def test_the_status_names_the_reset_and_since_when_until_its_gate_opens() -> None:
    """Also of a member that has not held anything there."""
    world = world_of("a")
    close(world)
    world.run(1)
    (during,) = world.consumers["a"].channel.status().resets
    open_again(world)
    world.run(1)
    assert (during.name, during.topic, during.step) == (NAME, "orders", "its command is gone")
    assert world.consumers["a"].channel.status().resets == []


def test_a_gate_that_was_closed_by_hand_is_obeyed_all_the_same() -> None:
    """With any content: only `open` is open."""
    world = world_of("a")
    write(world, [SetData(world.paths.gate("orders"), b"hands off")])
    world.run(1)
    (during,) = world.consumers["a"].channel.status().resets
    assert (stopped(world), during.name) == (True, "hands off")
    assert during.step.startswith(
        "the gate of topic orders holds 'hands off', which is no reset, so no reset opens it; write "
    )


# -- the proof -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [0, 1, 3, 5], ids=["earliest", "back", "where it was", "on"])
def test_the_ledgers_of_a_group_that_was_reset_prove_that_nothing_went_wrong(new: int) -> None:
    """What is read again is explained by the reset, what was gone past is not missed."""
    world = world_of("a", "b", partitions=2, records=3)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"y"] * 2)
    world.run(1)
    reset(world, {0: new, 1: new}, within=1)
    world.run(1)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"z"] * 2)
    world.run(1)
    world.leave("a")
    world.run(2)
    explained = ((new, 5),) if new < 5 else ()
    found = [(proof.verdict, proof.findings, proof.explained) for proof in proofs_of(world).values()]
    assert found == [(Verdict.PROVEN, (), explained)] * 2

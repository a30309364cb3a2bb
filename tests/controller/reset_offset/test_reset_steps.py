"""A reset from its submission to its end: each step, its writes, and their effect on the group."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence

import pytest

from inbound.controller.reset_offset.data_plane import Replica
from inbound.controller.reset_offset.model import (
    FINISHED,
    TRANSITIONS,
    Ref,
    RefInfo,
    ResetEvent,
    State,
    To,
    conditions,
)
from inbound.coordinators.nodes import ResetNote, decode_epoch
from inbound.coordinators.zookeeper import Call, Delete, SetData
from inbound.errors import IllegalTransitionError, UnknownRefError
from inbound.testing.world import GROUP
from inbound.testing.zookeeper import ANONYMOUS, Who
from tests.controller.reset_offset.reset_by_hand import Told
from tests.controller.reset_offset.reset_stage import INFO, Stage, moved

#: All six conditions of a reset that has succeeded.
ALL_TRUE = {
    "RefMapped": "True",
    "AcquireDataPlaneServices": "True",
    "ConsumerGroupsStopped": "True",
    "OffsetsUpdated": "True",
    "ConsumerGroupsStarted": "True",
    "Succeeded": "True",
}


def told(stage: Stage, name: str) -> dict[str, tuple[str, str]]:
    """Return what a reset's conditions say that are not true: status and message."""
    return {c.type: (c.status, c.message) for c in stage.read(name).conditions if c.status != "True" and c.message}


# -- from the beginning to the end -------------------------------------------------------------------------------------


def test_a_running_group_is_moved_to_the_start_of_the_log_once() -> None:
    """Two members under way: they let go, are moved, take their partitions again, are told, and read everything again."""
    stage = Stage("a", "b")
    stage.lead("leader")
    command = stage.ended(stage.submit())
    stage.run(10)
    assert (command.state, command.moved, command.replicas) == (State.SUCCEEDED, moved(4, 10, 0), ("a", "b"))
    assert {c.type: c.status for c in command.conditions} == ALL_TRUE
    assert (stage.gate, stage.told()) == ("open", [(p, 10, 0) for p in range(4)])
    assert stage.world.commits() == dict.fromkeys(range(4), 10)


def test_a_group_without_a_replica_is_moved_too() -> None:
    """A later joiner begins at the new offsets, and its processor gets `on_reset`."""
    stage = Stage()
    stage.lead("leader")
    command = stage.ended(stage.submit(To.OFFSET, offset=7), within=5)
    messages = {c.type: c.message for c in command.conditions}
    assert (command.state, messages["AcquireDataPlaneServices"]) == (
        State.SUCCEEDED,
        "no replica runs; nothing to stop",
    )
    stage.world.join("late", Told())
    stage.run(10)
    assert (stage.told(), stage.world.commits()) == ([(p, 10, 7) for p in range(4)], dict.fromkeys(range(4), 10))


def test_some_partitions_are_moved_and_the_others_go_on_where_they_were() -> None:
    """Their epochs and offsets stay; all stop for the moment, as the gate is the topic's."""
    stage = Stage("a")
    before = {p: stage.world.ensemble.tree.nodes[stage.world.paths.epoch("orders", p)].version for p in range(4)}
    stage.lead("leader")
    command = stage.ended(stage.submit(To.SHIFT, shift=-4, partitions=(1, 3)))
    stage.run(5)
    after = {p: stage.world.ensemble.tree.nodes[stage.world.paths.epoch("orders", p)].version for p in range(4)}
    assert [(m.partition, m.old, m.new) for m in command.moved] == [(1, 10, 6), (3, 10, 6)]
    assert stage.told() == [(1, 10, 6), (3, 10, 6)]
    # A fence, the move, the claim, and the first commit, which says under which leader its records were written; or the claim.
    assert [after[p] - before[p] for p in range(4)] == [1, 4, 1, 4]


def test_a_member_that_joins_between_stop_and_start_takes_part_when_the_gate_opens() -> None:
    """It claims nothing before, and then at once: without the quiet time of a new session."""
    stage = Stage("a", partitions=2)
    leader = stage.lead("leader")
    name = stage.submit()
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.kill(leader)
    stage.world.join("b", Told())
    stage.run(5)
    assert (stage.world.owned(), stage.state(name)) == ({"a": set(), "b": set()}, "stopped")
    stage.lead("other")
    stage.run_until(lambda: stage.gate == "open", within=30)
    stage.run(0.6)
    assert {name: len(owned) for name, owned in stage.world.owned().items()} == {"a": 1, "b": 1}
    assert stage.told() == [(0, 10, 0), (1, 10, 0)]


def test_the_epoch_says_which_reset_it_was_and_keeps_what_stood_there() -> None:
    """Its nonce is another one, so that no request of an earlier owner can move it on; the topic's id stays."""
    stage = Stage("a")
    path = stage.world.paths.epoch("orders", 2)
    before = decode_epoch(path, stage.world.ensemble.tree.nodes[path].data)
    stage.world.leave("a")
    stage.lead("leader")
    command = stage.ended(stage.submit(To.OFFSET, offset=3))
    after = decode_epoch(path, stage.world.ensemble.tree.nodes[path].data)
    assert before is not None
    assert after is not None
    assert (after.consumer, after.session, after.topic_id, after.former) == ("reset", 0, before.topic_id, before.former)
    assert (after.reset, before.topic_id is not None) == (ResetNote(command.path, 10, 3, since=10), True)
    assert after.nonce != before.nonce


@pytest.mark.slow
def test_ten_resets_in_a_row_are_carried_out_one_after_another() -> None:
    """In the order of their submission, under one leader or another."""
    stage = Stage("a", "b", partitions=2)
    stage.lead("leader")
    stage.lead("other")
    history = stage.history(1)
    names = [stage.submit(To.OFFSET, offset=offset) for offset in range(10)]
    stage.run_until(lambda: all(stage.state(name) == "succeeded" for name in names), within=60)
    resets = [offset for offset in history if offset != 10]
    stage.run(5)
    assert (resets, stage.world.commits()) == (list(range(10)), {0: 10, 1: 10})


# -- states ------------------------------------------------------------------------------------------------------------


def test_a_step_is_in_the_table_or_refused() -> None:
    """Every pair of state and event."""
    for state, event in itertools.product(State, ResetEvent):
        if (state, event) in TRANSITIONS:
            assert TRANSITIONS.step(state, event) is TRANSITIONS[state, event]
        else:
            with pytest.raises(IllegalTransitionError, match=event.value):
                TRANSITIONS.step(state, event)


@pytest.mark.parametrize("state", list(State))
def test_from_every_state_there_is_a_way_to_an_end(state: State) -> None:
    """And from an end there is none."""
    reached, before = {state}, set[State]()
    while reached != before:
        before, reached = reached, reached | {to for (at, _), to in TRANSITIONS.items() if at in reached}
    assert (bool(reached & FINISHED), state in FINISHED) == (True, reached == {state})


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    """However often the command is written until then."""
    first = conditions((), State.MAPPED, "09:00", {})
    second = conditions(first, State.ACQUIRED, "09:01", {})
    third = conditions(second, State.STOPPING, "09:02", {})
    assert [(c.type, c.status, c.time) for c in third][:3] == [
        ("RefMapped", "True", "09:00"),
        ("AcquireDataPlaneServices", "True", "09:01"),
        ("ConsumerGroupsStopped", "Unknown", "09:00"),
    ]


# -- references --------------------------------------------------------------------------------------------------------


class _Mapper:
    """Knows the given references."""

    def __init__(self, **known: RefInfo) -> None:
        self.known = known

    def map(self, ref: Ref) -> RefInfo:
        if ref.name not in self.known:
            raise UnknownRefError(f"{ref}: there are {sorted(self.known)}")
        return self.known[ref.name]


def test_a_reference_is_mapped_by_a_process_that_knows_it() -> None:
    """One that does not know it says so once, and leaves it alone."""
    stage = Stage()
    stage.lead("one", _Mapper(others=RefInfo(topic="t", group="g")))
    name = stage.submit(info=None, ref=Ref(kind="Channel", name="mine"))
    stage.run(12)
    assert told(stage, name) == {"RefMapped": ("False", "Channel mine: there are ['others']")}
    stage.kill(stage.leaders[0])
    stage.lead("two", _Mapper(mine=INFO))
    command = stage.ended(name)
    assert (command.state, command.info) == (State.SUCCEEDED, INFO)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"info": RefInfo(topic="orders", group="grup")}, f"group grup: there is none; ZooKeeper has {GROUP}"),
        ({"info": RefInfo(topic="oders", group=GROUP)}, f"group {GROUP}: has no offsets of topic oders"),
        ({"to": To.OFFSET, "offset": 99}, "orders/0: offset 99 is outside the log; valid is 0 to 10"),
        ({"to": To.EARLIEST, "partitions": (7,)}, "orders has no partition 7; it has partitions 0 to 3"),
        ({"to": To.TIME, "time": 4e9}, "lies ahead"),
    ],
)
def test_what_cannot_be_done_is_refused_while_the_group_runs(fields: dict[str, object], message: str) -> None:
    """Nothing is stopped for it: the gate was never closed."""
    stage = Stage()
    gate = stage.world.paths.gate("orders")
    stage.lead("leader")
    command = stage.ended(stage.submit(**fields))  # type: ignore[arg-type]
    words = {c.type: (c.status, c.reason) for c in command.conditions if c.status == "False"}
    assert (command.state, words) == (
        State.REFUSED,
        {"OffsetsUpdated": ("False", "Refused"), "Succeeded": ("False", "Refused")},
    )
    assert message in next(c.message for c in command.conditions if c.type == "Succeeded")
    assert stage.world.ensemble.tree.nodes[gate].version == 0


def test_what_turns_out_after_the_stop_is_refused_and_the_group_goes_on() -> None:
    """Retention has gone past the offset while the members let go: nothing is moved, the gate opens."""
    stage = Stage("a")
    leader = stage.lead("leader")
    history = stage.history()
    name = stage.submit(To.OFFSET, offset=2)
    stage.run_until(lambda: stage.state(name) == "stopping", within=5)
    for partition in range(4):
        stage.world.kafka.retain("orders", partition, 5)
    command = stage.ended(name)
    stage.run(5)
    assert (command.state, command.moved, history, stage.gate) == (State.REFUSED, (), [], "open")
    assert "orders/0: offset 2 is outside the log; valid is 5 to 10" in command.conditions[-1].message
    assert (stage.world.owned(), leader.controller.unfinished) == ({"a": {0, 1, 2, 3}}, 0)
    assert leader.controller.ended == {State.REFUSED: 1}


def test_a_topic_that_was_deleted_is_refused() -> None:
    """No broker knows its log."""
    stage = Stage()
    stage.lead("leader")
    stage.world.kafka.delete_topic("orders")
    command = stage.ended(stage.submit())
    assert (command.state, command.conditions[-1].message) == (
        State.REFUSED,
        "topic orders: the brokers know none of this name (any more)",
    )


# -- brokers and topics ------------------------------------------------------------------------------------------------


def test_brokers_that_are_away_are_waited_for() -> None:
    """Before anything is stopped; the condition says it."""
    stage = Stage("a")
    stage.lead("leader")
    stage.world.kafka.down()
    name = stage.submit()
    stage.run(5)
    (message,) = told(stage, name).values()
    assert (stage.state(name), stage.gate, message[0]) == ("mapped", "open", "Unknown")
    stage.world.kafka.up()
    assert stage.ended(name).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("who", "state"),
    [(Who("admin", "creator"), "stopping"), (Who("admin", "readable"), "stopped")],
    ids=["not readable", "not writable"],
)
def test_a_node_that_is_refused_is_waited_for(who: Who, state: str) -> None:
    """The condition names it. With the right back the reset goes on."""
    stage = Stage("a", partitions=2)
    stage.lead("leader")
    path = stage.world.paths.offset("orders", 1)
    stage.world.ensemble.tree.give(path, who)
    name = stage.submit()
    stage.run(12)
    before, words = stage.state(name), [message for message in told(stage, name).values() if path in message[1]]
    stage.world.ensemble.tree.give(path, ANONYMOUS)
    command = stage.ended(name)
    assert (before, [reason for reason, _ in words], command.state) == (state, ["Unknown"], State.SUCCEEDED), words


def test_partitions_that_were_added_meanwhile_are_moved_with_the_others() -> None:
    """What the topic has when the group has stopped is what is moved."""
    stage = Stage("a", partitions=2)
    stage.lead("leader")
    name = stage.submit(To.LATEST)
    stage.run_until(lambda: stage.state(name) == "stopping", within=5)
    stage.world.kafka.create_topic("orders", 4)
    for partition in (2, 3):
        stage.world.kafka.publish("orders", partition, [b"new"] * 3)
    command = stage.ended(name)
    assert [(m.partition, m.old, m.new) for m in command.moved] == [
        (0, 10, 10),
        (1, 10, 10),
        (2, None, 3),
        (3, None, 3),
    ]


def test_old_offsets_of_a_recreated_topic_count_as_none() -> None:
    """The move is about the new topic: the claimant reads on from there, and not from its start."""
    stage = Stage("a", partitions=1)
    stage.world.leave("a")
    stage.world.kafka.delete_topic("orders")
    stage.world.kafka.create_topic("orders", 1)
    stage.world.kafka.publish("orders", 0, [b"new"] * 6)
    stage.lead("leader")
    command = stage.ended(stage.submit(To.OFFSET, offset=4))
    stage.world.join("b", Told())
    stage.run(10)
    processor = stage.world.consumers["b"].processor
    assert isinstance(processor, Told)
    assert ([(m.old, m.new) for m in command.moved], [offset for _, offset in processor.seen]) == ([(None, 4)], [4, 5])


@pytest.mark.parametrize("expired", [False, True], ids=["session lives", "session expired"])
def test_a_topic_that_is_deleted_while_a_reset_waits_ends_it_and_keeps_no_partition(expired: bool) -> None:
    """Its last owner was stuck. Nothing of the topic stays held, and what is created under its name later is read whole."""
    stage = Stage("a", partitions=2)
    world, a = stage.world, stage.world.consumers["a"]
    world.pause("a")
    if not expired:
        world.ensemble.thaw("a")  # connected, as far as the servers know
    stage.lead("leader")
    name = stage.submit()
    stage.run_until(lambda: stage.state(name) == "stopping", within=5)
    world.kafka.delete_topic("orders")
    if expired:
        world.ensemble.expire_session("a")
    stage.run(3)
    if expired:
        world.resume("a")
    else:
        a.paused = False
    command = stage.ended(name, within=40)  # no member takes its partitions again: the reset waits for that
    stage.run(10)
    left = (command.state, stage.gate, world.nodes(world.paths.owners("orders")), a.channel.status().partitions)
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"new"] * 3)
    stage.run(15)

    assert left == (State.REFUSED, "open", {}, [])
    assert command.conditions[-1].message == "topic orders: the brokers know none of this name (any more)"
    assert (world.owned(), world.commits(), stage.told()) == ({"a": {0, 1}}, {0: 3, 1: 3}, [])


# -- those who do not stop ---------------------------------------------------------------------------------------------


def test_a_member_that_is_stuck_is_waited_for_named_and_overtaken_after_the_given_time() -> None:
    """The others have let go. Then its owner nodes go, and no commit of it lands any more."""
    stage = Stage("a", partitions=2)
    stage.world.pause("a")
    stage.world.ensemble.thaw("a")  # connected, as far as the servers know
    stage.lead("leader")
    history = stage.history()
    name = stage.submit(force_after=8.0)
    stage.run(6)
    assert (stage.state(name), told(stage, name)) == (
        "stopping",
        {"ConsumerGroupsStopped": ("Unknown", "waits for a: still owns partitions 0 to 1")},
    )
    stage.run_until(lambda: stage.state(name) == "starting", within=4)
    stage.world.consumers["a"].paused = False
    command = stage.ended(name)
    stage.run(10)
    message = next(c.message for c in command.conditions if c.type == "ConsumerGroupsStopped")
    assert message == "overtaken, as they did not stop in time: a: still owns partitions 0 to 1"
    assert (history, stage.told()) == ([0, 10], [(0, 10, 0), (1, 10, 0)])


def test_a_member_that_dies_while_it_stops_goes_with_its_session() -> None:
    """The others take its partitions."""
    stage = Stage("a", "b", session=4.0)
    stage.world.kill("a")
    stage.lead("leader")
    command = stage.ended(stage.submit(), within=60)
    stage.run(5)
    assert (command.state, stage.world.owned()) == (State.SUCCEEDED, {"b": {0, 1, 2, 3}})


def test_partitions_that_nobody_takes_again_do_not_keep_it_from_its_end() -> None:
    """Their member left while the group was stopped, and there is no other."""
    stage = Stage("a", partitions=2)
    leader = stage.lead("leader")
    name = stage.submit()
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.kill(leader)
    stage.world.leave("a")
    stage.lead("other")
    stage.run(25)
    assert told(stage, name)["ConsumerGroupsStarted"] == (
        "Unknown",
        "waits for the group: partitions 0 to 1 had an owner before and have none now",
    )
    command = stage.ended(name, within=30)
    assert (command.state, command.conditions[4].message) == (
        State.SUCCEEDED,
        "0 replicas running; partitions 0 to 1 had an owner before and have none now",
    )


# -- another data plane ------------------------------------------------------------------------------------------------


class _Dispatchers:
    """Two replicas that answer later: one of them at the third time of asking."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def stop(self, group: RefInfo, token: str) -> Sequence[Replica]:
        return await self._asked("stop", group, token)

    async def start(self, group: RefInfo, token: str) -> Sequence[Replica]:
        return await self._asked("start", group, token)

    async def _asked(self, what: str, group: RefInfo, token: str) -> Sequence[Replica]:
        self.asked.append((what, group.group, token))
        answer: Call[bool] = Call("answer")
        answer.succeed(len([one for one in self.asked if one[0] == what]) >= 3)
        return [Replica("one", done=True), Replica("two", done=await answer, message="is slow")]


def test_another_data_plane_is_asked_until_all_its_replicas_are_done() -> None:
    """With one token for the whole reset: its path. Once more before the move, for its locks may have expired."""
    stage = Stage()
    plane = _Dispatchers()
    stage.lead("leader", plane=plane)
    command = stage.ended(stage.submit())
    assert plane.asked == [("stop", GROUP, command.path)] * 4 + [("start", GROUP, command.path)] * 3
    assert command.state is State.SUCCEEDED


class _Broken(_Dispatchers):
    """Raises the first time that it is asked for something."""

    async def _asked(self, what: str, group: RefInfo, token: str) -> Sequence[Replica]:
        self.asked.append((what, group.group, token))
        if len(self.asked) == 1:
            raise RuntimeError("a defect of a data plane")
        return [Replica("one", done=True)]


def test_a_data_plane_that_raises_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the error, and its place."""
    stage = Stage()
    stage.lead("leader", plane=_Broken())
    assert stage.ended(stage.submit()).state is State.SUCCEEDED
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "failed unexpectedly; tried again in 5 s" in record.getMessage()
    assert record.exc_info is not None
    assert "a defect of a data plane" in str(record.exc_info[1])


# -- nodes that are changed by hand ------------------------------------------------------------------------------------


def test_a_gate_that_is_opened_by_hand_is_closed_again_before_anything_moves() -> None:
    """A claim made since finds its epoch moved."""
    stage = Stage("a", partitions=2)
    leader = stage.lead("leader")
    name = stage.submit(To.OFFSET, offset=5)
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.kill(leader)
    gate = stage.world.paths.gate("orders")
    stage.write(SetData(gate, b"open"))
    stage.run(5)
    stage.lead("other")
    command = stage.ended(name)
    stage.run(10)
    assert (command.state, stage.told(), stage.gate) == (State.SUCCEEDED, [(0, 10, 5), (1, 10, 5)], "open")


def test_nodes_that_were_deleted_while_the_group_was_stopped_are_made_again() -> None:
    """An epoch node with its offset: the move goes on."""
    stage = Stage()
    leader = stage.lead("leader")
    name = stage.submit(To.OFFSET, offset=5)
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.kill(leader)
    stage.write(Delete(stage.world.paths.epoch("orders", 1)), Delete(stage.world.paths.offset("orders", 1)))
    stage.lead("other")
    assert (stage.ended(name).state, stage.world.commits()) == (State.SUCCEEDED, dict.fromkeys(range(4), 5))

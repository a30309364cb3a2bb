"""Several resets: queues, cancelling, chunks, leftovers of commands, and gates that no reset would open any more."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from inbound.controller.reset_offset import moves
from inbound.controller.reset_offset.command import PATHS, ResetCommand, decode, encode
from inbound.controller.reset_offset.command_store import KEEP_COUNT, KEEP_SECONDS, prune, submit
from inbound.controller.reset_offset.model import Ref, RefInfo, ResetSpec, State, To
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.ownership import Ownership
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import MAX_TRANSACTION_BYTES, Create, Node, Op, SetData, Stat
from inbound.errors import ResetError, TransientError
from inbound.testing.world import GROUP
from tests.controller.reset_offset.reset_stage import Leader, Stage, moved


def nodes_of(stage: Stage, name: str) -> list[str]:
    """Return the children of a command's node, by what they begin with."""
    return sorted({child.split("-")[0] for child in stage.world.ensemble.tree.children(PATHS.reset(name)) or ()})


# -- queues ------------------------------------------------------------------------------------------------------------


def test_two_resets_of_one_group_queue_in_the_order_of_submission() -> None:
    """The second one says behind which it waits, and stops no member until then."""
    stage = Stage("a", partitions=1)
    stage.world.pause("a")
    stage.world.ensemble.thaw("a")
    stage.lead("leader")
    first, second = stage.submit(To.OFFSET, offset=3), stage.submit(To.OFFSET, offset=6)
    stage.run(5)
    waiting = stage.read(second).conditions[1]
    assert (stage.state(first), stage.state(second), waiting.reason, waiting.message) == (
        "stopping",
        "mapped",
        "Queued",
        f"waits for reset {first} of the same group, which is stopping",
    )
    stage.world.consumers["a"].paused = False
    stage.ended(first)
    command = stage.ended(second)
    stage.run(5)
    assert (command.state, [new for _, _, new in stage.told()]) == (State.SUCCEEDED, [3, 6])


def test_resets_of_different_groups_go_side_by_side() -> None:
    """One that is stuck keeps no other from its end."""
    stage = Stage("a", partitions=1)
    stage.do(Ownership(stage.operator.zk, "other", "setup").ensure("orders", 1))
    stage.world.pause("a")
    stage.world.ensemble.thaw("a")
    stage.lead("leader")
    stuck = stage.submit()
    other = stage.submit(info=RefInfo(topic="orders", group="other"))
    assert (stage.ended(other, within=5).state, stage.state(stuck)) == (State.SUCCEEDED, "stopping")


# -- leaders -----------------------------------------------------------------------------------------------------------


def hangs(stage: Stage, leader: Leader) -> None:
    """It is connected, and so its lock stands."""
    leader.stopped = True


def closes(stage: Stage, leader: Leader) -> None:
    """As a process that stops gracefully does."""
    leader.controller.close()
    stage.run(2)
    leader.zk.close()


@pytest.mark.parametrize(
    ("goes", "session", "waits", "within"),
    [(Stage.kill, 4.0, 3, 3), (hangs, 10.0, 10, 15), (closes, 10.0, 0, 5)],
)
def test_another_process_goes_on_when_a_leader_does_not(
    goes: Callable[[Stage, Leader], None], session: float, waits: float, within: float
) -> None:
    """When the session of a dead one is over, and not before; an idle leader holds the others up only for a while."""
    stage = Stage(session=session)
    first = stage.lead("first")
    name = stage.submit()
    stage.run_until(lambda: stage.state(name) == "stopping", within=5)
    goes(stage, first)
    stage.lead("second")
    stage.run(waits)
    assert not waits or stage.state(name) == "stopping"
    assert stage.ended(name, within=within).state is State.SUCCEEDED


def test_one_reset_is_led_to_its_end_by_a_command() -> None:
    """While no process is there: its result is how the reset ended."""
    stage = Stage()
    name = stage.submit()
    command = stage.do(stage.operator.controller.lead(name))
    assert command is not None
    assert (command.state, nodes_of(stage, name)) == (State.SUCCEEDED, ["targets"])


# -- cancelling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["accepted", "mapped", "acquired", "stopping", "stopped"])
def test_a_reset_is_cancelled_at_any_step_before_it_moves(state: str) -> None:
    """Nothing is moved, the gate is open, and the group goes on."""
    stage = Stage("a", partitions=2)
    history = stage.history()
    name = stage.submit()
    leader = stage.lead("leader")
    stage.run_until(lambda: stage.state(name) == state, within=5)
    stage.kill(leader)
    command = stage.cancel(name)
    assert command.state in (State.CANCELLING, State.CANCELLED)
    stage.lead("other")
    ended = stage.ended(name)
    stage.run(5)
    last = ended.conditions[-1]
    assert (ended.state, ended.moved, last.status, last.reason) == (State.CANCELLED, (), "False", "Cancelled")
    assert (history, stage.gate, stage.world.owned()) == ([], "open", {"a": {0, 1}})
    assert stage.cancel(name) == ended


def test_what_is_moved_cannot_be_cancelled() -> None:
    """Nor what has ended, nor what never was."""
    stage = Stage()
    leader = stage.lead("leader")
    name = stage.submit()
    stage.run_until(lambda: stage.state(name) == "updated", within=5)
    stage.kill(leader)
    with pytest.raises(ResetError, match="is moving offsets, or has moved them, and cannot be cancelled any more"):
        stage.cancel(name)
    stage.lead("other")
    stage.ended(name)
    with pytest.raises(ResetError, match=r"has ended \(succeeded\), there is nothing to cancel"):
        stage.cancel(name)
    with pytest.raises(ResetError, match="reset nothing: there is no such command"):
        stage.cancel("nothing")


# -- chunks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions that hold a few partitions only."""
    monkeypatch.setattr(moves, "GROWTH", MAX_TRANSACTION_BYTES - 4500)


def largest(stage: Stage) -> list[int]:
    """Return a list that gets the size of every transaction of the leaders, from now on."""
    sizes: list[int] = []
    for leader in stage.leaders:
        send = leader.zk.transaction

        def transaction(ops: list[Op], send=send) -> object:  # type: ignore[no-untyped-def]
            sizes.append(moves.size(ops))
            return send(ops)

        leader.zk.transaction = transaction  # type: ignore[assignment, method-assign]
    return sizes


@pytest.mark.slow
@pytest.mark.usefixtures("narrow")
def test_what_no_single_transaction_holds_is_moved_in_chunks_behind_the_gate() -> None:
    """Each once; no member sees a part of it, and it cannot be cancelled once it has begun."""
    stage = Stage("a", partitions=20)
    leader = stage.lead("leader")
    name = stage.submit(To.OFFSET, offset=4)
    stage.run_until(lambda: stage.state(name) == "moving", within=10)
    stage.kill(leader)
    after = [offset for offset in stage.world.commits().values() if offset == 4]
    assert 0 < len(after) < 20
    assert (stage.gate, nodes_of(stage, name)) == (PATHS.reset(name), ["applied", "leader", "targets"])
    with pytest.raises(ResetError, match="cannot be cancelled"):
        stage.cancel(name)
    stage.lead("other")
    command = stage.ended(name)
    stage.run(10)
    assert (command.moved, command.chunks > 2) == (moved(20, 10, 4), True)
    assert stage.told() == [(p, 10, 4) for p in range(20)]


@pytest.mark.slow
@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("lost", [True, False])
def test_a_fault_at_any_request_between_chunks_moves_each_partition_once(lost: bool) -> None:
    """The answer is lost, or the leader dies."""
    for count in range(1, 40, 3):
        stage = Stage(partitions=12, session=1.0)
        histories = [stage.history(p) for p in range(12)]
        leader = stage.lead("leader")
        name = stage.submit(To.OFFSET, offset=4)
        stage.run_until(lambda: stage.state(name) == "stopped", within=5)  # noqa: B023
        if lost:
            stage.world.ensemble.lose_answers("leader", after=count)
        else:
            leader.after(count, lambda: stage.kill(leader))  # noqa: B023
            stage.lead("other")
        command = stage.ended(name)
        assert (command.state, command.moved, histories) == (State.SUCCEEDED, moved(12, 10, 4), [[4]] * 12), count


@pytest.mark.slow
def test_two_thousand_partitions_with_long_names_keep_every_transaction_small() -> None:
    """Their paths alone take half a megabyte."""
    group, topic, count = "g" * 200, "t" * 249, 2000
    stage = Stage()
    stage.world.kafka.create_topic(topic, count)
    for partition in range(count):
        stage.world.kafka.publish(topic, partition, [b"x"])
    paths = GroupPaths(group)
    tree = stage.world.ensemble.tree
    stage.do(Ownership(stage.operator.zk, group, "setup").ensure(topic, count))
    stage.write(*(SetData(paths.offset(topic, p), b"1") for p in range(count)))
    stage.lead("leader")
    sizes = largest(stage)
    command = stage.ended(stage.submit(To.EARLIEST, info=RefInfo(topic=topic, group=group)), within=60)
    assert (command.state, len(command.moved), command.chunks > 1) == (State.SUCCEEDED, count, True)
    assert {tree.nodes[paths.offset(topic, p)].data for p in range(count)} == {b"0"}
    assert 400_000 < max(sizes) < 512 * 1024


@pytest.mark.slow
def test_a_thousand_partitions_fit_one_transaction() -> None:
    """With names of a usual length, they are moved all at once."""
    stage = Stage(partitions=1000, records=1)
    stage.lead("leader")
    command = stage.ended(stage.submit(), within=60)
    assert (command.state, len(command.moved), command.chunks) == (State.SUCCEEDED, 1000, 1)


# -- what is left ------------------------------------------------------------------------------------------------------


def test_finished_resets_are_kept_for_a_week_and_no_more_than_a_hundred() -> None:
    """Those that have not ended are kept however old they are."""
    stage = Stage()
    wall = stage.world.clock.wall()

    def make(name: str, age: float, state: State) -> Create:
        command = stage.command(name=name)
        return Create(command.path, encode(replace(command, state=state, ended=wall - age)))

    stage.do(submit(stage.operator.zk, stage.command(name="waiting")))
    stage.write(
        *(make(f"recent-{k:03}", k, State.SUCCEEDED) for k in range(KEEP_COUNT + 5)),
        make("last-week", KEEP_SECONDS + 60, State.REFUSED),
        Create(f"{PATHS.reset('last-week')}/targets-x-0"),
    )
    gone = stage.do(prune(stage.operator.zk, wall))
    left = {command.name for command in stage.listing()}
    assert sorted(gone) == ["last-week", *(f"recent-{k:03}" for k in range(KEEP_COUNT, KEEP_COUNT + 5))]
    assert left == {"waiting", *(f"recent-{k:03}" for k in range(KEEP_COUNT))}


def test_the_running_process_clears_away() -> None:
    """When the next reset comes, or by its timer."""
    stage = Stage()
    stage.lead("leader")
    first = stage.submit()
    stage.ended(first)
    stage.world.clock.jump_wall(KEEP_SECONDS + 60)
    second = stage.submit()
    stage.ended(second)
    stage.run(1)
    assert [command.name for command in stage.listing()] == [second]


def test_what_a_manifest_asks_for_is_done_once_also_after_its_reset_was_cleared_away() -> None:
    """It may lie in its folder for years, and every process submits it at each start."""
    stage = Stage()
    leader = stage.lead("leader")
    command = stage.command(name="default.reset.1f3a", once=True)
    assert stage.do(submit(stage.operator.zk, command))
    stage.ended(command.name)
    again = stage.do(submit(stage.operator.zk, command))
    stage.world.clock.jump_wall(KEEP_SECONDS + 60)
    leader.controller.look()
    stage.run(1)
    assert (again, stage.listing()) == (False, [])
    assert not stage.do(submit(stage.operator.zk, command))
    assert stage.listing() == []


def test_submitting_again_after_a_lost_answer_is_safe() -> None:
    """There is one command, whether the first attempt landed or not."""
    stage = Stage()
    for count in range(1, 8):
        command = stage.command()
        stage.world.ensemble.lose_answers("operator", after=count)
        with suppress(TransientError):
            assert stage.do(submit(stage.operator.zk, command)), count
        stage.world.ensemble.answer_again("operator")
        stage.run(1)
        assert stage.do(submit(stage.operator.zk, command)), count
    assert len(stage.listing()) == 7


def test_a_command_that_is_too_large_is_refused() -> None:
    """It could not be written together with its move."""
    stage = Stage()
    command = stage.command(To.OFFSETS, offsets=dict.fromkeys(range(30_000), 10**9))
    with pytest.raises(ResetError, match="reset fewer partitions at a time"):
        stage.do(submit(stage.operator.zk, command))
    assert stage.listing() == []


def test_a_command_of_a_later_version_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """And told of once; the others go on."""
    stage = Stage()
    stage.lead("leader")
    stage.ended(stage.submit())
    path = PATHS.reset("later")
    stage.write(Create(path, b'{"v":9}'))
    stage.run(130)
    name = stage.submit()
    assert stage.ended(name).state is State.SUCCEEDED
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == [f"resets of offsets: {path}: format 9, this inbound reads up to 2; upgrade this consumer"]
    with pytest.raises(BadNodeError):
        stage.listing()


# -- gates that no reset would open -------------------------------------------------------------------------------------


def test_a_follower_opens_the_gate_of_a_group_without_members() -> None:
    """No member would: the group does not run."""
    stage = Stage(partitions=2)
    leader = stage.lead("leader")
    stage.lead("other", group="another-group")
    name = stage.submit()
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.kill(leader)
    stage.delete(name)
    stage.run(5)
    assert stage.gate == "open"


def test_a_gate_that_something_unknown_has_closed_stays_closed() -> None:
    """Its writer knows when to open it; a reset of that topic waits, and names the gate."""
    stage = Stage("a", partitions=1)
    stage.lead("leader")
    stage.write(SetData(stage.world.paths.gate("orders"), b"/another/tool"))
    name = stage.submit()
    stage.run(70)
    stopped = stage.read(name).conditions[2]
    assert (stage.gate, stage.state(name), stopped.message) == (
        "/another/tool",
        "acquired",
        f"the gate of {GROUP}/orders is closed by /another/tool",
    )
    stage.write(SetData(stage.world.paths.gate("orders"), b"open"))
    assert stage.ended(name).state is State.SUCCEEDED


def test_a_late_attempt_to_open_an_abandoned_gate_does_not_open_the_next_resets_one() -> None:
    """The gate's version has moved on."""
    stage = Stage("a", partitions=1)
    gate = stage.world.paths.gate("orders")
    stage.write(SetData(gate, PATHS.reset("deleted").encode()))
    late = stage.lead("late")
    stage.world.ensemble.stick("late", f"transaction at {gate}")
    stage.run_until(lambda: "late" in late.zk.kinds(), within=5)
    stage.write(SetData(gate, PATHS.reset("another").encode()))
    late.zk.step("late")
    assert stage.gate == PATHS.reset("another")


@pytest.mark.parametrize("owned", ["0-99999999999", "5-x", "1e9"])
def test_a_command_with_partitions_that_no_topic_has_is_refused(owned: str) -> None:
    """Written by hand, it must not fill the memory of everybody who looks at the resets."""
    made = ResetCommand(name="x", ref=Ref(kind="Channel", name="orders"), spec=ResetSpec(to=To.EARLIEST), created=0.0)
    body = json.loads(encode(made)) | {"owned": owned}
    with pytest.raises(BadNodeError, match="not a reset that this inbound can read"):
        decode("/inbound/commands/reset-offset/x", Node(json.dumps(body).encode(), Stat(0, 0, 1, 1)))

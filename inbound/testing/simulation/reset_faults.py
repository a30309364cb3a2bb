"""Resets, and what happens to whoever carries them out, and to their group, at every step of theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from inbound.controller.reset_offset import Ref, RefInfo, ResetCommand, ResetSpec, State, To
from inbound.coordinators.nodes import OPEN
from inbound.coordinators.paths import CommandPaths, GroupPaths
from inbound.coordinators.zookeeper import Create, Delete, Op
from inbound.testing.simulation.dispatch_faults import DISPATCH_KINDS
from inbound.testing.simulation.faults import KINDS, MOST
from inbound.testing.simulation.mirror_faults import MIRROR_KINDS
from inbound.testing.simulation.node_faults import End
from inbound.testing.simulation.operators import Operator
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.reload_faults import RELOAD_KINDS
from inbound.testing.simulation.stage import Stage
from inbound.testing.world import GROUP, Consumer
from inbound.topic_partition import TopicPartition

#: At most so many resets in one run: each stops the group for a while.
MOST_RESETS = 6
#: After so many seconds of waiting some resets overtake who does not let go.
FORCE_AFTER = 2.0
#: A group without consumers.
OTHER_GROUP = "others"
#: When something may happen to a reset; see `_at_step`.
STEPS = (State.MAPPED, State.ACQUIRED, State.STOPPING, State.STOPPED, State.MOVING, State.UPDATED, State.STARTING)
#: To whoever carries the reset out.
TO_LEADERS = (
    "kill", "freeze", "cut off", "expire", "disconnect", "lose answers", "drop requests", "stuck write", "slow network",
)  # fmt: skip
#: To anybody, and everybody.
TO_OTHERS = (
    "kill", "freeze", "join", "leave", "restart", "expire", "expire all", "outage", "grow", "retain", "slow callback",
    "cut off", "disconnect", "stuck write", "lag", "cancel", "delete command", "reset", "brokers down",
    "cancel", "cancel late", "delete command",
)  # fmt: skip


def _reset(stage: Stage, action: Action) -> End:
    """Somebody asks for a reset, and (flag) stays to carry it out."""
    return _ask(stage, action, GROUP)


def _reset_other_group(stage: Stage, action: Action) -> End:
    """The same of a group that has no consumers."""
    tp, paths = stage.partition(action), GroupPaths(OTHER_GROUP)
    if stage.ensemble.tree.get(paths.offsets(tp.topic)) is None:
        folders = (paths.offset(*tp), paths.epoch(*tp), paths.gate(tp.topic), paths.owner(*tp), paths.member("x"))
        missing: dict[str, None] = {}
        for path in folders:
            parts = path.split("/")
            for depth in range(2, len(parts)):
                if stage.ensemble.tree.get("/".join(parts[:depth])) is None:
                    missing["/".join(parts[:depth])] = None
        limits = stage.kafka.log_range(tp)
        ops: list[Op] = [Create(path) for path in missing]
        ops += [Create(paths.offset(*tp), b"%d" % (limits.end if limits else 0)), Create(paths.gate(tp.topic), OPEN)]
        stage.ensemble.tree.transaction(ops, session=0)
    return _ask(stage, action, OTHER_GROUP)


def _ask(stage: Stage, action: Action, group: str) -> End:
    if stage.asked >= MOST_RESETS:
        return None
    stage.asked += 1
    tp, wall = stage.partition(action), stage.world.clock.wall()
    command = ResetCommand(
        name=f"r{stage.asked}",
        ref=Ref(kind="ConsumerGroup", name=group),
        info=RefInfo(topic=tp.topic, group=group),
        spec=_spec(stage, action, tp, wall),
        created=wall,
        force_after=FORCE_AFTER if action.seconds < 0.25 else None,
    )
    operator = _operator(stage)
    stage.judge.say(f"{operator.name} asks for reset {command.name} of {group}/{tp.topic}: {command.spec}")
    operator.submit(command, lead=action.flag)
    return None


def _spec(stage: Stage, action: Action, tp: TopicPartition, wall: float) -> ResetSpec:
    limits = stage.kafka.log_range(tp)
    inside = limits.start + action.where % (limits.end - limits.start + 1) if limits is not None else 0
    only = (tp.partition,) if action.size == 3 else None
    match action.who % 7:
        case 0:
            return ResetSpec(to=To.LATEST, partitions=only)
        case 1:
            return ResetSpec(to=To.TIME, time=wall - action.seconds, partitions=only)
        case 2:
            return ResetSpec(to=To.SHIFT, shift=(-1 if action.flag else 1) * action.size, partitions=only)
        case 3:
            return ResetSpec(to=To.OFFSET, offset=inside, partitions=only)
        case 4:
            return ResetSpec(to=To.OFFSETS, offsets={tp.partition: inside})
        case 5:
            return ResetSpec(to=To.SHIFT, shift=-action.where - 1)
        case _:
            return ResetSpec(to=To.EARLIEST, partitions=only)


def _operator(stage: Stage) -> Operator:
    name = f"cli{len(stage.operators) + 1}"
    operator = Operator(stage.world, name, stage.plan.setup.session, stage.logs, stage.largest, stage.judge.say)
    stage.operators.append(operator)
    stage.scheduler.add(operator)
    return operator


def _name(stage: Stage, action: Action) -> str | None:
    names = stage.judge.resets.names()
    return names[-1 - action.where % min(2, len(names))] if names else None


def _cancel(stage: Stage, action: Action) -> End:
    """Somebody wants one of the last two resets to end."""
    name = _name(stage, action)
    if name is not None:
        _operator(stage).cancel(name)
    return None


def _cancel_late(stage: Stage, action: Action) -> End:
    """The same, while whoever leads stands still: it takes some steps to ask."""
    _cancel(stage, action)
    return _hurt(stage, found[0], "freeze", action) if (found := leaders(stage)) else None


def _delete_command(stage: Stage, action: Action) -> End:
    """Somebody deletes a reset by hand, with all that is in it."""
    name = _name(stage, action)
    path = f"{CommandPaths.RESETS}/{name}"
    children = stage.ensemble.tree.children(path)
    if name is not None and children is not None:
        stage.judge.resets.deleted(name)
        ops = [Delete(f"{path}/{child}") for child in children]
        stage.ensemble.tree.transaction([*ops, Delete(path)], session=0)
    return None


def leaders(stage: Stage) -> list[Consumer | Operator]:
    """Return the processes that carry resets out, as the nodes say."""
    names = []
    for name in stage.ensemble.tree.children(CommandPaths.RESETS) or ():
        node = stage.ensemble.tree.get(f"{CommandPaths.RESETS}/{name}/leader")
        if node is not None:
            names.append(stage.ensemble.clients_of[node.stat.ephemeral_owner])
    everybody: list[Consumer | Operator] = [*stage.living(), *(o for o in stage.operators if not o.dead)]
    return [process for process in everybody if process.name in names]


def _leader(stage: Stage, action: Action) -> End:
    """Something happens to whoever carries a reset out."""
    found = leaders(stage)
    if not found:
        return None
    leader = found[action.where % len(found)]
    return _hurt(stage, leader, TO_LEADERS[action.who % len(TO_LEADERS)], action)


def _hurt(stage: Stage, victim: Consumer | Operator, what: str, action: Action) -> End:
    name, ensemble, delays = victim.name, stage.ensemble, stage.scheduler.delays
    stage.judge.say(f"-- {what} {name}, which leads")
    match what:
        case "kill":
            victim.dead = True
            ensemble.freeze(name)
        case "freeze" if not victim.paused:
            victim.paused = True
            ensemble.freeze(name)

            def thaw() -> None:
                if not victim.dead:
                    victim.paused = False
                    ensemble.thaw(name)

            return thaw
        case "cut off":
            ensemble.cut_off(name)
            return lambda: ensemble.heal(name)
        case "expire":
            if isinstance(victim, Consumer):
                stage.expire([victim])
            else:
                ensemble.expire_session(name)
        case "disconnect":
            ensemble.disconnect(name, executed=action.where % 3, late=action.flag)
        case "lose answers":
            ensemble.lose_answers(name, action.size)
            return lambda: ensemble.answer_again(name)
        case "drop requests":
            ensemble.drop_requests(name, action.size, late=action.flag)
            return lambda: ensemble.answer_again(name)
        case "stuck write":
            ensemble.stick(name, f"transaction at {CommandPaths.RESETS}")
            return lambda: ensemble.answer_again(name)
        case "slow network":
            key = (name, ("execute", "answer", "watch")[action.where % 3])
            delays[key] = action.seconds

            def quick() -> None:
                delays.pop(key, None)
                stage.scheduler.hurry(key)

            return quick
    return None


def _at_step(stage: Stage, action: Action) -> End:
    """When a reset next comes to a certain step, something happens: to its leader, or (flag) to others."""
    state = STEPS[action.where % len(STEPS)]
    drawn = action.who + 12 * (round(action.seconds * 1000) % 2)  # there are more than a plan can name by `who`
    what = TO_OTHERS[drawn % len(TO_OTHERS)] if action.flag else "leader"

    def happen() -> None:
        if not stage.scheduler.calm and stage.living() and stage.partitions():
            stage.judge.say(f"-- {what}, as a reset was {state.value}")
            stage.lasts(EVERY_KIND[what](stage, replace(action, flag=action.size % 2 == 0)), action.seconds)

    stage.at_step.append((state, partial(stage.scheduler.at_next, (action.size - 1) * 0.003, happen)))
    return None


def _crowd(stage: Stage, action: Action) -> End:
    """Two join at once."""
    for _ in range(2):
        if len(stage.living()) < MOST:
            stage.join()
    return None


RESET_KINDS: Mapping[str, Callable[[Stage, Action], End]] = {
    "reset": _reset,
    "reset other group": _reset_other_group,
    "cancel": _cancel,
    "cancel late": _cancel_late,
    "delete command": _delete_command,
    "leader": _leader,
    "at step": _at_step,
    "crowd": _crowd,
}
EVERY_KIND: Mapping[str, Callable[[Stage, Action], End]] = {
    **KINDS,
    **RESET_KINDS,
    **RELOAD_KINDS,
    **DISPATCH_KINDS,
    **MIRROR_KINDS,
}

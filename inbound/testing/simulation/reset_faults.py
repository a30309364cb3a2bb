"""Faults of reloads and resets, and the table of all faults.

A reload changes the configuration of processes while other faults happen to them. A reset's leader and its group meet faults at
every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random

from inbound.controller.reset_offset import Ref, RefInfo, ResetCommand, ResetSpec, State, To
from inbound.coordinators.nodes import OPEN
from inbound.coordinators.paths import CommandPaths, GroupPaths
from inbound.coordinators.zookeeper import Create, Delete, Op
from inbound.testing.simulation.channels import CHANNELS, ChannelSpecs, new_spec
from inbound.testing.simulation.faults import KINDS, TO_ONE, Fault, Going, begin, to_process
from inbound.testing.simulation.operators import ResetOperator
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.stage import Stage
from inbound.testing.world import GROUP, Consumer
from inbound.topic_partition import TopicPartition

#: Changes of an existing channel.
CHANGES = ("removed", "removed", "renamed", "options", "options", "kafka", "batch", "client", "topics", "id")
#: The most resets in one run: each stops the group for a while.
MOST_RESETS = 6
#: Seconds after which some resets take partitions that are not released.
FORCE_AFTER = 2.0
#: A group without consumers.
OTHER_GROUP = "others"
#: The states of a reset at which a fault may happen; see `_at_step`.
STEPS = (State.MAPPED, State.ACQUIRED, State.STOPPING, State.STOPPED, State.MOVING, State.UPDATED, State.STARTING)
#: What may happen then, to others than the reset's leader.
TO_OTHERS = (
    "kill", "freeze", "join", "leave", "restart", "expire", "expire all", "outage", "grow", "retain", "slow callback",
    "cut off", "disconnect", "stuck write", "lag", "cancel", "delete command", "reset", "brokers down",
    "cancel", "cancel late", "delete command",
)  # fmt: skip


def _reload(stage: Stage, action: Action) -> None:
    """The configuration of a process, or (flag) of all, names other channels."""
    if not stage.further or not stage.staying():
        return
    told = stage.pick(stage.staying(), action)
    wanted = _changed(stage, stage.reloading[told.name].wanted, action)
    for host in stage.staying() if action.flag else [told]:
        stage.judge.say(f"the configuration of {host.name} becomes {_told(wanted)}")
        stage.reloading[host.name].tell(wanted)
    stage.configuration = wanted  # of processes that join later


def _bad_reload(stage: Stage, action: Action) -> None:
    """A process gets a configuration that is unusable, or (flag) partly unstartable."""
    if not stage.further or not stage.staying():
        return
    told = stage.reloading[stage.pick(stage.staying(), action).name]
    if not action.flag:
        stage.judge.say(f"{told.host.name} gets a configuration that it cannot use")
        told.break_it()
        return
    wanted = {name: replace(spec, version=spec.version + 1) for name, spec in told.wanted.items()}
    group = CHANNELS[action.where % len(stage.further)]
    bad = _name_of(wanted, group) or group
    wanted[bad] = replace(wanted.get(bad) or new_spec(stage.plan, group), opens=False)
    stage.judge.say(f"the configuration of {told.host.name} becomes {_told(wanted)}, of which {bad} cannot be opened")
    told.tell(wanted)


def _changed(stage: Stage, specs: ChannelSpecs, action: Action) -> ChannelSpecs:
    """Return other specifications: one channel has come, changed or gone."""
    rng = Random(f"{stage.plan.seed} {action}")
    group = CHANNELS[action.where % len(stage.further)]
    name = _name_of(specs, group)
    others = {other: spec for other, spec in specs.items() if other != name}
    if name is None:
        return {**others, group: new_spec(stage.plan, group)}
    spec = specs[name]
    match rng.choice(CHANGES):
        case "removed":
            return others
        case "renamed":
            return {**others, f"{group}-{rng.randrange(100)}": spec}
        case "options":
            changed = replace(spec, version=spec.version + 1)
        case "kafka":
            changed = replace(spec, kafka=spec.kafka + 1)
        case "batch":
            changed = replace(spec, batch=spec.batch % 8 + 1)
        case "client":
            clients = ("kafka-python", "confluent-kafka")
            changed = replace(spec, client=clients[1 - clients.index(spec.client)])
        case "topics":
            topics = tuple(topic for topic, _ in stage.plan.setup.topics)
            changed = replace(spec, topics=topics if spec.topics != topics else topics[:1])
        case _:
            changed = replace(spec, fixed=not spec.fixed)
    return {**others, name: changed}


def _name_of(specs: ChannelSpecs, group: str) -> str | None:
    return next((name for name, spec in specs.items() if spec.group == group), None)


def _told(specs: ChannelSpecs) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in sorted(specs.items())) or "no further channel"


# -- resets -------------------------------------------------------------------------------------------------------------


def _reset_other_group(stage: Stage, action: Action) -> None:
    """An operator resets a group without consumers."""
    tp, paths = stage.partition(action), GroupPaths(OTHER_GROUP)
    if stage.ensemble.tree.get(paths.offsets(tp.topic)) is None:
        folders = (paths.offset(*tp), paths.epoch(*tp), paths.gate(tp.topic), paths.owner(*tp), paths.member("x"))
        split = [path.split("/") for path in folders]
        above = dict.fromkeys("/".join(parts[:depth]) for parts in split for depth in range(2, len(parts)))
        limits = stage.kafka.log_range(tp)
        ops: list[Op] = [Create(path) for path in above if stage.ensemble.tree.get(path) is None]
        ops += [Create(paths.offset(*tp), b"%d" % (limits.end if limits else 0)), Create(paths.gate(tp.topic), OPEN)]
        stage.write_by_hand(*ops)
    _ask(OTHER_GROUP, stage, action)


def _ask(group: str, stage: Stage, action: Action) -> None:
    """An operator asks for a reset, and (flag) carries it out."""
    if stage.asked >= MOST_RESETS:
        return
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


def _operator(stage: Stage) -> ResetOperator:
    name = f"cli{len(stage.operators) + 1}"
    operator = ResetOperator(stage.world, name, stage.plan.setup.session, stage.logs, stage.largest, stage.judge.say)
    stage.operators.append(operator)
    stage.scheduler.add(operator)
    return operator


def _name(stage: Stage, action: Action) -> str | None:
    names = stage.judge.resets.names()
    return names[-1 - action.where % min(2, len(names))] if names else None


def _cancel(stage: Stage, action: Action) -> None:
    """An operator cancels one of the last two resets."""
    if (name := _name(stage, action)) is not None:
        _operator(stage).cancel(name)


def _cancel_late(stage: Stage, action: Action) -> Going:
    """An operator cancels a reset while its leader is frozen."""
    _cancel(stage, action)
    return _hurt(stage, action, found[0], "freeze") if (found := leaders(stage)) else None


def _delete_command(stage: Stage, action: Action) -> None:
    """An operator deletes a reset's node and its children."""
    name = _name(stage, action)
    path = f"{CommandPaths.RESETS}/{name}"
    children = stage.ensemble.tree.children(path)
    if name is not None and children is not None:
        stage.judge.resets.deleted(name)
        stage.write_by_hand(*(Delete(f"{path}/{child}") for child in children), Delete(path))


def leaders(stage: Stage) -> list[Consumer | ResetOperator]:
    """Return the processes that carry resets out, as the nodes say."""
    tree = stage.ensemble.tree
    nodes = [tree.get(f"{CommandPaths.RESETS}/{name}/leader") for name in tree.children(CommandPaths.RESETS) or ()]
    names = [stage.ensemble.clients_of[node.stat.ephemeral_owner] for node in nodes if node is not None]
    processes: list[Consumer | ResetOperator] = [*stage.living(), *(o for o in stage.operators if not o.dead)]
    return [process for process in processes if process.name in names]


def _leader(stage: Stage, action: Action) -> Going:
    if not (found := leaders(stage)):
        return None
    return _hurt(stage, action, found[action.where % len(found)], TO_ONE[action.who % len(TO_ONE)])


def _hurt(stage: Stage, action: Action, leader: Consumer | ResetOperator, what: str) -> Going:
    stage.judge.say(f"-- {what} {leader.name}, which leads")
    return to_process(what, stage, action, leader, leads=True)


def _at_step(stage: Stage, action: Action) -> None:
    """A fault hits a reset's leader, or (flag) others, at one step."""
    state = STEPS[action.where % len(STEPS)]
    drawn = action.who + 12 * (round(action.seconds * 1000) % 2)  # there are more than a plan can name by `who`
    what = TO_OTHERS[drawn % len(TO_OTHERS)] if action.flag else "leader"

    def happen() -> None:
        if not stage.scheduler.calm and stage.living() and stage.partitions():
            stage.judge.say(f"-- {what}, as a reset was {state.value}")
            stage.lasts(begin(EVERY_KIND[what](stage, replace(action, flag=action.size % 2 == 0))), action.seconds)

    stage.judge.resets.when(state, partial(stage.scheduler.at_next, (action.size - 1) * 0.003, happen))


EVERY_KIND: Mapping[str, Fault] = {
    **KINDS,
    "reload": _reload,
    "bad reload": _bad_reload,
    "reset": partial(_ask, GROUP),
    "reset other group": _reset_other_group,
    "cancel": _cancel,
    "cancel late": _cancel_late,
    "delete command": _delete_command,
    "leader": _leader,
    "at step": _at_step,
}

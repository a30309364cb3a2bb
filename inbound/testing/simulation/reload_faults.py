"""Processes are told to run other channels than before, while everything else happens to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from inbound.testing.simulation.channels import CHANNELS, Specs, new_spec
from inbound.testing.simulation.node_faults import End
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.stage import Stage

#: What is done with a channel that is there.
CHANGES = ("removed", "removed", "renamed", "options", "options", "kafka", "batch", "client", "topics", "id")


def _reload(stage: Stage, action: Action) -> End:
    """One process, or (flag) all of them, are told to run other channels, or the same ones in another way."""
    if not stage.further or not stage.staying():
        return None
    told = stage.pick(stage.staying(), action)
    wanted = _changed(stage, stage.reloading[told.name].wanted, action)
    for host in stage.staying() if action.flag else [told]:
        stage.judge.say(f"{host.name} is told to run {_told(wanted)}")
        stage.reloading[host.name].tell(wanted)
    stage.configuration = wanted  # of who comes later
    return None


def _bad_reload(stage: Stage, action: Action) -> End:
    """A process is told something that it cannot use, or (flag) in which one of several changes cannot be started."""
    if not stage.further or not stage.staying():
        return None
    told = stage.reloading[stage.pick(stage.staying(), action).name]
    if not action.flag:
        stage.judge.say(f"{told.host.name} is told something that it cannot use")
        told.break_it()
        return None
    wanted = {name: replace(spec, version=spec.version + 1) for name, spec in told.wanted.items()}
    group = CHANNELS[action.where % len(stage.further)]
    bad = _name_of(wanted, group) or group
    wanted[bad] = replace(wanted.get(bad) or new_spec(stage.plan, group), opens=False)
    stage.judge.say(f"{told.host.name} is told to run {_told(wanted)}, of which {bad} cannot be opened")
    told.tell(wanted)
    return None


def _changed(stage: Stage, specs: Specs, action: Action) -> Specs:
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


def _name_of(specs: Specs, group: str) -> str | None:
    return next((name for name, spec in specs.items() if spec.group == group), None)


def _told(specs: Specs) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in sorted(specs.items())) or "no further channel"


RELOAD_KINDS: Mapping[str, Callable[[Stage, Action], End]] = {"reload": _reload, "bad reload": _bad_reload}

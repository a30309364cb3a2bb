"""What the coordinator of a Kafka group does that offsets are mirrored to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inbound.testing.simulation.node_faults import End
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.stage import Stage


def _hang(stage: Stage, action: Action) -> End:
    """Requests, or (flag) half of them, are not answered, and executed late."""
    mirrors = stage.mirrors
    if mirrors is None:
        return None
    mirrors.hangs, mirrors.share = action.seconds, 2 if action.flag else 1

    def end() -> None:
        mirrors.hangs = 0.0

    return end


def _down(stage: Stage, action: Action) -> End:
    """No broker lets the mirrors in."""
    groups = stage.world.groups
    groups.is_up = False

    def end() -> None:
        groups.is_up = True

    return end


def _load(stage: Stage, action: Action) -> End:
    """The coordinator has just been elected."""
    groups = stage.world.groups
    groups.loading = True

    def end() -> None:
        groups.loading = False

    return end


def _live(stage: Stage, action: Action) -> End:
    """Somebody consumes as that group."""
    groups, name = stage.world.groups, stage.world.group
    groups.live.add(name)
    return lambda: groups.live.discard(name)


def _denied(stage: Stage, action: Action) -> End:
    """A topic may not be read."""
    groups, topic = stage.world.groups, stage.partition(action).topic
    groups.denied.add(topic)
    return lambda: groups.denied.discard(topic)


MIRROR_KINDS: Mapping[str, Callable[[Stage, Action], End]] = {
    "groups hang": _hang, "groups down": _down, "groups load": _load, "groups live": _live, "groups denied": _denied,
}  # fmt: skip

"""Subscribers of all tempers, and sinks that take nothing for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from inbound.testing.simulation.dispatching import REPLIES, SUBSCRIBER, Trouble
from inbound.testing.simulation.node_faults import End
from inbound.testing.simulation.plan import Action
from inbound.testing.simulation.stage import Stage


def _trouble(what: str, url: str, stage: Stage, action: Action) -> End:
    """For a while the receiver does so to some events, or (flag) to all."""
    receivers = stage.receivers
    if receivers is None:
        return None
    trouble = Trouble(what, url, 1 if action.flag else action.size + 1, action.seconds)
    receivers.troubles.append(trouble)
    return lambda: receivers.troubles.remove(trouble)


TEMPERS = ("refuses", "fails", "busy", "hangs", "late", "cuts", "dead")

DISPATCH_KINDS: Mapping[str, Callable[[Stage, Action], End]] = {
    **{f"subscriber {what}": partial(_trouble, what, SUBSCRIBER) for what in TEMPERS},
    **{f"replies {what}": partial(_trouble, what, REPLIES) for what in ("refuses", "fails", "cuts")},
}

"""What commands share that follow their configuration: SIGHUP, and what is told of several processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType

from inbound.reconfiguration import APPLIED, REFUSED, ROLLED_BACK, UNCHANGED, Outcome

#: What is told of several processes is the worst of it.
_WORST = (UNCHANGED, APPLIED, ROLLED_BACK, REFUSED)


def ask_on_hangup(ask: Callable[[], object]) -> None:
    """Have SIGHUP call `ask`, which has the configuration looked at. The main thread's.

    Not in the signal's handler, which may have stopped a thread that has a lock.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=ask, name="hangup", daemon=True).start()

    signal.signal(signal.SIGHUP, handle)


def together(own: Outcome, others: Iterable[tuple[int, Outcome]]) -> Outcome:
    """Return what is told of a parent and its children, by their numbers: the worst, every step once, each problem."""
    outcomes = [own, *(outcome for _, outcome in others)]
    worst = max((one.outcome for one in outcomes), key=_WORST.index)
    steps = list(dict.fromkeys(step for one in outcomes for step in one.steps))
    problems = list(dict.fromkeys(one.problem for one in outcomes if one.problem))
    return Outcome(worst, steps, "\n".join(problems) or None, own.digest)

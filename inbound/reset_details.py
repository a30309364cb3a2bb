"""What the status of a process tells of single resets of offsets: how far each is, with its six conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from inbound.controller.reset_offset import ResetCommand
from inbound.controller.reset_offset.targets import in_words

#: So many that have ended are told of, the last ones.
ENDED = 10


@dataclass(frozen=True, kw_only=True)
class ResetDetail:
    """One reset; times in seconds since 1970."""

    name: str
    ref: str  # what it is about, in the words of whoever asked
    topic: str | None  # None: to be found yet
    group: str | None
    what: str  # `to the earliest offset`
    by: str  # who asked
    state: str  # see `inbound.controller.reset_offset.states.State`
    finished: bool
    created: float
    ended: float | None
    #: `type`, `status`, `reason`, `message` and `time` (RFC 3339) of each condition, in their order.
    conditions: list[dict[str, str]] = field(default_factory=list)


def reset_details(commands: Iterable[ResetCommand]) -> list[ResetDetail]:
    """Return those that are under way, oldest first, then the last `ENDED` that have ended, newest first."""
    known = sorted(commands, key=lambda command: command.created)
    ended = sorted((c for c in known if c.finished), key=lambda command: command.ended or 0.0, reverse=True)
    return [_detail(command) for command in (*(c for c in known if not c.finished), *ended[:ENDED])]


def _detail(command: ResetCommand) -> ResetDetail:
    info = command.info
    return ResetDetail(
        name=command.name,
        ref=str(command.ref),
        topic=info.topic if info is not None else None,
        group=info.group if info is not None else None,
        what=in_words(command.spec),
        by=command.by,
        state=command.state.value,
        finished=command.finished,
        created=command.created,
        ended=command.ended,
        conditions=[asdict(condition) for condition in command.conditions],
    )

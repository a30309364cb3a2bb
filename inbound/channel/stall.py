"""What is known of a partition that may stand still: what its log holds that was not fetched, and what the detector found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Stall:
    """The first five are written by who reads (`inbound.channel.log_watch`), the others by the stall detector."""

    read_error: str | None = None  # what the brokers said of the last fetch; None: nothing wrong
    log_position: int | None = None  # as the client was asked last: where it reads on, and where what can be read ends
    log_end: int | None = None
    unread_since: float | None = None  # clock time since which records are known that the client had not fetched,
    unread_at: int = 0  # and the position then
    #: As the stall detector saw it last: see `inbound.explain`. Times in seconds since 1970.
    cause: str = "starting"
    cause_since: float | None = None
    since: float | None = None  # it counts as stalled since then; None: it does not

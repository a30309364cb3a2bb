"""The state of one claim: idle spells, totals, failures, progress of reading."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Quiet:
    """The idle spells and pauses that a processor was notified of."""

    idle_since: float | None = None  # clock time; None while there is something to read
    idle_told: bool = False  # on_idle was called in this idle spell
    paused_since: float | None = None  # clock time at which the processor was told of a pause; None: it reads


@dataclass(eq=False, slots=True)
class Totals:
    """One claim's totals, and the callback in progress."""

    records: int = 0
    batches: int = 0
    commits: int = 0
    last_batch_at: float | None = None  # wall time
    batch_since: float | None = None  # clock time at which on_next_batch was called; None between calls
    other_call: tuple[str, float] | None = None  # name and clock time of another callback; None between calls

    def in_call(self, name: str) -> bool:
        """Whether a callback other than on_next_batch is in progress."""
        return self.other_call is not None and self.other_call[0] == name


@dataclass(eq=False, slots=True)
class FailureState:
    """The processor's failures on one partition.

    The owner of the place writes it, the reader writes `last_error`, too.
    """

    attempts: int = 0  # failures in a row
    room_attempts: int = 0  # failures of `room` in a row: no record is to blame for these
    failing: tuple[int, int] | None = None  # offsets (first, next) of the batch that failed last
    last_error: str | None = None
    isolate_until: int = 0  # below this offset batches have one record each, to find the one that fails
    held: str | None = None  # why it is not read, for status; None while it is
    held_cause: str | None = None  # the same as a value of `inbound.observe.explain.facts.Cause`
    dead_letter_problem: str | None = None  # why the failed record is not in the dead-letter topic yet
    reverted_to: int | None = None  # the offset of the last revert
    reverts: int = 0  # to that offset, in a row

    def reverted(self, offset: int) -> None:
        """Note that reading goes back to `offset`."""
        self.reverts = self.reverts + 1 if offset == self.reverted_to else 1
        self.reverted_to = offset


@dataclass(eq=False, slots=True)
class Stall:
    """Progress of reading, and the stall reason.

    `inbound.channel.streams` writes the first five fields, the stall detector the others.
    """

    read_error: str | None = None  # the error of the last fetch; None: no error
    log_position: int | None = None  # where the client reads on, as last asked
    log_end: int | None = None  # the end of the readable log, as last asked
    unread_since: float | None = None  # clock time since which the client has known, and not fetched, records
    unread_at: int = 0  # the position then
    #: As the stall detector saw it last: see `inbound.observe.explain`. Times in seconds since 1970.
    cause: str = "starting"
    cause_since: float | None = None
    since: float | None = None  # stalled since then; None: not stalled

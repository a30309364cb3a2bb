"""What the failure policy keeps of a partition (`inbound.channel.failure_policy`): failures in a row, holds, reverts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class FailureState:
    """Written by who has the partition in its place, `last_error` also by who reads it."""

    attempts: int = 0  # failures in a row
    room_attempts: int = 0  # the same of `room`: it is no record that fails there
    failing: tuple[int, int] | None = None  # offsets (first, next) of what failed last
    last_error: str | None = None
    isolate_until: int = 0  # below this offset batches have one record each: we look for the one that fails
    held: str | None = None  # why it is not read, for status; None while it is
    held_cause: str | None = None  # the same as a value of `inbound.explain.cause.Cause`
    dead_letter_problem: str | None = None  # why the record that was given up is not with the dead letters yet
    reverted_to: int | None = None  # where the last revert went, and how often in a row one went there
    reverts: int = 0

    def reverted(self, offset: int) -> None:
        """Take note that reading goes back to `offset`."""
        self.reverts = self.reverts + 1 if offset == self.reverted_to else 1
        self.reverted_to = offset

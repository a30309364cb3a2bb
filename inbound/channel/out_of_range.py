"""Positions that cannot be read on from: retention, cut logs, broken batches.

A log is cut when a replica without its newest records becomes the leader (unclean election), or when brokers lose what
they had not written to disk yet. Records published then stand at offsets that the group has read already. See
`docs/decisions/0051-cut-logs.md`.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from inbound.channel.commit import Pending
from inbound.channel.failure_policy import FailurePolicy
from inbound.channel.parts import Parts
from inbound.channel.reader import Reader
from inbound.errors import OffsetOutOfRangeError, UnreadableBatchError
from inbound.kafka.base import ReadTo
from inbound.partition.partition import Partition
from inbound.partition.schedule import NEVER


class _Move(NamedTuple):
    """A new position, and whether it is committed before anything is read."""

    target: int
    commit: bool


class OutOfRange:
    """Moves partitions to a valid position, or holds them, by `on_truncation`.

    Called by the worker that has the partition.
    """

    def __init__(self, parts: Parts, reader: Reader, failures: FailurePolicy) -> None:
        self._parts = parts
        self._schedule = parts.schedule
        self._reader = reader
        self._failures = failures

    def face(self, partition: Partition, error: OffsetOutOfRangeError | UnreadableBatchError) -> None:
        """Handle `error`, and pass the partition on."""
        if isinstance(error, OffsetOutOfRangeError):
            self._move(partition, error)
        elif error.faced:  # the hold is over: it may be read with other settings
            partition.buffer.jump()
            self._reader.jump(partition)
            partition.problem = None
            self._schedule.await_records(partition, NEVER)
        else:
            error.faced = True
            partition.failure.held = error.what
            self._failures.hold(partition, "read-fails", error.offset)
            self._parts.meters.holds.add("unreadable")
            self._schedule.put_back(partition, NEVER)

    def _move(self, partition: Partition, error: OffsetOutOfRangeError) -> None:
        """Read on where `on_truncation` says, or hold the partition.

        A position that is moved over a cut is committed before the next batch. Else: 1. the commit stays behind the
        log's end; 2. the log grows over it; 3. the next owner reads on there, and never what was published before it.
        """
        move = self._after_cut(partition, error) if error.is_cut else self._after_retention(partition, error)
        if move is None:
            self._parts.meters.holds.add("truncation")
            self._schedule.put_back(partition, NEVER)  # `problem` stays: it is faced again when the hold ends
            return
        back = move.target < partition.position.delivered
        if back:
            self._parts.meters.reverts.add("truncation")
        if error.is_cut:
            read = partition.position.read
            # Records before the cut were written under that leader, or an earlier one: it still tells of a cut below.
            # Records published behind the cut were not.
            known = not move.commit or (error.cut is not None and move.target <= error.cut)
            partition.position.read = ReadTo(move.target, read.leader_epoch) if read is not None and known else None
        if error.is_cut and (move.commit or back):  # of the delivered records, only the committed ones count
            partition.position.take_deferred()
            self._schedule.void_handle(partition)
            partition.taken_back = True
        partition.position.given_start = None
        partition.position.delivered, partition.failure.isolate_until = move.target, 0
        partition.failure.attempts = 0
        partition.position.go_back(move.target)
        partition.buffer.jump()
        self._reader.jump(partition)
        # Not earlier: the reader would go on at the old position until then, and find the same problem again.
        partition.problem = None
        if not move.commit:
            self._schedule.await_records(partition, NEVER)
        else:
            mark = self._schedule.advance(partition, move.target)
            if mark is not None:
                self._parts.committer.submit(Pending(self._parts, partition, mark))
            self._schedule.settle(partition)

    # -- where to read on ----------------------------------------------------------------------------------------------

    def _after_retention(self, partition: Partition, error: OffsetOutOfRangeError) -> _Move:
        first, start = error.offset, error.start
        if error.cut is not None and error.cut < first:  # the records that stood there after the cut are deleted, too
            first = error.cut
            self._note_cut(partition, error, start)
        self._say(
            partition, error.offset,
            f"offsets {first} to {start - 1} are lost to retention: the log starts at {start}; reading on there. Raise the "
            "topic's retention, or add consumers",
        )  # fmt: skip
        self._note("retention", partition, first=first, next=start)
        return _Move(start, commit=partition.position.given_start == error.offset)

    def _after_cut(self, partition: Partition, error: OffsetOutOfRangeError) -> _Move | None:
        choice, position = self._parts.settings.now.on_truncation, partition.position
        committed, given = position.advanced, position.given_start
        if error.cut is not None and committed is not None and committed <= error.cut and given is None:
            target = position.delivered if position.delivered <= error.cut else committed
            self._note_cut(partition, error, target)
            self._say(
                partition, error.offset,
                f"the log was cut at {error.cut}, before the position {error.offset}; nothing that is committed is gone: reading "
                f"on at {target}", logging.WARNING,
            )  # fmt: skip
            return _Move(target, commit=False)
        told = self._told(partition, error)
        if choice == "hold":
            self._note_cut(partition, error, None)
            partition.failure.held = (
                f"{told}: the log was truncated. {self._way_out(partition, error)}"
                if given != error.offset
                else f"{told}: it is not of this log, or the log was truncated. Correct the offset that it keeps, or "
                "set on_truncation to earliest or latest, and restart"
            )
            self._failures.hold(partition, "out-of-range", error.offset)
            return None
        target = error.start if choice == "earliest" else error.end
        self._note_cut(partition, error, target)
        passed, first = "", error.offset if error.cut is None else error.cut
        if first < target and choice == "latest":
            passed = f"; offsets {first} to {target - 1} are passed over"
            self._note("skip", partition, from_=first, to=target, reason="truncation: on_truncation is latest")
        self._say(partition, error.offset, f"{told}; reading on at {target} (on_truncation: {choice}){passed}")
        return _Move(target, commit=True)

    def _way_out(self, partition: Partition, error: OffsetOutOfRangeError) -> str:
        """Return the advice that reads all that the log holds now."""
        known = error.cut is not None and error.cut > error.start
        to = f"--to-offset {error.cut}" if known else "--to-earliest"
        tp = partition.tp
        return (
            f"To read what stands there now: `inbound offsets reset --group {self._parts.settings.now.group} --topic {tp.topic}:"
            f"{tp.partition} {to} --execute`; or set on_truncation to earliest or latest. Neither needs a restart"
        )

    def _told(self, partition: Partition, error: OffsetOutOfRangeError) -> str:
        """Return the problem, as the beginning of a sentence."""
        offset, what = error.offset, "commit" if partition.position.advanced == error.offset else "position"
        if partition.position.given_start == offset:
            if offset > error.end:
                return f"on_claim gave {offset}, beyond the log's end {error.end}"
            what = "answer of on_claim,"
        elif offset > error.end:
            return f"the {what} {offset} is beyond the log's end {error.end}"
        where = "" if error.cut is None else f" at {error.cut}{' or before' if error.cut <= error.start else ''}"
        return (
            f"the log was cut{where}, before the {what} {offset}, and has grown to {error.end} since with other records"
        )

    # -- ledger and log ------------------------------------------------------------------------------------------------

    def _note_cut(self, partition: Partition, error: OffsetOutOfRangeError, target: int | None) -> None:
        """Note a cut in the ledger: earlier deliveries were of other records.

        If only the start from on_claim is beyond the log's end, the log need not have been cut.
        """
        wrong = (
            partition.position.given_start == error.offset
            and error.cut is None
            and (partition.position.advanced or 0) <= error.end
        )
        if not wrong:
            self._note(
                "truncated",
                partition,
                position=error.offset,
                to=target,
                cut=error.cut,
                start=error.start,
                end=error.end,
            )
        if target is not None and target < partition.position.delivered:
            self._note("revert", partition, from_=partition.position.delivered, to=target, reason="truncation")

    def _note(self, kind: str, partition: Partition, **facts: Any) -> None:
        self._parts.ledger_notes.note(kind, partition.tp, partition.fence.epoch, **facts)

    def _say(self, partition: Partition, offset: int, text: str, level: int = logging.ERROR) -> None:
        self._parts.journal.note(
            "out-of-range", text, partition.tp, offset=offset, epoch=partition.fence.epoch, level=level
        )

"""What a processor's answer means for the position and the commit. Pure, so that every case is a row of a test."""

from __future__ import annotations

from inspect import isawaitable
from typing import NamedTuple

from inbound.errors import BadResponseError
from inbound.processors.batch import BatchResponse, Verb
from inbound.topic_partition import TopicPartition


class Outcome(NamedTuple):
    """What to do about one answer."""

    position: int  # read on from here
    commit: int | None  # and write this offset first
    skipped: tuple[int, int] | None = None  # offsets that are gone past without having been handed out: [from, to)
    reverted_from: int | None = None  # the position was here before it went back
    wait: float = 0.0  # seconds until the next read
    max_bytes: int | None = None
    commit_within: float | None = None  # seconds after which `position` is to be committed at the latest


def decide(
    tp: TopicPartition,
    response: object,
    *,
    committed: int | None,
    first: int,
    position: int,
    callback: str = "on_next_batch",
) -> Outcome:
    """Return what `response` means for a partition whose batch began at `first` and ended before `position`.

    `committed` is the offset in ZooKeeper. With no batch (an answer of on_idle or on_stream_termination), `first` is
    the commit: everything handed out since then counts as the batch.

    Raises:
        BadResponseError: no BatchResponse, or an offset that may not be used; the message says which may.
    """
    if not isinstance(response, BatchResponse):
        awaited = f"; await it in `async def {callback}`" if isawaitable(response) else ""
        raise BadResponseError(
            f"{tp}: {callback} returned {response!r}{awaited}; return BatchResponse.advance(), .revert() or .next()"
        )
    floor = committed if committed is not None else first
    offset = response.offset
    if response.verb is Verb.ADVANCE:
        target = position if offset is None else offset
        if target < floor and offset is None:
            # What a revert went back over is read again; the commit is further on and stays.
            return Outcome(target, None, wait=response.wait, max_bytes=response.max_bytes)
        if target < floor:
            raise BadResponseError(f"{tp}: advance({target}) is below the commit {floor}; to read again use revert()")
        if target > position and not response.skip:
            raise BadResponseError(
                f"{tp}: advance({target}) is past the batch, which ends before {position}; use skip=True to skip records"
            )
        skipped = (position, target) if target > position else None
        commit = target if target != committed else None
        # An answer for a part of the batch shows in the ledger by its commit; one for none of it needs the note.
        back = position if commit is None and target < position else None
        return Outcome(target, commit, skipped, back, response.wait, response.max_bytes)
    if response.verb is Verb.REVERT:
        # Where reading had gone back below the commit, the batch is all that can be given back.
        target = min(floor, first) if offset is None else offset
        if target > position:
            raise BadResponseError(
                f"{tp}: revert({target}) is past the batch, which ends before {position}; use advance()"
            )
        back = position if target < position else None
        return Outcome(target, None, None, back, response.wait, response.max_bytes)
    target = position if offset is None else offset
    return Outcome(
        target,
        None,
        skipped=(position, target) if target > position else None,
        reverted_from=position if target < position else None,
        wait=response.wait,
        max_bytes=response.max_bytes,
        commit_within=response.commit_within,
    )


def retry_wait(attempts: int) -> float:
    """Return the seconds to wait after `attempts` failures in a row: 1, doubling to 60."""
    return float(min(60, 2 ** min(attempts - 1, 6)))

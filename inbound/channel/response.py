"""The outcome of a processor's answer: a position, and perhaps a commit."""

from __future__ import annotations

from inspect import isawaitable
from typing import NamedTuple

from inbound.errors import BadResponseError
from inbound.processors.batch import BatchResponse, Verb
from inbound.topic_partition import TopicPartition


class Decision(NamedTuple):
    """The consequences of one answer."""

    position: int  # read on from here
    commit: int | None  # and write this offset first
    skipped: tuple[int, int] | None = None  # offsets that are passed over without a delivery: [from, to)
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
) -> Decision:
    """Return the outcome of `response` to a batch.

    The batch began at `first` and ended before `position`; `committed` is the newest advance, whose commit may still be
    in flight. With no batch (an answer of on_idle or on_stream_termination), `first` is that advance: all records
    delivered since then count as the batch.

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
            # Records that a revert went back over are read again; the commit is further on and stays.
            return Decision(target, None, wait=response.wait, max_bytes=response.max_bytes)
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
        return Decision(target, commit, skipped, back, response.wait, response.max_bytes)
    if response.verb is Verb.REVERT:
        # Where reading had gone back below the commit, the batch is all that can be given back.
        target = min(floor, first) if offset is None else offset
        if target > position:
            raise BadResponseError(
                f"{tp}: revert({target}) is past the batch, which ends before {position}; use advance()"
            )
        back = position if target < position else None
        return Decision(target, None, None, back, response.wait, response.max_bytes)
    target = position if offset is None else offset
    return Decision(
        target,
        None,
        skipped=(position, target) if target > position else None,
        reverted_from=position if target < position else None,
        wait=response.wait,
        max_bytes=response.max_bytes,
        commit_within=response.commit_within,
    )

"""The reference for `columns.collapse_block`: one line after the other, with the table of `inbound.proof.spans` in mind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from inbound.ledger.jsonl import Entry
from inbound.proof.intervals import union
from inbound.proof.model import Damage, LedgerEvent, OffsetRange, PartitionKey, Span
from inbound.proof.spans import EVENTS, Piece, RunSource, degraded


@dataclass(slots=True)
class _Place:
    """What is known of a partition while its lines are read; outlives its spans."""

    key: PartitionKey
    span: Span | None = None
    handed_to: int | None = None  # where the last delivery ended
    commit: int | None = None  # and what had been answered for before it
    announced: int | None = None  # the last commit of a `done`
    outstanding: bool = False  # and it has not landed
    landed: int | None = None
    mzxid: int | None = None


class Collapser:
    """Reads one piece of one run line by line, in order. The reference for `columns.collapse_block`, which is fast."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._places: dict[tuple[str, int], _Place] = {}
        self._spans: list[Span] = []
        self._events: list[LedgerEvent] = []
        self._seen: list[OffsetRange] = []
        self._damage: list[Damage] = []
        self._header: Mapping[str, Any] | None = None
        self._ending: Mapping[str, Any] | None = None

    def add(self, entry: Entry) -> None:
        """Take in the next line. One whose number came before is left out."""
        if entry.kind == "header":
            self._header = {"seq": entry.seq, **entry.facts}
            return
        if entry.kind == "end":
            self._ending = {"seq": entry.seq, **entry.facts}
            return
        if not self._is_new(entry.seq):
            return
        if entry.topic is None or entry.partition is None:
            self._of_the_run(entry)
            return
        place = self._place(entry.topic, entry.partition)
        if entry.kind in EVENTS:
            self._event(place, entry, entry.kind, entry.facts)
        elif entry.kind == "begun":
            self._begun(place, entry)
        elif entry.kind == "done" and entry.commit is not None:
            self._done(place, entry, entry.commit)
        elif entry.kind == "settled" and entry.commit is not None:
            if entry.outcome == "landed":
                self._landed(place, entry, entry.commit)
            else:
                self._event(place, entry, "commit", {"commit": entry.commit, "outcome": entry.outcome})

    def piece(self) -> Piece:
        """Return what was read."""
        spans = [*self._spans, *(place.span for place in self._places.values() if place.span is not None)]
        return Piece(
            self._source, tuple(sorted(spans, key=lambda s: s.seq)), tuple(self._events), tuple(union(self._seen)),
            tuple(self._damage), self._header, self._ending,
        )  # fmt: skip

    # -- lines -------------------------------------------------------------------------------------------------------

    def _begun(self, place: _Place, entry: Entry) -> None:
        assert entry.first is not None
        assert entry.next is not None
        span = place.span
        before = max(place.announced or 0, place.commit or 0)
        straight = entry.first == place.handed_to and (entry.commit is None or entry.commit >= before)
        if span is None or span.epoch != entry.epoch or not straight or not span.batches:
            self._close(place)
            new = self._new(place, entry, entry.first, entry.next, batches=1, records=entry.records or 0)
            place.span = replace(new, first_commit=entry.commit, commit=entry.commit)
        else:
            place.span = replace(
                span, next=entry.next, batches=span.batches + 1, records=span.records + (entry.records or 0),
                last_seq=entry.seq, last_wall=entry.wall, last_first=entry.first, commit=entry.commit,
            )  # fmt: skip
        place.handed_to, place.commit = entry.next, entry.commit

    def _done(self, place: _Place, entry: Entry, commit: int) -> None:
        span = place.span
        straight = place.announced is None or commit > place.announced
        if span is None or span.epoch != entry.epoch or not straight or place.outstanding or _beyond(place, commit):
            self._close(place)
            place.span = self._new(place, entry, commit, commit, answered=commit)
        else:
            place.span = replace(span, answered=commit, last_seq=entry.seq, last_wall=entry.wall)
        if entry.first is not None and entry.first < commit:  # else it is no batch's own, but was left for later
            place.span = replace(place.span, answer_of=max(entry.first, place.span.answer_of or 0))
        place.announced, place.outstanding = commit, True

    def _landed(self, place: _Place, entry: Entry, commit: int) -> None:
        span = place.span
        straight = (
            (place.landed is None or commit > place.landed)
            and (place.mzxid is None or entry.mzxid is None or entry.mzxid > place.mzxid)
            and place.outstanding
            and commit == place.announced
        )
        if span is None or span.epoch != entry.epoch or not straight or _beyond(place, commit):
            self._close(place)
            place.span = self._new(place, entry, commit, commit, landed=commit, mzxid=entry.mzxid)
        else:
            place.span = replace(
                span, landed=commit, mzxid=span.mzxid if span.mzxid is not None else entry.mzxid,
                last_mzxid=entry.mzxid if entry.mzxid is not None else span.last_mzxid,
                last_seq=entry.seq, last_wall=entry.wall,
            )  # fmt: skip
        if commit == place.announced:
            place.outstanding = False
        place.landed = commit
        if entry.mzxid is not None:
            place.mzxid = entry.mzxid

    def _event(self, place: _Place, entry: Entry, kind: str, facts: Mapping[str, Any]) -> None:
        self._close(place)
        source = self._source
        self._events.append(
            LedgerEvent(place.key, source.consumer, source.run, _epoch(entry), entry.seq, kind, entry.wall, facts)
        )

    def _of_the_run(self, entry: Entry) -> None:
        if entry.kind == "degraded":
            self._damage += degraded(self._source, entry.seq, entry.facts)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _is_new(self, seq: int) -> bool:
        if self._seen and self._seen[-1][1] == seq:
            self._seen[-1] = (self._seen[-1][0], seq + 1)
            return True
        if any(first <= seq < end for first, end in self._seen):
            return False
        self._seen.append((seq, seq + 1))
        return True

    def _place(self, topic: str, partition: int) -> _Place:
        place = self._places.get((topic, partition))
        if place is None:
            place = self._places[topic, partition] = _Place(PartitionKey(self._source.group, topic, partition))
        return place

    def _new(
        self, place: _Place, entry: Entry, first: int, end: int, *, batches: int = 0, records: int = 0,
        answered: int | None = None, landed: int | None = None, mzxid: int | None = None,
    ) -> Span:  # fmt: skip
        return Span(
            place.key, self._source.consumer, self._source.run, _epoch(entry), entry.seq, entry.seq, first, end,
            batches, records, answered, landed, mzxid, mzxid, entry.wall, entry.wall, first if batches else None,
        )  # fmt: skip

    def _close(self, place: _Place) -> None:
        if place.span is not None:
            self._spans.append(place.span)
            place.span = None


def _epoch(entry: Entry) -> int:
    return entry.epoch if entry.epoch is not None else -1


def _beyond(place: _Place, commit: int) -> bool:
    return place.handed_to is not None and commit > place.handed_to

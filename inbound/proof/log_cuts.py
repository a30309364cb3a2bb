"""Where a log was cut, deliveries and commits behind do not count.

A claim notes a cut (`truncated`) before it goes on, or holds the partition. What was noted before is judged as if it
had ended at the cut, as other records stand behind it now: a delivery of [0, 9) under a cut at 4 counts as one of [0,
4), a commit of 9 as one of 4. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import MappingProxyType

from inbound.proof.claims import JudgedClaim
from inbound.proof.evidence import Missing
from inbound.proof.intervals import difference, union
from inbound.proof.model import LedgerEvent, Span, ZooKeeperState

#: The facts of events that are offsets.
_OFFSETS = frozenset({"position", "from", "to", "first", "next", "old", "new", "since", "commit"})


def without_cut_off(
    claims: Sequence[JudgedClaim], committed: int | None
) -> tuple[list[JudgedClaim], list[Missing], int | None]:
    """Return the claims of one topic as they count.

    Also returned: what is not known of cuts, and the lowest cut, certain or not. `committed` is the offset in
    ZooKeeper; None: not known.
    """
    counted: list[JudgedClaim] = []
    missing: list[Missing] = []
    cuts: list[int] = []
    for number, original in enumerate(claims):
        claim = replace(original, items=[], committed=_last_commit(original))
        following = claims[number + 1].position if number + 1 < len(claims) else committed
        announced: int | None = None  # and not landed yet, as far as the lines say
        in_flight: tuple[int, int] | None = None  # that, when the last cut was noted, and the cut
        for at, item in enumerate(original.items):
            later = original.items[at + 1 :]
            end = None
            if isinstance(item, Span):
                if in_flight is not None and item.landed == in_flight[0]:
                    item = replace(item, landed=_least(item.landed, in_flight[1]), mzxid=None, last_mzxid=None)
                announced = item.answered if item.answered is not None else announced
                announced = None if item.landed is not None and item.landed == announced else announced
            if isinstance(item, LedgerEvent) and item.kind == "truncated":
                end = _cut(item, later, following, missing)
            elif isinstance(item, LedgerEvent) and item.kind == "revert" and "reason" not in item.facts:
                # Of releases that noted no cuts.
                end = _unsaid_cut(item, claim, later, claims[number + 1 :], missing)
            if end is not None:
                counted = [ended_at(before, end) for before in counted]
                claim = ended_at(claim, end)
                cuts.append(end)
                in_flight = (announced, end) if announced is not None else None
            claim.items.append(_event(item, end) if end is not None and isinstance(item, LedgerEvent) else item)
        counted.append(claim)
    return counted, missing, min([*cuts, *(lack.low or 0 for lack in missing)], default=None)


def _last_commit(claim: JudgedClaim) -> int | None:
    return next((span.landed for span in reversed(claim.spans) if span.landed is not None), claim.position)


def as_told(claims: Iterable[JudgedClaim], coordination: ZooKeeperState) -> ZooKeeperState:
    """Return ZooKeeper's state; a commit restored by hand gets its old mzxid.

    The node was emptied or deleted, and holds the same commit again: the claims' notes about that commit count.
    """
    at: int | None = None
    mzxid: int | None = None
    for claim in claims:
        if claim.known and claim.position != at:
            at, mzxid = claim.position, None
        for span in claim.spans:
            if span.landed is not None:
                at, mzxid = span.landed, span.last_mzxid
    same = mzxid is not None and coordination.known and coordination.committed == at
    return replace(coordination, mzxid=mzxid) if same else coordination


def noticed_at(claims: Iterable[JudgedClaim], coordination: ZooKeeperState) -> int | None:
    """Return the lowest cut below the present commit that claims have noted.

    None: none has. A commit that lands while the partition is held is of earlier deliveries. The owner can die before
    it notes that its last commit landed: then the next claim says what is committed, and no line has that commit's
    mzxid.
    """
    noted: int | None = None
    committed: int | None = None
    landed: int | None = None
    held = False
    for claim in claims:
        if claim.known and claim.position != committed:
            noted, committed, landed = noted if held else None, claim.position, None
        for item in claim.items:
            if isinstance(item, LedgerEvent):
                cut = item.facts.get("cut") if item.kind == "truncated" else None
                if cut is not None:
                    noted = int(cut) if noted is None else min(noted, int(cut))
                    held = item.facts.get("to") is None
                continue
            held &= not item.batches
            if item.last_mzxid is not None:
                noted, committed, landed = noted if held else None, item.landed, item.last_mzxid
    same = committed == coordination.committed if landed is None else landed == coordination.mzxid
    below = noted is not None and (committed is None or noted < committed)  # else it cut nothing committed
    return noted if same and below else None


def _cut(event: LedgerEvent, later: Sequence[Span | LedgerEvent], following: int | None, missing: list[Missing]) -> int:
    """Return up to which offset earlier notes still count."""
    facts = event.facts
    position, to, cut, start, end = (facts.get(name) for name in ("position", "to", "cut", "start", "end"))
    if cut is not None:
        if start and cut <= start:
            missing.append(
                Missing(
                    f"the log was cut at {start}, where it begins now, or before: what was published between the cut and {start}, "
                    "if anything, was deleted before anybody could read it", 0, int(start),
                )
            )  # fmt: skip
        return int(cut)
    if to is not None and to == start and _landed(to, later, following):
        return int(to)  # all that the log held then is redelivered
    known = min(int(offset) for offset in (position, end) if offset is not None)
    missing.append(
        Missing(
            f"the log was cut below offset {position}, and the brokers could not tell where: what was delivered before that may "
            "be other records than the log holds now; read them again (`inbound offsets reset`) if you need to be sure",
            int(start or 0), known,
        )
    )  # fmt: skip
    return known


def _landed(to: int, later: Sequence[Span | LedgerEvent], following: int | None) -> bool:
    """Return whether the commit that moved the position over the cut landed."""
    spans = [item for item in later if isinstance(item, Span)]
    # Before this announcement, an earlier commit may have been in flight.
    announced = next((at for at, span in enumerate(spans) if span.answered is not None), len(spans))
    if any(span.landed is not None for span in spans[announced:]):
        return True
    return any(span.answered == to for span in spans) and following == to


def _unsaid_cut(
    event: LedgerEvent,
    claim: JudgedClaim,
    later: Sequence[Span | LedgerEvent],
    after: Sequence[JudgedClaim],
    missing: list[Missing],
) -> int | None:
    """Return the same for a revert from the commit, without a batch.

    It is a cut if lower commits follow; if none do, a callback without a batch may have asked for it.
    """
    first, to = int(event.facts["from"]), int(event.facts["to"])
    spans = [item for item in claim.items if isinstance(item, Span)]
    landed = _last_commit(claim)
    given = next(
        (i.facts.get("new") for i in reversed(claim.items) if isinstance(i, LedgerEvent) and i.kind == "reset"), None
    )
    handed_to = next((span.next for span in reversed(spans) if span.batches), first)
    if to >= first or first not in (landed, given) or handed_to > first:
        return None
    if any(isinstance(item, Span) and item.landed is not None and item.landed < first for item in later):
        text = f"the log was cut below offset {first}, at most at {to}, and the ledger does not say where"
        if to:
            missing.append(
                Missing(f"{text}: what was delivered before may be other records than the log holds now", 0, to)
            )
        return to
    followed = [*later, *(item for claim_after in after for item in claim_after.items)]
    again = [(item.first, item.next) for item in followed if isinstance(item, Span) and item.batches]
    for low, high in difference([(to, first)], union(again))[:1]:
        missing.append(
            Missing(
                f"reading went back from the commit {first} to {to}, and {low} was not redelivered: a callback asked for "
                "it, or the log was cut; an earlier release noted it, which did not say", low, high,
            )
        )  # fmt: skip
    return None


def ended_at(claim: JudgedClaim, end: int) -> JudgedClaim:
    """Return a claim as it counts after a cut at `end`."""
    items = [_span(item, end) if isinstance(item, Span) else _event(item, end) for item in claim.items]
    return replace(
        claim,
        position=_least(claim.position, end),
        items=items,
        before=[_event(event, end) for event in claim.before],
    )


def _span(span: Span, end: int) -> Span:
    if max(span.next, span.answered or 0, span.landed or 0) <= end:
        return span
    gone = span.first >= end  # nothing of it counts
    numbered = span.landed is None or span.landed <= end  # else ZooKeeper's commit is another than the one that counts
    return replace(
        span, first=min(span.first, end), next=min(span.next, end), answered=_least(span.answered, end),
        landed=_least(span.landed, end), last_first=_least(span.last_first, end), answer_of=_least(span.answer_of, end),
        first_commit=_least(span.first_commit, end), commit=_least(span.commit, end),
        batches=0 if gone else span.batches, records=0 if gone else span.records,
        mzxid=span.mzxid if numbered else None, last_mzxid=span.last_mzxid if numbered else None,
    )  # fmt: skip


def _event(event: LedgerEvent, end: int) -> LedgerEvent:
    if event.kind == "degraded":
        return event  # its facts are times
    facts = {
        name: min(value, end) if name in _OFFSETS and isinstance(value, int) else value
        for name, value in event.facts.items()
    }
    return replace(event, facts=MappingProxyType(facts))


def _least(offset: int | None, end: int) -> int | None:
    return None if offset is None else min(offset, end)

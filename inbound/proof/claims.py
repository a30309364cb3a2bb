"""Cuts a partition's spans and events into claims.

A line whose seal is right may still say what no release writes; such an event counts as missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from inbound.proof.model import ClaimBar, Damage, LedgerEvent, LedgerRun, Span, ZooKeeperState
from inbound.topic_partition import MOST_OFFSET

#: Facts that are offsets, by kind: required ones, and ones that may be null or missing.
_MUST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "revert": ("from", "to"),
        "skip": ("from", "to"),
        "retention": ("first", "next"),
        "withheld": ("first", "next"),
        "truncated": ("position",),
    }
)
_MAY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "claimed": ("position", "window"),
        "reset": ("old", "new", "since"),
        "withheld": ("records",),
        "truncated": ("to", "cut", "start", "end"),
    }
)
_TEXTS = ("reason", "topic_id", "former", "on_failure")
#: The last second of year 9999.
_LATEST = 253_402_300_799


def sound(events: Iterable[LedgerEvent]) -> tuple[list[LedgerEvent], list[Damage]]:
    """Return the usable events, and each other event as a missing line."""
    kept, damage = [], []
    for event in events:
        if _usable(event):
            kept.append(event)
            continue
        what = (
            f"line number {event.seq} of run {event.run} ({event.kind} of {event.key.topic}/{event.key.partition}) says what no "
            f"release writes: {str(dict(event.facts))[:200]}"
        )
        damage.append(Damage(f"run {event.run}", what, event.key.group, event.run, event.seq - 1))
    return kept, damage


def _usable(event: LedgerEvent) -> bool:
    facts, kind = event.facts, event.kind
    if kind == "degraded":
        return all(_is_number(facts.get(name), _LATEST) for name in ("from", "to") if facts.get(name) is not None)
    may = (facts.get(name) for name in _MAY.get(kind, ()))
    offsets = [*(facts.get(name) for name in _MUST.get(kind, ())), *(value for value in may if value is not None)]
    return all(isinstance(offset, int) and _is_number(offset, MOST_OFFSET) for offset in offsets) and all(
        facts.get(name) is None or isinstance(facts[name], str) for name in _TEXTS
    )


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


Ending = Literal["released", "lost", "fenced", "died", "holds"]

#: The reason of a reset for a recreated topic, as `inbound.group.claims` notes it.
RECREATED = "topic created anew"
#: Why a claim begins elsewhere than where the claim before it ended (noted before `claimed`): a recreated topic, or a
#: command that moved the group's offset.
MOVED_BEFORE = frozenset({RECREATED, "offsets reset"})


@dataclass(eq=False)
class JudgedClaim:
    """One run's claim of the partition, from `claimed` to its end."""

    consumer: str
    run: str
    epoch: int
    last_epoch: int  # commits can move it on
    known: bool  # it has its `claimed` line
    position: int | None = None  # the group's offset, as read when it was claimed
    topic_id: str | None = None  # which topic of that name it was; None: earlier releases, and brokers without ids
    items: list[Span | LedgerEvent] = field(default_factory=list)  # in the order of the run
    before: list[LedgerEvent] = field(default_factory=list)  # noted since the last one ended, before its `claimed`
    ending: Ending = "died"
    blind: list[Damage] = field(default_factory=list)  # its missing lines
    ended_at: int | None = None  # the line that says so
    #: It went on without its ledger (`on_failure: degrade`) and no line says how it ended: its last lines may be missing.
    unsure: bool = False
    #: The last commit that it knows to have landed, even if the log was cut below it since; None: it knows none.
    committed: int | None = None
    #: The highest answered commit, landed or in flight, when its last batch was delivered; None: its lines do not say.
    advanced: int | None = None

    @property
    def seq(self) -> int:
        return self.items[0].seq

    @property
    def spans(self) -> list[Span]:
        return [item for item in self.items if isinstance(item, Span)]

    @property
    def window(self) -> int | None:
        """Return the claim's `max_uncommitted_records`; None: its lines do not say."""
        claimed = (item.facts for item in self.items if isinstance(item, LedgerEvent) and item.kind == "claimed")
        return next(claimed, {}).get("window")

    @property
    def first_mzxid(self) -> int | None:
        """Return the number (mzxid) of the first commit that landed."""
        return min((span.mzxid for span in self.spans if span.mzxid is not None), default=None)

    @property
    def degrades(self) -> bool:
        """Return whether the claim goes on if its ledger cannot be written."""
        return any(isinstance(item, LedgerEvent) and item.facts.get("on_failure") == "degrade" for item in self.items)

    @property
    def has_gaps(self) -> bool:
        """Return whether lines of the claim are known to be missing."""
        events = [item for item in (*self.before, *self.items) if isinstance(item, LedgerEvent)]
        return bool(self.blind) or any(event.kind == "degraded" for event in events)

    @property
    def recreated(self) -> bool:
        """Return whether the claim says that it begins a recreated topic."""
        return any(map(_says_recreated, self.before))

    def goes_on(self) -> JudgedClaim:
        """Return the claim without that note, which an earlier claim has made."""
        return replace(self, before=[event for event in self.before if not _says_recreated(event)])

    def bar(self) -> ClaimBar:
        spans = self.spans
        landed = [span.landed for span in spans if span.landed is not None]
        walls = [
            wall for item in self.items for wall in (item.wall, item.last_wall if isinstance(item, Span) else item.wall)
        ]
        return ClaimBar(
            self.consumer, self.epoch, min(walls), max(walls), self.position,
            max((span.next for span in spans if span.batches), default=self.position or 0),
            landed[-1] if landed else None, sum(span.batches for span in spans), sum(span.records for span in spans),
            self.ending,
        )  # fmt: skip


def claims_of(
    runs: Iterable[LedgerRun],
    spans: Iterable[Span],
    events: Iterable[LedgerEvent],
    damage: Sequence[Damage],
    coordination: ZooKeeperState | None,
) -> list[JudgedClaim]:
    """Return the claims of one partition, ascending by epoch."""
    by_run: dict[str, list[Span | LedgerEvent]] = defaultdict(list)
    everything: list[Span | LedgerEvent] = [*spans, *events]
    for item in everything:
        by_run[item.run].append(item)
    told = {run.run: run for run in runs}
    claims: list[JudgedClaim] = []
    for run, items in by_run.items():
        of_run = _split(_delivered(sorted(items, key=lambda item: item.seq)))
        _mark_damage(of_run, [item for item in damage if item.run == run and not item.harmless])
        claims += of_run
    claims.sort(key=lambda claim: (claim.epoch, claim.last_epoch, claim.items[0].wall))
    later: set[str] = set()  # runs that have a later claim
    for claim in reversed(claims):
        claim.ending = _ending(claim, told, later, coordination)
        run_goes_on = claim.run in later or (claim.run in told and told[claim.run].ended)
        claim.unsure = claim.degrades and claim.ended_at is None and not run_goes_on
        later.add(claim.run)
    return claims


def untold(coordination: ZooKeeperState | None, claims: Sequence[JudgedClaim]) -> list[JudgedClaim]:
    """Return the last reset as a claim if no claim followed it."""
    if coordination is None or coordination.moved is None or not claims:
        return []
    moved, epoch, last = coordination.moved, coordination.epoch or 0, claims[-1].items[-1]
    if not coordination.known or coordination.committed != moved.new or epoch <= claims[-1].last_epoch:
        return []
    facts = {"old": moved.old, "since": moved.since, "new": moved.new, "command": moved.command}
    reset = LedgerEvent(last.key, "", "", epoch, 0, "reset", last.wall, MappingProxyType(facts))
    topic_id = coordination.topic_id
    return [
        JudgedClaim(
            "", "", epoch, epoch, True, moved.new, topic_id, items=[replace(reset, kind="claimed")], before=[reset]
        )
    ]


def _delivered(items: Iterable[Span | LedgerEvent]) -> list[Span | LedgerEvent]:
    """Leave out deliveries that were begun, then withheld (session in doubt)."""
    result: list[Span | LedgerEvent] = []
    for item in items:
        if isinstance(item, Span) or item.kind != "withheld":
            result.append(item)
            continue
        at = _last_delivery(result)
        last, facts = result[at] if result else None, item.facts
        if not isinstance(last, Span) or (last.last_first, last.next) != (facts.get("first"), facts.get("next")):
            continue  # its `begun` is missing
        if last.batches > 1 or not (last.answered is None and last.landed is None and last.commit is None):
            records = last.records - int(facts.get("records") or 0)
            rest = replace(last, next=int(facts["first"]), batches=last.batches - 1, records=records, last_first=None)
            result[at] = rest
        else:
            result.pop(at)
    return result


def _last_delivery(items: Sequence[Span | LedgerEvent]) -> int:
    """Return the last claim's last delivery; an in-flight commit's lines may follow."""
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if _is_delivery(item) or (isinstance(item, LedgerEvent) and item.kind == "claimed"):
            return at
    return 0


def _split(items: Sequence[Span | LedgerEvent]) -> list[JudgedClaim]:
    """Cut the items of one run into claims."""
    claims: list[JudgedClaim] = []
    before: list[LedgerEvent] = []
    for item in items:
        moved = isinstance(item, LedgerEvent) and item.kind == "reset" and item.facts.get("reason") in MOVED_BEFORE
        if isinstance(item, LedgerEvent) and (moved or (item.kind == "degraded" and _is_over(claims))):
            before.append(item)
            continue
        claimed = isinstance(item, LedgerEvent) and item.kind == "claimed"
        if claimed or (_is_delivery(item) and _is_over(claims)) or not claims or before:
            facts = item.facts if isinstance(item, LedgerEvent) and claimed else {}
            position, topic_id = facts.get("position"), facts.get("topic_id")
            claims.append(
                JudgedClaim(item.consumer, item.run, item.epoch, item.epoch, claimed, position, topic_id, before=before)
            )
            before = []
        claim = claims[-1]
        if item.epoch < claim.epoch:
            # Late: an abandoned callback returned, or its commit was answered, after the run had claimed again.
            claim = next((one for one in reversed(claims) if one.epoch <= item.epoch), claim)
        claim.items.append(item)
        claim.last_epoch = max(claim.last_epoch, item.epoch)
        if isinstance(item, LedgerEvent) and item.kind in ("released", "lost"):
            claim.ended_at = item.seq
    return claims


def _says_recreated(event: LedgerEvent) -> bool:
    return event.kind == "reset" and event.facts.get("reason") == RECREATED


def _is_over(claims: Sequence[JudgedClaim]) -> bool:
    return not claims or claims[-1].ended_at is not None


def _is_delivery(item: Span | LedgerEvent) -> bool:
    return isinstance(item, Span) and item.batches > 0


def _mark_damage(claims: Sequence[JudgedClaim], damage: Sequence[Damage]) -> None:
    """Add missing lines to the claim that they interrupt, or its neighbours."""
    for item in damage:
        seq = item.seq if item.seq is not None else 0
        held = next((claim for claim in reversed(claims) if claim.seq <= seq), None)
        if held is not None and (held.ended_at is None or held.ended_at > seq):
            held.blind.append(item)
        following = next((claim for claim in claims if claim.seq > seq), None)
        if following is not None and not following.known:
            following.blind.append(item)


def _ending(
    claim: JudgedClaim, runs: Mapping[str, LedgerRun], later: set[str], coordination: ZooKeeperState | None
) -> Ending:
    events = [item for item in claim.items if isinstance(item, LedgerEvent)]
    kinds = {event.kind for event in events}
    if any(event.kind == "commit" and event.facts.get("outcome") == "fenced" for event in events):
        return "fenced"
    if "lost" in kinds:
        return "lost"
    if "released" in kinds:
        return "released"
    run = runs.get(claim.run)
    if later:
        return "lost" if claim.run in later else "released" if run is not None and run.ended else "died"
    if coordination is not None:
        return (
            "holds" if coordination.owner == claim.consumer else "released" if run is not None and run.ended else "died"
        )
    return "released" if run is not None and run.ended else "holds"

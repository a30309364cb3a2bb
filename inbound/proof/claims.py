"""From the spans and events of a partition to its claims, in the order of their epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from inbound.proof.model import ClaimBar, Coordination, Damage, Event, Run, Span

Ending = Literal["released", "lost", "fenced", "died", "holds"]

#: Why a topic's offsets begin anew: as `inbound.holdings` notes it.
CREATED_ANEW = "topic created anew"
#: Why a claim begins somewhere else than where the one before it ended, as it notes before `claimed`: that, or a command
#: that has moved the group's offset.
MOVED_BEFORE = frozenset({CREATED_ANEW, "offsets reset"})


@dataclass(eq=False)
class Claim:
    """One claim of the partition by one run: from `claimed` to what ended it."""

    consumer: str
    run: str
    epoch: int
    last_epoch: int  # commits can move it on
    known: bool  # it has its `claimed` line
    position: int | None = None  # the group's offset, as read when it was claimed
    topic_id: str | None = None  # which topic of that name it was; None: earlier releases, and brokers without ids
    items: list[Span | Event] = field(default_factory=list)  # in the order of the run
    before: list[Event] = field(default_factory=list)  # noted since the last one ended, before its `claimed`
    ending: Ending = "died"
    blind: list[Damage] = field(default_factory=list)  # what of it is missing
    ended_at: int | None = None  # the line that says so
    #: It went on where its ledger could not be written (`on_failure: degrade`), and ended without a word: something of its
    #: end may be missing, and no line says so.
    unsure: bool = False
    #: The last commit that it knows to have landed, also if the log was cut below it since; None: it knows none.
    committed: int | None = None
    #: What it had been answered for when its last batch was handed out, as it was gone through: landed or in flight. None:
    #: its lines do not say.
    advanced: int | None = None

    @property
    def seq(self) -> int:
        return self.items[0].seq

    @property
    def spans(self) -> list[Span]:
        return [item for item in self.items if isinstance(item, Span)]

    @property
    def window(self) -> int | None:
        """Return how many records it may have answered for without their commit having landed; None: it does not say."""
        facts = next((i.facts for i in self.items if isinstance(i, Event) and i.kind == "claimed"), {})
        return facts.get("window")

    @property
    def first_mzxid(self) -> int | None:
        """Return when the first of its commits landed."""
        return min((span.mzxid for span in self.spans if span.mzxid is not None), default=None)

    @property
    def degrades(self) -> bool:
        """Whether it goes on where its ledger cannot be written."""
        return any(isinstance(item, Event) and item.facts.get("on_failure") == "degrade" for item in self.items)

    @property
    def has_gaps(self) -> bool:
        """Whether something of it is known to be missing."""
        events = [item for item in (*self.before, *self.items) if isinstance(item, Event)]
        return bool(self.blind) or any(event.kind == "degraded" for event in events)

    @property
    def created_anew(self) -> bool:
        """Whether it says that it begins a topic that was deleted and created anew."""
        return any(map(_says_created_anew, self.before))

    def goes_on(self) -> Claim:
        """Return it without that, where a claim before it has said so."""
        return replace(self, before=[event for event in self.before if not _says_created_anew(event)])

    def bar(self) -> ClaimBar:
        """Return it for the timeline."""
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
    runs: Iterable[Run],
    spans: Iterable[Span],
    events: Iterable[Event],
    damage: Sequence[Damage],
    coordination: Coordination | None,
) -> list[Claim]:
    """Return the claims of one partition, ascending by epoch."""
    by_run: dict[str, list[Span | Event]] = defaultdict(list)
    everything: list[Span | Event] = [*spans, *events]
    for item in everything:
        by_run[item.run].append(item)
    told = {run.run: run for run in runs}
    claims: list[Claim] = []
    for run, items in by_run.items():
        of_run = _split(_handed_out(sorted(items, key=lambda item: item.seq)))
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


def untold(coordination: Coordination | None, claims: Sequence[Claim]) -> list[Claim]:
    """Return a reset that no claim has come after as the claim that would note it."""
    if coordination is None or coordination.moved is None or not claims:
        return []
    moved, epoch, last = coordination.moved, coordination.epoch or 0, claims[-1].items[-1]
    if not coordination.known or coordination.committed != moved.new or epoch <= claims[-1].last_epoch:
        return []
    facts = {"old": moved.old, "since": moved.since, "new": moved.new, "command": moved.command}
    reset = Event(last.key, "", "", epoch, 0, "reset", last.wall, MappingProxyType(facts))
    topic_id = coordination.topic_id
    return [
        Claim("", "", epoch, epoch, True, moved.new, topic_id, items=[replace(reset, kind="claimed")], before=[reset])
    ]


def _handed_out(items: Iterable[Span | Event]) -> list[Span | Event]:
    """Leave out hand-outs that did not come about: begun, and then the session was in doubt (`withheld`)."""
    result: list[Span | Event] = []
    for item in items:
        if isinstance(item, Span) or item.kind != "withheld":
            result.append(item)
            continue
        at = _last_hand_out(result)
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


def _last_hand_out(items: Sequence[Span | Event]) -> int:
    """Return where the last hand-out of the last claim stands: lines of a commit that was in flight may stand behind it."""
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if _is_hand_out(item) or (isinstance(item, Event) and item.kind == "claimed"):
            return at
    return 0


def _split(items: Sequence[Span | Event]) -> list[Claim]:
    """Cut the items of one run into claims."""
    claims: list[Claim] = []
    before: list[Event] = []
    for item in items:
        if isinstance(item, Event) and (_moves_before(item) or (item.kind == "degraded" and _is_over(claims))):
            before.append(item)
            continue
        claimed = isinstance(item, Event) and item.kind == "claimed"
        if claimed or (_is_hand_out(item) and _is_over(claims)) or not claims or before:
            facts = item.facts if isinstance(item, Event) and claimed else {}
            position, topic_id = facts.get("position"), facts.get("topic_id")
            claims.append(
                Claim(item.consumer, item.run, item.epoch, item.epoch, claimed, position, topic_id, before=before)
            )
            before = []
        claim = claims[-1]
        if item.epoch < claim.epoch:
            # Late: a callback that was abandoned came back, or its commit was answered, after the run had claimed again.
            claim = next((one for one in reversed(claims) if one.epoch <= item.epoch), claim)
        claim.items.append(item)
        claim.last_epoch = max(claim.last_epoch, item.epoch)
        if isinstance(item, Event) and item.kind in ("released", "lost"):
            claim.ended_at = item.seq
    return claims


def _moves_before(event: Event) -> bool:
    return event.kind == "reset" and event.facts.get("reason") in MOVED_BEFORE


def _says_created_anew(event: Event) -> bool:
    return event.kind == "reset" and event.facts.get("reason") == CREATED_ANEW


def _is_over(claims: Sequence[Claim]) -> bool:
    return not claims or claims[-1].ended_at is not None


def _is_hand_out(item: Span | Event) -> bool:
    return isinstance(item, Span) and item.batches > 0


def _mark_damage(claims: Sequence[Claim], damage: Sequence[Damage]) -> None:
    """Say of each claim of a run which missing lines concern it: those of its own midst, or before or behind it."""
    for item in damage:
        seq = item.seq if item.seq is not None else 0
        held = next((claim for claim in reversed(claims) if claim.seq <= seq), None)
        if held is not None and (held.ended_at is None or held.ended_at > seq):
            held.blind.append(item)
        following = next((claim for claim in claims if claim.seq > seq), None)
        if following is not None and not following.known:
            following.blind.append(item)


def _ending(claim: Claim, runs: Mapping[str, Run], later: set[str], coordination: Coordination | None) -> Ending:
    events = [item for item in claim.items if isinstance(item, Event)]
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

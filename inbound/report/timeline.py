"""A partition's timeline, as SVG: owners, progress and findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inbound.proof.model import ANOMALIES, ClaimBar, Finding, PartitionProof
from inbound.proof.words import KINDS, counted, moment, offsets
from inbound.report.charts import Scale, round_ticks, short, time_ticks
from inbound.report.page import Markup, element, joined
from inbound.report.style import COLOURS

#: A timeline draws at most so many claims (the newest) and findings (the worst): more could not be told apart.
MOST_CLAIMS = 300
MOST_MARKS = 150
#: With more consumers, claims share lanes; the tooltip names the consumer.
MOST_LANES = 8

_WIDTH, _LEFT, _RIGHT = 1060, 104, 64
_LANE, _BAR = 26, 18
_HEIGHT = 150  # of the offsets' chart
_NAME = 15  # characters of a lane's name

_ENDINGS = {
    "released": "released gracefully",
    "lost": "lost to another consumer",
    "fenced": "its last commit was refused: fenced",
    "died": "no end in its ledger: killed or crashed",
    "holds": "holds the partition",
}


def timeline(proof: PartitionProof, colours: Mapping[str, int]) -> Markup:
    """Return a partition's chart; `colours` numbers the consumers, from 0."""
    if not proof.claims:
        return element("p", "The ledger has no claim of this partition.", class_="soft small")
    return joined(_Timeline(proof, colours).draw())


def colours_of(partitions: Sequence[PartitionProof]) -> dict[str, int]:
    """Number the consumers by first claim, for all charts of a page."""
    claims = sorted((claim for one in partitions for claim in one.claims), key=lambda claim: claim.wall)
    return {name: i for i, name in enumerate(dict.fromkeys(claim.consumer for claim in claims))}


@dataclass(frozen=True, slots=True)
class _Lane:
    name: str
    claims: list[ClaimBar]


def _lanes(claims: Sequence[ClaimBar]) -> list[_Lane]:
    """Return a lane per consumer, or, for many, as few as possible.

    Claims that overlap never share a lane.
    """
    names = list(dict.fromkeys(claim.consumer for claim in claims))
    if len(names) <= MOST_LANES:
        return [_Lane(name, [claim for claim in claims if claim.consumer == name]) for name in names]
    lanes: list[_Lane] = []
    for claim in sorted(claims, key=lambda claim: claim.wall):
        free = next((lane for lane in lanes if lane.claims[-1].last_wall <= claim.wall), None)
        if free is None:
            free = _Lane("" if lanes else counted(len(names), "consumer"), [])
            lanes.append(free)
        free.claims.append(claim)
    return lanes


class _Timeline:
    def __init__(self, proof: PartitionProof, colours: Mapping[str, int]) -> None:
        self._proof = proof
        self._colours = colours
        self._claims = sorted(proof.claims, key=lambda claim: (claim.wall, claim.epoch))[-MOST_CLAIMS:]
        self._lanes = _lanes(self._claims)
        rank = {kind: place for place, kind in enumerate(KINDS)}
        self._findings = sorted(proof.findings, key=lambda finding: rank[finding.kind])[:MOST_MARKS]
        walls = [wall for claim in self._claims for wall in (claim.wall, claim.last_wall)]
        self._x = Scale(min(walls), max(walls), _LEFT, _WIDTH - _RIGHT)
        self._top = 6 + _LANE * len(self._lanes) + 12
        known = [self._begin(claim) for claim in self._claims] + [claim.next for claim in self._claims]
        known += [value for value in (proof.log_end, proof.committed) if value is not None]
        known += [value for finding in self._findings for value in (finding.first, finding.next)]
        self._y = Scale(min(known), max(known), self._top + _HEIGHT, self._top)

    def draw(self) -> Iterator[Markup]:
        key = self._proof.key
        consumers = len({claim.consumer for claim in self._claims})
        told = (
            f"{counted(len(self._claims), 'claim')} of {counted(consumers, 'consumer')} from "
            f"{moment(self._x.low)} to {moment(self._x.high)}; committed {self._proof.committed}, log end {self._proof.log_end}; "
            f"{counted(len(self._proof.findings), 'finding')}, listed in the table below"
        )
        name = f"timeline-{key.group}-{key.topic}-{key.partition}"
        yield element(
            "svg",
            element("title", f"Timeline of {key.topic}/{key.partition}, group {key.group}"),
            element("desc", told),
            *(self._times(), self._offsets(), self._log_end(), self._again()),
            *map(self._lane, range(len(self._lanes))),
            *map(self._progress, self._claims),
            *map(self._mark, reversed(self._findings)),  # the worst on top
            viewBox=f"0 0 {_WIDTH} {self._top + _HEIGHT + 24}",
            role="img",
            aria_label=f"{name}: {told}",
        )
        left_out = len(self._proof.claims) - len(self._claims)
        if left_out:
            yield element("p", f"{counted(left_out, 'older claim')} not drawn.", class_="soft small")

    # -- frame -----------------------------------------------------------------------------------------------------------

    def _times(self) -> Markup:
        bottom = self._top + _HEIGHT
        return joined(
            part
            for wall, text in time_ticks(self._x.low, self._x.high)
            for part in (
                _line("grid", self._x.at(wall), 4, self._x.at(wall), bottom),
                element("text", text, x=self._x.at(wall), y=bottom + 16, text_anchor="middle"),
            )
        )

    def _offsets(self) -> Markup:
        right = _WIDTH - _RIGHT
        return joined(
            part
            for value in round_ticks(self._y.low, self._y.high)
            for part in (
                _line("grid", _LEFT, self._y.at(value), right, self._y.at(value)),
                element("text", short(value), x=_LEFT - 8, y=self._y.at(value) + 4, text_anchor="end"),
            )
        )

    def _log_end(self) -> Markup | None:
        end = self._proof.log_end
        if end is None:
            return None
        right, lag = _WIDTH - _RIGHT, self._proof.lag
        return joined(
            (
                element(
                    "g",
                    element("title", f"log end {end}, lag {lag}"),
                    _line("end", _LEFT, self._y.at(end), right, self._y.at(end)),
                ),
                element("text", f"lag {short(lag)}" if lag else "log end", x=right + 6, y=self._y.at(end) + 4),
            )
        )

    def _again(self) -> Markup:
        return joined(
            element(
                "rect",
                element("title", _told(finding)),
                class_="again",
                x=_LEFT,
                y=self._y.at(finding.next),
                width=_WIDTH - _RIGHT - _LEFT,
                height=max(2.0, round(self._y.at(finding.first) - self._y.at(finding.next), 1)),
            )
            for finding in self._findings
            if finding.kind in ("repeated", "duplicate")
        )

    # -- claims ----------------------------------------------------------------------------------------------------------

    def _lane(self, place: int) -> Markup:
        lane = self._lanes[place]
        top = 6 + _LANE * place
        name = lane.name if len(lane.name) <= _NAME else f"{lane.name[: _NAME - 5]}…{lane.name[-4:]}"
        label = element("text", element("title", lane.name), name, x=_LEFT - 8, y=top + 13, text_anchor="end")
        return element("g", label, (self._bar(claim, top) for claim in lane.claims))

    def _bar(self, claim: ClaimBar, top: int) -> Markup:
        begin = self._x.at(claim.wall)
        width = round(max(3.0, self._x.at(claim.last_wall) - begin), 1)
        text = (
            f"epoch {claim.epoch}"
            if width >= 64
            else str(claim.epoch)
            if width >= 9 + 7 * len(str(claim.epoch))
            else None
        )
        label = element("text", text, class_="label", x=round(begin + 6, 1), y=top + 13) if text else None
        told = (
            f"{claim.consumer}, epoch {claim.epoch}\n{moment(claim.wall)} to {moment(claim.last_wall)}\n"
            f"from {'no offset' if claim.position is None else claim.position}, delivered up to {claim.next}, "
            f"committed {'nothing' if claim.landed is None else claim.landed}\n"
            f"{counted(claim.records, 'record')} in {counted(claim.batches, 'batch')}\n{_ENDINGS[claim.ending]}"
        )
        bar = element(
            "rect",
            class_=f"bar f{self._colour(claim)}",
            x=begin,
            y=top,
            width=width,
            height=_BAR,
            rx=min(4.0, width / 2),
        )
        # The mark of its end would hide a narrow bar; but a death must be visible.
        shown = width >= 14 or claim.ending == "died"
        end = ending_mark(claim.ending, begin + width, top + _BAR / 2) if shown else None
        return element("g", element("title", told), bar, label, end)

    def _progress(self, claim: ClaimBar) -> Markup:
        """Draw lines to a claim's last delivery (dotted) and commit (solid)."""
        class_ = f"s{self._colour(claim)}"
        begin = (self._x.at(claim.wall), self._y.at(self._begin(claim)))
        end = max(self._x.at(claim.last_wall), begin[0] + 1)
        handed = _line(f"handed {class_}", *begin, end, self._y.at(claim.next))
        if claim.landed is None:
            return handed
        return joined((handed, _line(f"landed {class_}", *begin, end, self._y.at(claim.landed))))

    def _begin(self, claim: ClaimBar) -> int:
        if claim.position is not None:
            return claim.position
        return claim.next if claim.records == 0 else max(0, claim.next - claim.records)

    def _colour(self, claim: ClaimBar) -> int:
        return self._colours.get(claim.consumer, 0) % COLOURS

    # -- findings --------------------------------------------------------------------------------------------------------

    def _mark(self, finding: Finding) -> Markup:
        bad = finding.kind in ANOMALIES  # a diamond; else a dot
        x, y = self._x.at(self._when(finding)), self._y.at((finding.first + finding.next) / 2)
        r = 6 if bad else 4
        shape = (
            f"M{x} {y - r}l{r} {r}l{-r} {r}l{-r} {-r}z"
            if bad
            else f"M{x - r} {y}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
        )
        return element("path", element("title", _told(finding)), class_=f"finding {'bad' if bad else 'noted'}", d=shape)

    def _when(self, finding: Finding) -> float:
        around = (claim.last_wall for claim in self._claims if self._begin(claim) <= finding.first <= claim.next)
        return next(around, self._x.high) if finding.wall is None else finding.wall


def ending_mark(ending: str, x: float, y: float) -> Markup | None:
    """Return the mark at the end of a claim's bar, if any."""
    x, y = round(x, 1), round(y, 1)
    shapes = {
        "released": ("mark", f"M{x - 4} {y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"),  # circle
        "lost": ("mark", f"M{x - 4} {y - 5}h8l-4 9z"),  # triangle
        "fenced": ("mark", f"M{x - 1.5} {y - 9}h3v18h-3z"),  # stroke
        "died": ("died", f"M{x - 4} {y - 4}l8 8m0 -8l-8 8"),  # cross
    }
    if ending not in shapes:
        return None
    class_, shape = shapes[ending]
    return element("path", class_=class_, d=shape)


def key_of_marks() -> list[tuple[Markup, str]]:
    """Return the legend of all marks, without the consumers' colours."""
    marks = [
        (mark, name)
        for name in ("released", "lost", "fenced", "died")
        if (mark := ending_mark(name, 7, 7)) is not None
    ]  # fmt: skip
    return [
        (element("path", class_="landed s0", d="M1 12L13 2"), "committed"),
        (element("path", class_="handed s0", d="M1 12L13 2"), "delivered"),
        (element("path", class_="end", d="M0 7H14"), "log end"),
        *((mark, f"claim {name}") for mark, name in marks),
        (element("path", class_="bad", d="M7 1l6 6l-6 6l-6 -6z"), "anomaly"),
        (element("path", class_="noted", d="M3 7a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z"), "within the promise"),
        (element("rect", class_="again", x=0, y=3, width=14, height=8), "redelivered"),
    ]


def _told(finding: Finding) -> str:
    at = f"\n{moment(finding.wall)}" if finding.wall is not None else ""
    return f"{finding.kind}: {offsets(finding.first, finding.next)}\n{finding.cause}{at}"


def _line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return element("line", class_=class_, x1=x1, y1=y1, x2=x2, y2=y2)

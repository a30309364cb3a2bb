"""Judges cut logs: the records behind a cut are delivered in full.

A member that has read further than the cut goes back: to its commit, or, where that is behind the cut, to where
`on_truncation` says; that is committed first. Batches that were read before may still be delivered.

A commit that reading did not lead to (the first one under `latest`, one by a reset, or by hand) names no leader that wrote the
records before it. A log that is cut and grows over it before the next commit cannot be told from an ordinary one: see "Where
this cannot be kept" in `docs/faults.md`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from inbound.errors import OffsetOutOfRangeError
from inbound.processors.batch import Record
from inbound.testing.simulation.witness import Scene
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class _Cut:
    #: The lowest offset at which the log was cut since the group last went back; None: no cut, or the group had read nothing of it.
    at: int | None = None
    #: That offset, and later, higher ones: a member that has processed what is behind the lowest may have read behind the next
    #: one before the log was cut there, and its commit for that may be in flight.
    above: list[int] = field(default_factory=list)
    began: int = 0  # the log start at that time
    when: float = -1.0  # the time of the last cut; or when the group went back for it
    ends: list[tuple[float, int]] = field(default_factory=list)  # the time and offset of each cut
    old_at: float = -1.0  # when lost records were last delivered: they had been read before
    gone_to: int = 0  # the log end before the cuts: up to there, a member may still hold lost records
    ended: int = 0  # the log end that a processor was told; the log may have been cut again since
    told: int | None = None  # the cut that `on_exception` reported
    #: The log's limits that the processor was told, if nothing was delivered since: the next commit may go over the cut.
    limits: tuple[int, ...] = ()
    #: The lowest cut since, or by then: a member that moves over the first cut need not know of it.
    later: int | None = None
    jumped: bool = False  # a claim began behind the commit, over a cut that its owner may still find
    blind: bool = False  # no member was to read anything before the commit, so a cut need not show
    unseen: bool = False  # it was cut in that time, at `at`


class CutJudge:
    """Judges partitions whose logs were cut; only a deleted topic is forgotten."""

    def __init__(self, world: Scene, violated: Callable[[str], None]) -> None:
        self._world = world
        self._violated = violated
        self._cuts: dict[TopicPartition, _Cut] = defaultdict(_Cut)

    # -- called by the judge ---------------------------------------------------------------------------------------------

    def cut(self, tp: TopicPartition, end: int, *, begun: bool, begins: bool) -> bool:
        """The log loses everything from `end` on.

        `begun`: the group is to read all that comes; `begins`: its first position may be resolved, and is not committed yet.
        Returns whether members always notice the cut.
        """
        cut = self._cuts[tp]
        cut.unseen |= begins or (begun and cut.blind)
        if cut.at is None:
            cut.ended = 0
        if begun or begins:
            if cut.at is None:
                cut.began = self._world.kafka.start(tp)
            cut.above = [*(other for other in cut.above if other < end), end]
            cut.at = cut.above[0]
        cut.ends.append((self._world.clock.now(), end))
        if cut.told is not None:
            cut.later = end if cut.later is None else min(end, cut.later)
        cut.when = self._world.clock.now()
        cut.gone_to = max(cut.gone_to, self._world.kafka.end(tp))
        return not cut.unseen

    def starts(self, tp: TopicPartition) -> None:
        """The group's first position is committed."""
        self._cuts[tp].blind = True

    def moved(self, tp: TopicPartition, new: int = 0) -> None:
        """The group's offset moves to `new` without reading up to it.

        A reset may have found that offset before the log was cut. If the log ends before `new`, the next claim may go back for
        that, unless the log has grown over it by then.
        """
        cut, end = self._cuts[tp], self._world.kafka.end(tp)
        beyond = new > end
        cut.at, cut.blind, cut.unseen, cut.told, cut.later = end if beyond else None, True, beyond, None, None
        cut.above = [end] if beyond else []
        cut.began = self._world.kafka.start(tp) if beyond else cut.began
        cut.jumped, cut.limits = False, ()

    def jumps(self, tp: TopicPartition) -> None:
        """A processor begins its claim behind the commit, maybe over a cut.

        The claim need not go back for the cut, and may be held for it: it knows up to where the log was read, and under which
        leader. So it may find that the log was cut before that, although it has grown over the offset since. The next claim
        knows nothing of it, and reads on.
        """
        over = self.may_hold(tp)
        self.moved(tp)
        self._cuts[tp].jumped = over

    def out_of_range(self, tp: TopicPartition, error: OffsetOutOfRangeError) -> None:
        """A processor learns that its position is out of range.

        1. The log's limits are asked for; 2. it is cut once more, further down; 3. the processor learns of the first cut.
        """
        cut = self._cuts[tp]
        known = error.end if error.cut is None else error.cut
        cut.ended, cut.limits = error.end, (error.start, error.end)
        cut.told, cut.later = known, cut.at if cut.at is not None and cut.at < known else None

    def recreated(self, tp: TopicPartition) -> None:
        """The topic was deleted, and its log with it."""
        self._cuts.pop(tp, None)

    # -- asked ---------------------------------------------------------------------------------------------------------

    def at(self, tp: TopicPartition) -> int | None:
        """Return the cut below what the group has read; None without one."""
        return self._cuts[tp].at if tp in self._cuts else None

    def ends(self, tp: TopicPartition) -> list[int]:
        """Return the offsets at which the log was ever cut."""
        return [end for _, end in self._cuts[tp].ends] if tp in self._cuts else []

    def may_hold(self, tp: TopicPartition) -> bool:
        """Return whether the owner may have found a cut below its position."""
        return tp in self._cuts and (self._cuts[tp].at is not None or self._cuts[tp].jumped)

    def cut_since(self, tp: TopicPartition, began: float) -> bool:
        """Return whether the log was cut at `began` or later."""
        return tp in self._cuts and began <= self._cuts[tp].when

    def goes_back(self, tp: TopicPartition, began: float, position: int = 0) -> bool:
        """Return whether reading may go back over a cut since `began`.

        A batch was delivered at `began`, and reading was to continue at `position`. A processor may have passed over what is
        behind the cut since.
        """
        at = self.at(tp)
        if at is not None and at < position:
            return True
        return self.cut_since(tp, began) or (tp in self._cuts and began <= self._cuts[tp].old_at)

    def there(self, tp: TopicPartition, records: Sequence[Record]) -> list[Record]:
        """Return the records of a batch that the log still holds."""
        if tp not in self._cuts:
            return list(records)
        self._cuts[tp].limits = ()
        if self._cuts[tp].when < 0:
            return list(records)
        kafka = self._world.kafka
        held = [record for record in records if kafka.holds(tp, record)]
        if len(held) < sum(record.offset >= kafka.start(tp) for record in records):  # else retention has deleted them
            self._cuts[tp].old_at = self._world.clock.now()
        return held

    def judge_reading(
        self, consumer: str, tp: TopicPartition, first: int, handed: Collection[int], passed_over: Mapping[int, float]
    ) -> None:
        """Judge that records behind a cut are delivered or passed over.

        Records that the cut has taken do not count as passed over, unless retention has deleted the place of the cut:
        then nothing leads back to it, and the processor's own position counts.
        """
        at = self.at(tp)
        if at is None or first < at or self._cuts[tp].unseen:
            return
        offsets, start = self._world.kafka.offsets(*tp), self._world.kafka.start(tp)
        ends = [(when, end) for when, end in self._cuts[tp].ends if end >= start]
        passed = {o for o, began in passed_over.items() if not any(began <= when and end <= o for when, end in ends)}
        missing = [
            offset for offset in offsets if at <= offset < first and offset not in handed and offset not in passed
        ]
        if missing:
            self._violated(
                f"{consumer} reads on in {tp} at {first}, although the log was cut at {at}: {missing} were published since, and "
                "never delivered"
            )

    def goes_over(
        self, tp: TopicPartition, before: int | None, new: int, answered: int, sent: int, *, unled: bool
    ) -> tuple[int, int] | None:
        """Return the offsets that a commit passes over at a cut.

        None: it does not go to where the configuration says that reading continues behind a cut. A commit up to `answered` may
        be the one of the last batch, unless it names no leader (`unled`) and goes where a processor was told that the log
        begins or ends; commits up to `sent` were in flight when the cut was found.
        """
        at, kafka = self.at(tp), self._world.kafka
        if at is None or before is None or max(before, sent) <= at:
            return None
        if before < new <= answered and not (unled and new in self._cuts[tp].limits):
            return None
        if before == new and self._cuts[tp].told is None:
            return None  # sent once more, as no answer came
        choices = {c.on_truncation for c in self._world.consumers.values()}
        cut = self._cuts[tp]
        # Retention may go on after the log's limits were asked for.
        goes = {"earliest": cut.began <= new <= kafka.start(tp), "latest": new <= max(kafka.end(tp), cut.ended)}
        if not any(goes.get(choice, False) for choice in choices):
            return None
        later = cut.later
        self.moved(tp)
        if later is not None and new > later:  # cut once more since; a member that reads behind that may notice, or not
            cut.at, cut.above, cut.unseen = later, [later], new <= kafka.end(tp)
        # Batches delivered before a member noticed are redelivered, too.
        self._cuts[tp].gone_to, self._cuts[tp].when = 0, self._world.clock.now()
        return at, new if "latest" in choices else at

    def of_what_is_there(self, tp: TopicPartition, new: int, skipped: Sequence[int]) -> list[int]:
        """Return the skipped offsets still judged: a commit may concern lost records."""
        at = self.at(tp)
        if at is None or new > self._cuts[tp].gone_to:
            return list(skipped)
        return [offset for offset in skipped if offset < at]

    def processed(self, tp: TopicPartition, end: int, done: Iterable[int]) -> None:
        """The group commits up to `end`, which ends cuts before it.

        A cut is over once all records behind it are processed. Not so one at `end` or behind it: 1. the log is cut, and the
        group reads on behind that; 2. the commits of two batches are in flight; 3. it is cut between them; 4. both commits
        land. The second one is about records that are gone.
        """
        if tp not in self._cuts:
            return
        cut = self._cuts[tp]
        cut.blind = cut.jumped = False
        offsets = [offset for offset in self._world.kafka.offsets(*tp) if cut.at is not None and cut.at <= offset < end]
        if offsets and all(offset in done for offset in offsets):
            cut.above = [other for other in cut.above if other >= end]
            cut.at = min(cut.above, default=None)
            cut.unseen &= cut.at is not None
            cut.told = cut.told if cut.told is not None and cut.told >= end else None
            cut.later = cut.later if cut.told is not None and cut.later is not None and cut.later >= end else None

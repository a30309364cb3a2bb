"""What must hold where a log was cut: the records behind the cut are delivered from the first on.

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
    """Of one partition."""

    #: The lowest offset at which the log was cut since the group went back for that; None: it was not, or the group had read
    #: nothing of it.
    at: int | None = None
    #: That one, and those further up that came after it: who has processed what stands behind the lowest may have read behind the
    #: next one before it was cut there, and its commit for that may be in flight.
    above: list[int] = field(default_factory=list)
    began: int = 0  # where the log began then
    when: float = -1.0  # the last time; or when the group went back for that
    ends: list[tuple[float, int]] = field(default_factory=list)  # when it was cut, and where
    old_at: float = -1.0  # when records that are gone were delivered last: they had been read before
    gone_to: int = 0  # where it ended before: up to there, a member may still hold records that are gone
    ended: int = 0  # where it ended, as a processor knows: it may have been cut since, even more than once
    told: int | None = None  # `on_exception` said that its position cannot be read on from, as the log was cut here
    #: Where the log began and ended, as the processor knows, if nothing was delivered since: the next commit may go over the cut.
    limits: tuple[int, ...] = ()
    #: The lowest offset at which it was cut since, or had been by then: who moves over the first cut need not know of it.
    later: int | None = None
    jumped: bool = False  # a claim began behind the commit, over a cut: what its owner knows of the log may tell it so
    blind: bool = False  # no member was to read anything before the commit, so a cut need not show
    unseen: bool = False  # it was cut in that time, at `at`


class CutJudge:
    """Asked by the judge, about partitions whose logs were cut; it forgets nothing of them but a topic that is deleted."""

    def __init__(self, world: Scene, violated: Callable[[str], None]) -> None:
        self._world = world
        self._violated = violated
        self._cuts: dict[TopicPartition, _Cut] = defaultdict(_Cut)

    # -- called by the judge ---------------------------------------------------------------------------------------------

    def cut(self, tp: TopicPartition, end: int, *, begun: bool, begins: bool) -> bool:
        """The log loses everything from `end` on.

        `begun`: the group is to read all that comes; `begins`: its first position may be resolved, and is not committed yet.
        Returns whether it can be noticed in any case.
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
        """The group's offset is set to `new`, where the log is to be read on: not by a member that has read up to there.

        A reset may have found that offset before the log was cut: where it ends before `new`, the next claim may go back for that,
        unless it has grown over it by then.
        """
        cut, end = self._cuts[tp], self._world.kafka.end(tp)
        beyond = new > end
        cut.at, cut.blind, cut.unseen, cut.told, cut.later = end if beyond else None, True, beyond, None, None
        cut.above = [end] if beyond else []
        cut.began = self._world.kafka.start(tp) if beyond else cut.began
        cut.jumped, cut.limits = False, ()

    def jumps(self, tp: TopicPartition) -> None:
        """A processor says that its claim begins behind the commit: it need not go back for a cut, and may be held for it.

        The claim knows up to where the log was read, and under which leader. So it may find that the log was cut before that,
        although it has grown over the offset since: then it holds. The next claim knows nothing of it, and reads on.
        """
        over = self.may_hold(tp)
        self.moved(tp)
        self._cuts[tp].jumped = over

    def out_of_range(self, tp: TopicPartition, error: OffsetOutOfRangeError) -> None:
        """A processor learns that its position cannot be read on from.

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
        """Return the offset from which on what the group had read is gone; None: nothing is."""
        return self._cuts[tp].at if tp in self._cuts else None

    def ends(self, tp: TopicPartition) -> list[int]:
        """Return where the log was ever cut."""
        return [end for _, end in self._cuts[tp].ends] if tp in self._cuts else []

    def may_hold(self, tp: TopicPartition) -> bool:
        """Whether the owner may have found that the log was cut below where it reads on."""
        return tp in self._cuts and (self._cuts[tp].at is not None or self._cuts[tp].jumped)

    def cut_since(self, tp: TopicPartition, began: float) -> bool:
        """Whether the log was cut since then."""
        return tp in self._cuts and began <= self._cuts[tp].when

    def goes_back(self, tp: TopicPartition, began: float, position: int = 0) -> bool:
        """Whether reading may go back over a cut to before a batch that was delivered then.

        `position`: where it was to go on. A processor may have passed over what stands behind the cut since.
        """
        at = self.at(tp)
        if at is not None and at < position:
            return True
        return self.cut_since(tp, began) or (tp in self._cuts and began <= self._cuts[tp].old_at)

    def there(self, tp: TopicPartition, records: Sequence[Record]) -> list[Record]:
        """Return the records of a batch that the log still holds: others are not judged."""
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
        """Records published after a cut are delivered from the first on, or a processor has passed over them.

        Records that the cut has taken do not count as passed over, unless retention has deleted the place of the cut:
        then nothing leads back to it, and where the processor wants to go on counts.
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
        """Whether a commit goes to where the configuration says that reading goes on behind a cut.

        Returns the offsets that it passes over on purpose. A commit up to `answered` may be the one of the last batch, unless
        it names no leader (`unled`), and goes where a processor was told that the log begins or ends; up to `sent` they were on
        their way when the cut was found.
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
        """Return of the offsets that a commit skips those that it must not: it may be about records that are gone."""
        at = self.at(tp)
        if at is None or new > self._cuts[tp].gone_to:
            return list(skipped)
        return [offset for offset in skipped if offset < at]

    def processed(self, tp: TopicPartition, end: int, done: Iterable[int]) -> None:
        """The group commits up to `end`: if the records behind a cut are among those, the cut is over.

        Not so one at `end` or behind it: 1. the log is cut, and the group reads on behind that; 2. the commits of two batches are
        in flight; 3. it is cut between them; 4. both commits land. The second one is about records that are gone.
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

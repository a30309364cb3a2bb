"""What must hold at every step of a simulated run.

The judge sees each ZooKeeper transaction, each batch and its answer, and nothing of how inbound works inside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from inbound.coordinators.nodes import OPEN, BadNodeError, EpochInfo, ResetNote, decode_offset
from inbound.processors.batch import Batch
from inbound.testing.kafka import FakeKafka
from inbound.testing.simulation.cut_judge import CutJudge
from inbound.testing.simulation.judged_answers import AnswerBook
from inbound.testing.simulation.judged_partitions import JudgedBatch, JudgedPartition, OffsetNodes
from inbound.testing.simulation.plan import Setup
from inbound.testing.simulation.reset_judge import ByReset, ResetJudge, changed_nodes, epoch_in
from inbound.testing.simulation.witness import GroupMember, Scene, Witness
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition

#: Seconds of calm after which each member knows what was done to it from outside: a little more than `membership.PATIENCE`.
AWARE = 2.0


class Judge:
    """Collects violations; the first one is what the run is about."""

    def __init__(
        self, world: Scene, setup: Setup, *, of: str = "", witness: Callable[[FakeKafka], Witness] = Witness
    ) -> None:
        """Make a judge; `of` begins its lines with the group's name."""
        self.world = world
        self._setup = setup
        self.of = of
        self.violations: list[str] = []
        self.trace: list[tuple[float, str]] = []
        self.handed_out = self.repeated = 0
        self._dead_letters: set[tuple[TopicPartition, int]] = set()
        #: Partitions with a refused or unusable node: members back off from them.
        self.refused: set[TopicPartition] = set()
        self._calm_from = float("inf")
        self._partitions: dict[TopicPartition, JudgedPartition] = defaultdict(JudgedPartition)
        self._lost_session: dict[str, float] = {}  # process: when one of its sessions last expired
        self._expired_by_force: set[int] = set()
        self._ids = f"{world.paths.ids}/"
        self.resets = ResetJudge(world, self.violated, self.say)
        self.cuts = CutJudge(world, self.violated)
        self.witness = witness(world.kafka)
        self.witness.gives_up = setup.gives_up
        self.answers = AnswerBook(self._partitions, self.witness, world.clock, self.say)
        self._nodes = OffsetNodes(latest=setup.latest)
        self._by_reset: Mapping[TopicPartition, EpochInfo] = {}  # the epochs made by the transaction in hand
        world.ensemble.observers.append(self._committed)

    # -- called by the run ---------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        """Note something for the story of the run."""
        self.trace.append((self.world.clock.now(), self.of + what))

    def violated(self, what: str) -> None:
        """Note that something happened that must not."""
        self.say(f"VIOLATION: {what}")
        self.violations.append(self.of + what)

    def initial_partitions(self, tps: list[TopicPartition]) -> None:
        """Note the first partitions: with `latest`, reading may skip their records."""
        for tp in tps:
            self._partitions[tp].may_start_late = self._setup.latest

    def forced(self, session: int) -> None:
        """The servers expire a session; its client may deliver until it knows."""
        self._expired_by_force.add(session)

    def is_unaware(self, member: GroupMember) -> bool:
        """Return whether a member may not know that its session was expired."""
        return member.zk.session is not None and member.zk.session.id in self._expired_by_force

    def moved(self, tp: TopicPartition) -> None:
        """A tool outside the group moves the offset."""
        known = self._partitions[tp]
        known.outside.append(known.epoch + 1)
        known.current = None
        self._nodes.written(tp)
        self.cuts.moved(tp)

    def disowned(self, tp: TopicPartition) -> None:
        """An operator deletes an owner node, which its owner may recover."""
        known = self._partitions[tp]
        known.outside.append(known.epoch + 1)
        known.disowned = True

    def offset_taken(self, tp: TopicPartition) -> None:
        """An operator removes the group's offset; the next claim starts over."""
        known = self._partitions[tp]
        self._nodes.take(tp, known.tenure if known.current is None else None)
        self.witness.takes_offset(tp)
        if known.current is None:
            known.outside.append(known.epoch)

    def offset_mended(self, tp: TopicPartition) -> None:
        """An operator restores the group's offset."""
        self._nodes.mend(tp)
        self.witness.mends_offset(tp)

    def recreated(self, tp: TopicPartition) -> None:
        """The topic is recreated; judging pauses until a member begins it."""
        self._partitions[tp].of_deleted_topic = self._partitions[tp].topic_id is not None
        if self._partitions[tp].of_deleted_topic:
            self.witness.recreated(tp)

    def cut(self, tp: TopicPartition, end: int) -> None:
        """The log loses everything from `end` on; new records will replace it."""
        known = self._partitions[tp]
        self.resets.cut(tp, end)
        begun = known.commit is not None or not known.may_start_late
        if not self.cuts.cut(tp, end, begun=begun, begins=not begun and known.holder is not None):
            self.witness.cannot_tell(tp)
        known.handed = {offset: given for offset, given in known.handed.items() if offset < end}
        known.wants_from(end)

    def calm(self) -> None:
        """The storm is over; soon no process has an excuse."""
        self._calm_from = self.world.clock.now()

    def owners(self) -> dict[TopicPartition, str | None]:
        """Return the owner process of each partition, as the nodes say."""
        return {tp: known.owner for tp, known in sorted(self._partitions.items())}

    def tenures(self) -> dict[TopicPartition, int]:
        """Return how often each partition was claimed."""
        return {tp: known.tenure for tp, known in sorted(self._partitions.items())}

    def commit_of(self, tp: TopicPartition) -> int | None:
        return self._partitions[tp].commit

    def has_given_up(self, tp: TopicPartition, end: int) -> bool:
        """Return whether the last record before `end` was given up."""
        given = self._partitions[tp].current  # what `next` left uncommitted before such a record waits for more
        return given is not None and given.next >= end and self._given_up(given, given.first_record)

    def read_at(self, tp: TopicPartition) -> float:
        """Return when a partition was last delivered to its owner."""
        return self._partitions[tp].read_at

    # -- deliveries ----------------------------------------------------------------------------------------------------

    def begins(self, consumer: GroupMember, batch: Batch, to: object, *, starts: bool = False) -> JudgedBatch:
        """A processor receives a batch; `starts`: it chooses where claims begin."""
        tp = TopicPartition(batch.topic, batch.partition)
        name, known = consumer.name, self._partitions[tp]
        first_record = batch.records[0].offset if batch.records else batch.first_offset
        given = JudgedBatch(
            name, tp, batch.epoch, batch.first_offset, batch.next_offset, len(batch), first_record,
            self.world.clock.now(), to,
        )  # fmt: skip
        self.handed_out += 1
        self.witness.handed(tp, batch)
        self.say(f"{name} is handed {tp} {given.first}..{given.next - 1}, epoch {given.epoch}")
        if (name, tp) in self.answers.awaited:
            self.violated(f"{name} is handed {tp} while it has a batch of it")
        self.answers.awaited.add((name, tp))
        if known.is_of_claim(name, given.epoch):
            given.tenure = known.tenure
        given.unaware = not self._is_owner(consumer, known, given)
        given.unaware |= known.of_deleted_topic
        if not given.unaware:
            if known.untold is not None and known.commit == known.untold.new:
                self.violated(f"{name} is handed {tp}, and on_reset was not called after its last reset")
            self._judge_position(known, given)
            self._judge_window(known, given)
            known.read_at = given.began
            if starts and known.asked != (name, known.tenure):
                self.violated(f"{name} is handed {tp}, and its processor was not asked where this claim begins")
        if known.is_of_claim(name, given.epoch):
            known.current = given
        self._judge_whole(given, batch)
        there = self.cuts.there(tp, batch.records)
        if there:
            self.cuts.judge_reading(name, tp, there[0].offset, known.handed.keys(), known.passed_over)
        known.given_back -= {record.offset for record in there}
        for record in there:
            before = known.handed.get(record.offset)
            if before is not None:
                self.repeated += 1
                if not given.unaware:
                    self._judge_repeat(known, given, before, record.offset)
            if before is None or not before.tenure == known.tenure != given.tenure:
                known.handed[record.offset] = given  # else it is the owner's answer that counts, not a zombie's
        return given

    def told(self, consumer: GroupMember, tp: TopicPartition, old: int | None, new: int) -> None:
        """`on_reset` is called."""
        self.say(f"{consumer.name} gets on_reset of {tp}, from {old} to {new}")
        if (tp, old, new) not in self.resets.moves:
            self.violated(f"{consumer.name} gets on_reset of {tp}, from {old} to {new}; no reset did that")
        known = self._partitions[tp]
        if known.untold is not None and (known.untold.old, known.untold.new) == (old, new):
            known.untold = None

    def placed(self, consumer: GroupMember, tp: TopicPartition, offset: object) -> None:
        """A processor chooses where its claim begins; the group's offset follows."""
        self.say(f"{consumer.name} begins {tp} at {offset}")
        known = self._partitions[tp]
        known.asked = consumer.name, known.tenure
        if isinstance(offset, int) and offset >= 0:
            known.placed = consumer.name, offset
            if offset > (known.commit or 0) and self.cuts.at(tp) is not None:
                self.witness.cannot_tell(tp)

    def dead_lettered(self, tp: TopicPartition, offset: int) -> None:
        """The dead-letter topic has a record."""
        self._dead_letters.add((tp, offset))
        self.witness.dead_lettered(tp, offset)

    def _given_up(self, given: JudgedBatch | None, offset: int) -> bool:
        dead = self._setup.gives_up == "dead-letter" and given is not None and (given.tp, offset) in self._dead_letters
        return given is not None and given.failed_alone and (self._setup.gives_up == "skip" or dead)

    def _is_owner(self, consumer: GroupMember, known: JudgedPartition, given: JudgedBatch) -> bool:
        """Return whether a member may receive a batch; judge it if not."""
        if self.is_unaware(consumer):
            return False
        if known.is_of_claim(given.consumer, given.epoch) and known.owner == given.consumer:
            return True
        overtaken = [by.overtaken for by in known.resets if by.epoch > given.epoch]
        if given.consumer in overtaken and self.world.clock.now() < self._calm_from + AWARE:
            return False
        known_soon = self.world.clock.now() < self._calm_from + AWARE or given.tp in self.refused
        # The first claim after it counts: it cannot know of later ones.
        overtaken_in = next((epoch for epoch in known.claims if epoch > given.epoch), known.epoch)
        if (known.disowned or overtaken_in in known.outside) and known_soon:
            return False
        if known.holder is not None or known.epoch == given.epoch or known.resets:
            self.violated(
                f"{given.consumer} is handed {given.tp} in epoch {given.epoch}; epoch {known.epoch} is "
                f"{known.holder}'s and the owner node {known.owner}'s"
            )
        return False

    def _judge_position(self, known: JudgedPartition, given: JudgedBatch) -> None:
        if known.commit is None or self._nodes.is_uncommitted(given.tp, known.tenure):
            self.violated(f"{given.tp} is delivered before its first position is committed")
            return
        before = known.current
        expected = known.commit
        if (
            before is not None
            and (before.tenure, before.to) == (given.tenure, given.to)
            and before.position is not None
        ):
            expected = before.position
            if given.first in before.otherwise:
                return
            if self._given_up(before, before.first_record) and given.first >= before.next:
                expected = before.next
                known.leaves(given.tenure, expected, given.began)
                known.done.add(before.first_record)
        back = before is not None and self.cuts.goes_back(given.tp, before.began, expected) and given.first != expected
        if not (back and known.goes_back(given, self.cuts.ends(given.tp), self.world.kafka.offsets(*given.tp))):
            self._no_record_between(given, expected)

    def _judge_window(self, known: JudgedPartition, given: JudgedBatch) -> None:
        """No more records are in flight than the commit window allows."""
        flying = known.flying(given.tenure)
        if flying > self._setup.window:
            self.violated(f"{given.consumer} is handed {given.tp} {given.first} while {flying} records are in flight")

    def _judge_whole(self, given: JudgedBatch, batch: Batch) -> None:
        """A batch has all records of its range."""
        if self.cuts.at(given.tp) is not None:
            return  # it may have been read before that
        has = {record.offset for record in batch.records}
        offsets = self.world.kafka.offsets(*given.tp)
        if lacks := [o for o in offsets if given.first <= o < given.next and o not in has]:
            self.violated(f"{given.consumer} is handed {given.tp} {given.first}..{given.next - 1} without {lacks}")

    def _no_record_between(self, given: JudgedBatch, expected: int) -> None:
        low, high = sorted((expected, given.first))
        if between := [o for o in self.world.kafka.offsets(*given.tp) if low <= o < high]:
            self.violated(
                f"{given.consumer} reads {given.tp} at {given.first} instead of {expected}: {between} lie between"
            )

    def _judge_repeat(self, known: JudgedPartition, given: JudgedBatch, before: JudgedBatch, offset: int) -> None:
        what = f"{given.tp} offset {offset} is redelivered to {given.consumer} in epoch {given.epoch}"
        same = before.consumer == given.consumer and before.tenure == given.tenure
        resets = [by for by in known.resets if before.epoch < by.epoch <= given.epoch]
        if (
            (before.position is not None and offset >= before.advanced)  # its processor did not advance over it
            or self.cuts.goes_back(given.tp, before.began)
            or min(before.ended, given.began) - before.began
            > self._setup.patience  # it was given up inside its callback
            or before.abandoned
            or before.unaware
            or any(before.epoch < epoch <= given.epoch for epoch in known.outside)
            or any(by.explains(offset, before.consumer) for by in resets)
        ):
            return
        if offset < (known.commit or 0):
            self.violated(f"{what}, although it is committed")
        elif same:
            self.violated(f"{what}, after the same process has had it under the same claim")
        elif before.consumer == given.consumer and given.tenure == before.tenure + 1:
            self.violated(f"{what}, because it gave the partition up")
        elif not (
            self.world.consumers[before.consumer].dead or self._lost_session.get(before.consumer, -1.0) >= before.began
        ):
            self.violated(
                f"{what}, although {before.consumer}, which had it in epoch {before.epoch}, never lost its session"
            )

    # -- transactions --------------------------------------------------------------------------------------------------

    def _committed(self, commit: Commit) -> None:
        who = self.world.ensemble.clients_of.get(commit.session)
        if commit.expired and who is not None:
            self._lost_session[who] = self.world.clock.now()
        self._by_reset = self.resets.committed(commit)
        for kind, path in commit.changed:
            gone = kind == "data" and path.startswith(self._ids) and commit.after.get(path) is None
            if gone and not commit.expired and who is not None:
                self.say(f"{who} takes the id node of {path.removeprefix(self._ids)} down")
        change = {"owners": self._owner_changed, "offsets": self._offset_changed, "epochs": self._epoch_changed}
        for family, path, tp in changed_nodes(commit, self.world.paths):
            change[family](commit, path, tp, who)

    def _epoch_changed(self, commit: Commit, path: str, tp: TopicPartition, who: str | None) -> None:
        node, known = commit.after.get(path), self._partitions[tp]
        if node is None or node.stat.version < known.epoch:
            self.violated(f"the epoch node of {tp} was deleted by {who}")
            return
        if node.stat.version == known.epoch:
            return
        known.epoch = node.stat.version
        info = epoch_in(path, commit.after)
        topic_id = info.topic_id if info is not None else None
        if topic_id is not None and topic_id != known.topic_id:
            if known.of_deleted_topic:  # else the id is another way to write the same one
                known.topic_changed_at = commit.after.zxid
            known.topic_id = topic_id
            known.of_deleted_topic |= not self.world.kafka.names(tp.topic, topic_id)
        if tp in self._by_reset:
            note = self.resets.notes.get(tp)
            known.resets.append(ByReset(known.epoch, note, known.owner if self._is_taken(tp, commit) else None))
            known.tenure += 1
            known.claims.append(known.epoch)
            known.holder = known.current = None
            self.witness.fenced(tp)
            self.say(f"{who} moves {tp} to epoch {known.epoch} for a reset{'' if note is None else f': {note}'}")
            return
        # A claim makes the owner node, a commit does not: also where an operator has deleted it, and there is none.
        owns = known.owner == who or known.disowned
        if who is not None and who == known.holder and owns and not self._is_taken(tp, commit):
            known.outside += [known.epoch + 1] if known.disowned else []  # the claim that comes now, as in `disowned`
            self.say(f"{who} moves {tp} on to epoch {known.epoch}")
            return
        known.tenure += 1
        known.claims.append(known.epoch)
        known.holder, known.current = who, None
        if self._nodes.claimed(tp, known.tenure):
            known.outside.append(known.epoch)
        if who is not None:
            if info is not None and info.recreated and known.commit == info.noted_offset:
                known.asked = who, known.tenure  # it is not: see below
            self.witness.claimed(tp, known.epoch)
        self.say(f"{who or 'a tool'} moves {tp} to epoch {known.epoch}")

    def _is_taken(self, tp: TopicPartition, commit: Commit) -> bool:
        return ("data", self.world.paths.owner(*tp)) in commit.changed

    def _owner_changed(self, commit: Commit, path: str, tp: TopicPartition, who: str | None) -> None:
        node, known = commit.after.get(path), self._partitions[tp]
        before, known.owner = known.owner, None
        if node is not None:
            known.owner, known.disowned = who, False
            member = self.world.consumers.get(who) if who is not None else None
            if member is not None and node.data.decode() != member.consumer_id:
                self.violated(f"the owner node of {tp}, made by {who}, names {node.data!r}")
            if known.holder != who and known.holder is not None:
                self.violated(f"{who} owns {tp}, but epoch {known.epoch} is {known.holder}'s")
            gate = commit.after.get(self.world.paths.gate(tp.topic))
            if gate is None or gate.data != OPEN:
                self.violated(f"{who} takes {tp} although the gate is closed")
        self.say(f"{tp}: {f'expired at {before}' if commit.expired else f'{who} sets owner to {known.owner}'}")
        if commit.expired or before is None or who is None:
            return
        if tp in self._by_reset and node is None:
            self.resets.overtakes(tp, commit, before)
            return
        if who != before and not self.world.consumers[before].dead:
            self.violated(f"{who} takes down the owner node of {tp}, which is {before}'s")
        given = known.current
        waited = node is None and given is not None and self.resets.waited(tp, given.began, self._setup.patience)
        if waited and given is not None and known.abandons(given):
            if given.failed_alone:
                self.witness.abandons(tp, given.first_record)
            self.say(f"{given.consumer} abandons its batch of {tp}: a reset waits no longer")

    def _offset_changed(self, commit: Commit, path: str, tp: TopicPartition, who: str | None) -> None:
        node, known = commit.after.get(path), self._partitions[tp]
        if who is None and tp not in self._by_reset and self._nodes.is_by_hand(tp):
            self.say(f"an operator makes the offset node of {tp} hold {None if node is None else node.data!r}")
            return
        try:
            new = decode_offset(path, node.data if node else b"")
        except BadNodeError as error:
            self.violated(str(error))
            return
        if new is None:
            return
        before, known.commit = known.commit, new
        if new == 0 and known.topic_changed_at == commit.after.zxid:
            known.of_deleted_topic, before = not self.world.kafka.names(tp.topic, known.topic_id), 0
            known.handed.clear()
            known.done.clear()
            self.cuts.recreated(tp)
            if known.holder is not None:  # its processor's offsets are about the deleted topic, so it is not asked
                known.asked = known.holder, known.tenure
            self.witness.begins_recreated(tp, known.epoch)
            if known.of_deleted_topic:
                self.witness.recreated(tp)
        note = self.resets.notes.get(tp)
        if note is not None:
            self.say(f"{who} moves the group's offset of {tp} from {before} to {new}")
            self.resets.exact(tp, note, before)
            known.wants_from(new)
            known.moved_at, known.untold = self.world.clock.now(), note
            self.witness.reset(tp, new, known.epoch, self.cuts.at(tp))
            self.cuts.moved(tp, new)
            return
        if who is None:
            self.witness.set_from_outside(tp, new)
            return
        if self._follows(tp, known, who, before, new):
            return
        found_none = self._nodes.starts_over(tp, known.tenure, new, self.world.kafka.log_range(tp))
        found_none &= known.current is None and new != before
        self._nodes.written(tp)
        (self.witness.begins_without_offset if found_none else self.witness.committed)(tp, new)
        if known.of_deleted_topic:
            return
        self.say(f"{who} {'finds no offset, and ' if found_none else ''}commits {tp} {new}")
        if who != known.holder and (known.holder is not None or known.resets):
            self.violated(f"{who} commits {tp} {new}, but epoch {known.epoch} is {known.holder}'s")
        if found_none:
            known.wants_from(new)
            self.cuts.moved(tp)
            return
        answered, sent = known.in_claim(known.answered), known.in_claim(known.advanced)
        if (last := known.current) is not None and self._given_up(last, last.first_record):
            answered = max(answered, last.next)  # a commit that goes past what is given up goes over no cut
        info = epoch_in(self.world.paths.epoch(*tp), commit.after)
        unled = info is not None and info.leader_epoch is None  # no node says who wrote what is before the offset
        passed = self.cuts.goes_over(tp, before, new, answered, sent, unled=unled)
        if passed is not None:
            known.advanced, known.later = (known.tenure, new), (0, {})
            self.witness.passes_over_a_cut(tp, *passed, known.epoch)
            known.current, known.answered = None, (known.tenure, 0)
            return
        if before is None and known.may_start_late:
            self.cuts.starts(tp)
            return
        low = before or 0
        if new < low:
            self.violated(f"{who} sets the commit of {tp} back from {low} to {new}")
        skipped = [
            offset
            for offset in self.world.kafka.offsets(*tp)
            if low <= offset < new and offset not in known.done and not self._given_up(known.handed.get(offset), offset)
        ]
        read = known.current.next if known.current is not None else new
        if skipped := self.cuts.of_what_is_there(tp, min(new, read), skipped):
            self.violated(f"{who} commits {tp} {new}, but {skipped} were not processed")
        if known.current is not None:
            self.cuts.processed(tp, new, known.done)

    def _follows(self, tp: TopicPartition, known: JudgedPartition, who: str, before: int | None, new: int) -> bool:
        """Return whether a commit moves to where the claim's processor begins."""
        limits = self.world.kafka.log_range(tp)
        by, offset = known.placed or ("", -1)
        if not (by == who == known.holder and new == max(offset, limits.start if limits is not None else 0)):
            return False
        self.say(f"{who} sets the group's offset of {tp} from {before} to {new}, as its processor says")
        known.resets.append(ByReset(known.epoch, ResetNote("", before, new), None))
        known.placed = None
        known.wants_from(new)
        if before is None or new > before or self._nodes.is_uncommitted(tp, known.tenure):
            self.cuts.jumps(tp)  # a cut before that need not be noticed: see `docs/plugin-offsets.md`
        self._nodes.written(tp)
        self.witness.reset(tp, new, known.epoch)
        return True

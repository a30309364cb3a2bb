"""What must hold at every step of a simulated run, whatever happens: judged from the nodes, the log and the hand-outs.

The judge knows nothing of how inbound works inside. It hears of every transaction that ZooKeeper has done, and of every
batch that a processor was handed and what it answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from inbound.coordinators.nodes import OPEN, BadNodeError, EpochInfo, ResetNote, decode_epoch, decode_offset
from inbound.processors.batch import Batch, BatchResponse, Verb
from inbound.testing.scene import Member, Scene
from inbound.testing.simulation.reset_judge import ResetJudge
from inbound.testing.simulation.witness import Witness
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition

#: Within this time of calm, everybody knows what was done to it from outside. Seconds.
AWARE = 1.5


@dataclass(eq=False)
class HandOut:
    """One batch in a callback."""

    consumer: str  # the process, not its consumer id
    tp: TopicPartition
    epoch: int
    first: int
    next: int
    records: int
    began: float
    to: object  # the processor: another one of its class may take over under the same claim, from the commit on
    #: Where the answer left the position; None while there is none.
    position: int | None = None
    #: Everything before this was answered with advance, or is to be committed soon (`commit_within`).
    advanced: int = 0
    failed_alone: bool = False  # on one record, which `on_error` may give up
    #: Handed out by a zombie that could not know: its session had been ended by force.
    unaware: bool = False
    tenure: int = 0
    ended: float = float("inf")


@dataclass(frozen=True)
class _ByReset:
    """An epoch that a reset has made, and what it explains."""

    epoch: int
    note: ResetNote | None  # the move; None: it has only taken the partition from whoever held it
    overtaken: str | None  # the process whose owner node it has deleted

    def explains(self, offset: int, before: HandOut) -> bool:
        """Whether what was handed out before may come again because of it."""
        note = self.note
        back = note is not None and note.new <= offset and (note.old is None or offset < note.old)
        return back or self.overtaken == before.consumer


@dataclass(eq=False)
class _Partition:
    """What the judge knows of one partition."""

    commit: int | None = None
    epoch: int = 0
    holder: str | None = None  # the process whose claim made the epoch; None: it was moved from outside
    owner: str | None = None  # the process whose session has the owner node
    last: HandOut | None = None  # by anyone
    current: HandOut | None = None  # of the current epoch
    handed: dict[int, HandOut] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    #: Epochs that were made from outside: what was handed out before may come again after.
    tenure: int = 0  # counts claims. The epoch can also be moved on by its own holder, with a commit
    outside: list[int] = field(default_factory=list)
    resets: list[_ByReset] = field(default_factory=list)
    moved_at: float = -1.0  # by a reset
    placed: tuple[str, int] | None = (
        None  # a process says where its claim begins, and the group's offset is not there yet
    )
    asked: tuple[str, int] | None = None  # whose processor was asked last where its claim begins, and which claim
    untold: ResetNote | None = None  # of the last move: no processor has heard of it yet
    topic_id: str | None = None  # in the epoch node: the topic that the offset is about
    topic_changed_at: int = -1  # the transaction that changed it last: it may set the offset to 0
    of_deleted_topic: bool = False  # and nobody has begun the new one yet
    disowned: bool = False  # somebody deleted the owner node by hand
    read_at: float = -1.0  # when it was last handed out to its owner
    may_start_late: bool = False  # `latest`: no offset was ever committed, and the partition is no late addition
    #: The lowest offset at which the log was cut since the commit went back for that, and when it was cut last.
    cut_at: int | None = None
    cut_when: float = -1.0
    gone_to: int = 0  # where it ended before: up to there, somebody may still have what is gone


class Judge:
    """Collects violations; the first one is what the run is about."""

    def __init__(self, world: Scene, *, latest: bool, of: str = "") -> None:
        """`of` says before each line which group it is about; the only one needs no name."""
        self.world = world
        self._of = of
        self.violations: list[str] = []
        self.trace: list[tuple[float, str]] = []
        self.releases = 0
        self.handed_out = 0
        self.repeated = 0
        self._latest = latest
        #: Whether a record that fails may be given up: it is with the dead letters, where that is where it goes.
        self.may_give_up: Callable[[TopicPartition, int], bool] = lambda tp, offset: False
        #: A callback that takes longer is given up where somebody waits for its partition.
        self.patience = float("inf")
        self._calm_from = float("inf")
        self._partitions: dict[TopicPartition, _Partition] = defaultdict(_Partition)
        self._lost_session: dict[str, float] = {}  # process: when one of its sessions last expired
        self._expired_by_force: set[int] = set()
        self._in_callback: set[tuple[str, TopicPartition]] = set()
        self._root = f"{world.paths.root}/"
        self.resets = ResetJudge(world, self.violated, self.say)
        self.witness = Witness(world.kafka)
        self._by_reset: Mapping[TopicPartition, EpochInfo] = {}  # the epochs made by the transaction in hand
        world.ensemble.observers.append(self._committed)

    # -- told by the run -----------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        """Note something for the story of the run."""
        self.trace.append((self.world.clock.now(), self._of + what))

    def violated(self, what: str) -> None:
        """Note that something happened that must not."""
        self.say(f"VIOLATION: {what}")
        self.violations.append(self._of + what)

    def initial_partitions(self, tps: list[TopicPartition]) -> None:
        """These exist before anybody reads: with `latest`, what is in them then need not be read."""
        for tp in tps:
            self._partitions[tp].may_start_late = self._latest

    def forced(self, session: int) -> None:
        """The servers end a session that its client believes in: what it hands out before it hears of that is its right."""
        self._expired_by_force.add(session)

    def is_unaware(self, member: Member) -> bool:
        """Whether the servers have ended its session by force: until it hears of that, it does as if they had not."""
        return member.zk.session is not None and member.zk.session.id in self._expired_by_force

    def moved(self, tp: TopicPartition) -> None:
        """Somebody from outside has moved the offset, or the log has lost its end."""
        known = self._partitions[tp]
        known.outside.append(known.epoch + 1)
        known.current = None

    def disowned(self, tp: TopicPartition) -> None:
        """Somebody deletes an owner node by hand: its consumer gets it back, unless another one is first."""
        known = self._partitions[tp]
        known.outside.append(known.epoch + 1)
        known.disowned = True

    def recreated(self, tp: TopicPartition) -> None:
        """The topic was deleted and is created anew: until somebody begins at its start, nothing can be said."""
        self._partitions[tp].of_deleted_topic = self._partitions[tp].topic_id is not None

    def cut(self, tp: TopicPartition, end: int) -> None:
        """The log loses everything from `end` on: what stands there later are other records.

        Who has read further than that goes back: to its commit, or, where that is behind the cut, to where the configuration
        says. It may hand out before what it has read already.
        """
        known = self._partitions[tp]
        known.cut_at = end if known.cut_at is None else min(end, known.cut_at)
        known.cut_when = self.world.clock.now()
        limits = self.world.kafka.log_range(tp)
        known.gone_to = max(known.gone_to, limits.end if limits is not None else 0)
        known.handed = {offset: given for offset, given in known.handed.items() if offset < end}
        known.done = {offset for offset in known.done if offset < end}

    def calm(self) -> None:
        """The storm is over; soon nobody has an excuse any more."""
        self._calm_from = self.world.clock.now()

    def owners(self) -> dict[TopicPartition, str | None]:
        """Return which process owns which partition, as the nodes say."""
        return {tp: known.owner for tp, known in sorted(self._partitions.items())}

    def tenures(self) -> dict[TopicPartition, int]:
        """Return how often each partition was claimed."""
        return {tp: known.tenure for tp, known in sorted(self._partitions.items())}

    def commit_of(self, tp: TopicPartition) -> int | None:
        return self._partitions[tp].commit

    def read_at(self, tp: TopicPartition) -> float:
        """Return when it was last handed out to its owner."""
        return self._partitions[tp].read_at

    # -- hand-outs -----------------------------------------------------------------------------------------------------

    def begins(self, consumer: Member, batch: Batch, to: object, *, starts: bool = False) -> HandOut:
        """A processor is handed a batch; `starts`: it says itself where each claim begins."""
        tp = TopicPartition(batch.topic, batch.partition)
        name, known = consumer.name, self._partitions[tp]
        given = HandOut(
            name, tp, batch.epoch, batch.first_offset, batch.next_offset, len(batch), self.world.clock.now(), to
        )
        self.handed_out += 1
        self.witness.handed(tp, batch)
        self.say(f"{name} is handed {tp} {given.first}..{given.next - 1}, epoch {given.epoch}")
        if (name, tp) in self._in_callback:
            self.violated(f"{name} is handed {tp} while it has a batch of it")
        self._in_callback.add((name, tp))
        if given.epoch == known.epoch and known.holder == name:
            given.tenure = known.tenure
        given.unaware = not self._is_owner(consumer, known, given)
        given.unaware |= known.of_deleted_topic
        if not given.unaware:
            if known.untold is not None and known.commit == known.untold.new:
                self.violated(f"{name} is handed {tp}, and no processor was told that a reset has moved it")
            self._judge_position(known, given)
            known.read_at = given.began
            if starts and known.asked != (name, known.tenure):
                self.violated(f"{name} is handed {tp}, and its processor was not asked where this claim begins")
        if given.epoch == known.epoch and given.consumer == known.holder:
            known.current = given
        for record in batch.records:
            if known.cut_at is not None and record.offset >= known.cut_at:
                if not self.world.kafka.holds(tp, record):
                    continue  # read before the cut
                self._judge_reading_over_a_cut(known, given)
            before = known.handed.get(record.offset)
            if before is not None:
                self.repeated += 1
                if not given.unaware:
                    self._judge_repeat(known, given, before, record.offset)
            known.handed[record.offset] = given
        return given

    def told(self, consumer: Member, tp: TopicPartition, old: int | None, new: int) -> None:
        """A processor is told of a reset."""
        self.say(f"{consumer.name} is told that a reset has moved {tp} from {old} to {new}")
        if (tp, old, new) not in self.resets.moves:
            self.violated(f"{consumer.name} is told that a reset has moved {tp} from {old} to {new}; none has")
        known = self._partitions[tp]
        if known.untold is not None and (known.untold.old, known.untold.new) == (old, new):
            known.untold = None

    def placed(self, consumer: Member, tp: TopicPartition, offset: object) -> None:
        """A processor says where its claim begins: the group's offset follows before the first batch."""
        self.say(f"{consumer.name} begins {tp} at {offset}")
        known = self._partitions[tp]
        known.asked = consumer.name, known.tenure
        if isinstance(offset, int) and offset >= 0:
            known.placed = consumer.name, offset

    def ends(self, given: HandOut, response: object) -> None:
        """The callback has ended: with an answer, or None if it failed."""
        given.ended = self.world.clock.now()
        self._in_callback.discard((given.consumer, given.tp))
        given.position = given.first
        self.say(f"{given.consumer} answers for {given.tp} {given.first}..{given.next - 1}: {_told(response)}")
        taken = isinstance(response, BatchResponse) and self._answered(given, response, given.first, given.next)
        given.failed_alone = not taken and given.records == 1

    def answers(self, consumer: Member, tp: TopicPartition, response: object) -> None:
        """A callback without a batch answers: all that was handed out since the commit counts as the batch."""
        given = self._partitions[tp].current
        if isinstance(response, BatchResponse) and given is not None and given.consumer == consumer.name:
            self.say(f"{consumer.name} answers for {tp} without a batch: {_told(response)}")
            position = given.position if given.position is not None else given.first
            self._answered(given, response, position, position)

    def finished(self, consumer: Member, batch: Batch, offset: int, by: object) -> None:
        """A processor that has answered `next` has finished what is before `offset`."""
        tp = TopicPartition(batch.topic, batch.partition)
        given = self._partitions[tp].current
        if given is not None and (given.consumer, given.to) == (consumer.name, by):
            self._done(given, offset)

    def failure_answered(self, consumer: Member, tp: TopicPartition, response: object) -> None:
        """`on_exception` says what to do about the batch that failed."""
        given = self._partitions[tp].current
        if isinstance(response, BatchResponse) and given is not None and given.consumer == consumer.name:
            self.say(f"{consumer.name} answers for {tp} after the failure: {_told(response)}")
            self._answered(given, response, given.first, given.next)

    def _answered(self, given: HandOut, response: BatchResponse, first: int, end: int) -> bool:
        """Take an answer in. Returns whether it is one that can be used."""
        known = self._partitions[given.tp]
        floor = known.commit if known.commit is not None else first
        target = response.offset
        if response.verb is Verb.REVERT:
            if target is not None and target > end:
                return False
            given.position = min(floor, first) if target is None else target
        else:
            advance = response.verb is Verb.ADVANCE
            if advance and target is not None and (target < floor or (target > end and not response.skip)):
                return False
            given.position = end if target is None else target
            if given.position > end:
                self.witness.left_out(given.tp, end, given.position)
                known.done.update(range(end, given.position))
            if advance or response.commit_within is not None:
                self._done(given, given.position)
        for offset in range(given.position, end):  # it is to be handed out again, and no commit may pass it before
            known.done.discard(offset)
            if offset in known.handed:
                known.handed[offset].advanced = min(known.handed[offset].advanced, given.position)
        return True

    def _done(self, given: HandOut, end: int) -> None:
        """What this claim was handed out before `end` may be committed, also what it read before with `next`."""
        known = self._partitions[given.tp]
        given.advanced = end
        for offset in range(known.commit or 0, end):
            before = known.handed.get(offset)
            if before is not None and (before.tenure, before.consumer, before.to) == (
                given.tenure,
                given.consumer,
                given.to,
            ):
                before.advanced = max(before.advanced, end)
                if given.began >= known.moved_at:  # else its commit is void, and the next owner processes it
                    known.done.add(offset)

    def _given_up(self, given: HandOut | None, offset: int) -> bool:
        return given is not None and given.failed_alone and self.may_give_up(given.tp, offset)

    def _is_owner(self, consumer: Member, known: _Partition, given: HandOut) -> bool:
        """Whether it may be handed the batch at all. If it cannot know better, that is no violation."""
        if self.is_unaware(consumer):
            return False
        if known.epoch == given.epoch and known.owner == given.consumer:
            return True
        overtaken = [by.overtaken for by in known.resets if by.epoch > given.epoch]
        if given.consumer in overtaken and self.world.clock.now() < self._calm_from + AWARE:
            return False
        if (known.disowned or known.epoch in known.outside) and self.world.clock.now() < self._calm_from + AWARE:
            return False
        if known.holder is not None or known.epoch == given.epoch or known.resets:
            self.violated(
                f"{given.consumer} is handed {given.tp} in epoch {given.epoch}; epoch {known.epoch} is "
                f"{known.holder}'s and the owner node {known.owner}'s"
            )
        return False

    def _judge_position(self, known: _Partition, given: HandOut) -> None:
        if known.commit is None:
            self.violated(f"{given.tp} is handed out before its first position is committed")
            return
        before = known.current
        expected = known.commit
        if (
            before is not None
            and (before.tenure, before.to) == (given.tenure, given.to)
            and before.position is not None
        ):
            expected = before.position
            if self._given_up(before, before.first) and given.first >= before.next:
                expected = before.next
        if before is not None and before.began <= known.cut_when and given.first == known.commit:
            return  # back to the commit, over a cut
        self._no_record_between(given, expected)

    def _judge_reading_over_a_cut(self, known: _Partition, given: HandOut) -> None:
        """What was published after a cut is handed out from its beginning."""
        offsets = self.world.kafka.offsets(*given.tp)
        missing = [o for o in offsets if (known.cut_at or 0) <= o < given.first and o not in known.handed]
        if missing:
            self.violated(
                f"{given.consumer} reads on in {given.tp} at {given.first}, although the log was cut at {known.cut_at}: {missing} "
                "were published since, and nobody was handed them"
            )

    def _no_record_between(self, given: HandOut, expected: int) -> None:
        low, high = sorted((expected, given.first))
        between = [o for o in self.world.kafka.offsets(*given.tp) if low <= o < high]
        if between:
            self.violated(
                f"{given.consumer} reads {given.tp} at {given.first} instead of {expected}: {between} lie between"
            )

    def _judge_repeat(self, known: _Partition, given: HandOut, before: HandOut, offset: int) -> None:
        what = f"{given.tp} offset {offset} is handed out again, to {given.consumer} in epoch {given.epoch}"
        same = before.consumer == given.consumer and before.tenure == given.tenure
        if before.position is not None and offset >= before.advanced:
            return  # its processor did not advance over it
        if before.began <= known.cut_when:
            return  # reading goes back over a cut
        if min(before.ended, given.began) - before.began > self.patience:
            return  # it was given up inside its callback
        if before.unaware or any(before.epoch < epoch <= given.epoch for epoch in known.outside):
            return
        if any(before.epoch < by.epoch <= given.epoch and by.explains(offset, before) for by in known.resets):
            return
        if offset < (known.commit or 0):
            self.violated(f"{what}, although it is committed")
        elif same:
            self.violated(f"{what}, after the same process has had it under the same claim")
        elif before.consumer == given.consumer and given.tenure == before.tenure + 1:
            self.violated(f"{what}, because it gave it up by itself")
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
            if kind != "data" or not path.startswith(self._root):
                continue
            family, _, rest = path[len(self._root) :].partition("/")
            topic, _, number = rest.rpartition("/")
            if family == "ids" and rest:
                self._id_changed(commit, path, rest, who)
            elif number.isdigit() and topic and family in ("owners", "offsets", "epochs"):
                change = {"owners": self._owner_changed, "offsets": self._offset_changed, "epochs": self._epoch_changed}
                change[family](commit, path, TopicPartition(topic, int(number)), who)

    def _id_changed(self, commit: Commit, path: str, consumer_id: str, who: str | None) -> None:
        node = commit.after.get(path)
        if node is None and not commit.expired and who is not None:
            self.say(f"{who} takes the id node of {consumer_id} down")

    def _epoch_changed(self, commit: Commit, path: str, tp: TopicPartition, who: str | None) -> None:
        node, known = commit.after.get(path), self._partitions[tp]
        if node is None or node.stat.version < known.epoch:
            self.violated(f"the epoch node of {tp} was deleted by {who}")
            return
        if node.stat.version == known.epoch:
            return
        known.epoch = node.stat.version
        topic_id = self._topic_id(path, node.data)
        if topic_id is not None and topic_id != known.topic_id:
            if known.topic_id is not None:
                known.topic_changed_at = commit.after.zxid
            known.topic_id = topic_id
        if tp in self._by_reset:
            note = self.resets.notes.get(tp)
            taken = ("data", self.world.paths.owner(*tp)) in commit.changed
            known.resets.append(_ByReset(known.epoch, note, known.owner if taken else None))
            known.tenure += 1
            known.holder = known.current = None
            self.say(f"{who} moves {tp} to epoch {known.epoch} for a reset{'' if note is None else f': {note}'}")
            return
        if (
            who is not None
            and who == known.holder == known.owner
            and ("data", self.world.paths.owner(*tp)) not in commit.changed
        ):
            self.say(f"{who} moves {tp} on to epoch {known.epoch}")
            return
        known.tenure += 1
        known.holder, known.current = who, None
        self.say(f"{who or 'somebody outside'} moves {tp} to epoch {known.epoch}")

    def _topic_id(self, path: str, data: bytes) -> str | None:
        try:
            info = decode_epoch(path, data)
        except BadNodeError:
            return None
        return info.topic_id if info is not None else None

    def _owner_changed(self, commit: Commit, path: str, tp: TopicPartition, who: str | None) -> None:
        node, known = commit.after.get(path), self._partitions[tp]
        before, known.owner = known.owner, None
        if node is not None:
            known.owner, known.disowned = who, False
            expected = (
                self.world.consumers[who].consumer_id if who is not None and who in self.world.consumers else None
            )
            if expected is not None and node.data.decode() != expected:
                self.violated(f"the owner node of {tp}, made by {who}, names {node.data!r}")
            if known.holder != who and known.holder is not None:
                self.violated(f"{who} owns {tp}, but epoch {known.epoch} is {known.holder}'s")
            gate = commit.after.get(self.world.paths.gate(tp.topic))
            if gate is None or gate.data != OPEN:
                self.violated(f"{who} takes {tp} although the gate is closed")
        self.say(f"{tp}: {'expired at ' + str(before) if commit.expired else f'{who} sets owner to {known.owner}'}")
        if commit.expired or before is None or who is None:
            return
        if tp in self._by_reset and node is None:
            self.resets.overtakes(tp, commit, before)
            return
        if who != before and not self.world.consumers[before].dead:
            self.violated(f"{who} takes down the owner node of {tp}, which is {before}'s")
        if node is None:
            self.releases += 1

    def _offset_changed(self, commit: Commit, path: str, tp: TopicPartition, who: str | None) -> None:
        node, known = commit.after.get(path), self._partitions[tp]
        try:
            new = decode_offset(path, node.data if node else b"")
        except BadNodeError as error:
            self.violated(str(error))
            return
        if new is None:
            return
        before, known.commit = known.commit, new
        if new == 0 and known.topic_changed_at == commit.after.zxid:
            known.of_deleted_topic, before = False, 0
            known.handed.clear()
            known.done.clear()
            self.witness.created_anew(tp)
        note = self.resets.notes.get(tp)
        if note is not None:
            self.say(f"{who} moves the group's offset of {tp} from {before} to {new}")
            self.resets.exact(tp, note, before)
            known.done = {offset for offset in known.done if offset < new}
            known.moved_at, known.untold = self.world.clock.now(), note
            self.witness.reset(tp, new, known.epoch)
            return
        if who is None:
            self.witness.set_from_outside(tp, new, known.epoch + 1)
            return
        if self._follows(tp, known, who, before, new):
            return
        self.witness.committed(tp, new)
        if known.of_deleted_topic:
            return
        self.say(f"{who} commits {tp} {new}")
        if who != known.holder and (known.holder is not None or known.resets):
            self.violated(f"{who} commits {tp} {new}, but epoch {known.epoch} is {known.holder}'s")
        if before is not None and known.cut_at is not None and before > known.cut_at and self._goes_over_a_cut(tp, new):
            known.cut_at, known.current, known.gone_to = None, None, 0
            return
        if before is None:
            low = 0
            if known.may_start_late:
                return
        else:
            low = before
        if new < low:
            self.violated(f"{who} sets the commit of {tp} back from {low} to {new}")
        skipped = [
            offset
            for offset in self.world.kafka.offsets(*tp)
            if low <= offset < new and offset not in known.done and not self._given_up(known.handed.get(offset), offset)
        ]
        if known.cut_at is not None and new <= known.gone_to:  # of records that are gone, maybe
            skipped = [offset for offset in skipped if offset < known.cut_at]
        if skipped:
            self.violated(f"{who} commits {tp} {new}, but {skipped} were not processed")

    def _follows(self, tp: TopicPartition, known: _Partition, who: str, before: int | None, new: int) -> bool:
        """Whether a commit goes to where the processor says that its claim begins, or to the log's start behind that."""
        limits = self.world.kafka.log_range(tp)
        by, offset = known.placed or ("", -1)
        if not (by == who == known.holder and new == max(offset, limits.start if limits is not None else 0)):
            return False
        self.say(f"{who} sets the group's offset of {tp} from {before} to {new}, as its processor says")
        known.resets.append(_ByReset(known.epoch, ResetNote("", before, new), None))
        known.placed, known.done = None, {offset for offset in known.done if offset < new}
        self.witness.reset(tp, new, known.epoch)
        return True

    def _goes_over_a_cut(self, tp: TopicPartition, new: int) -> bool:
        """Whether a commit goes to where the configuration says that reading goes on when a log was cut below it."""
        limits = self.world.kafka.log_range(tp)
        choices = {c.on_truncation for c in self.world.consumers.values()}
        if limits is None or choices == {"hold"}:
            return False
        return new == limits.start if choices == {"earliest"} else new <= limits.end


def _told(response: object) -> str:
    if not isinstance(response, BatchResponse):
        return "it fails"
    more = [f"{name} {value}" for name in ("offset", "commit_within", "wait") if (value := getattr(response, name))]
    return ", ".join([response.verb.value, *more])

"""The partitions that this consumer holds, as ZooKeeper sees it: claimed, verified, recovered, released.

Runs on the controller's thread. What to hold is decided in `inbound.membership`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.ownership import Claim, OtherTopicError, Ownership, Verdict
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, Op
from inbound.errors import InboundError, TransientError, ZkUnavailableError
from inbound.kafka.reader import Reader
from inbound.partition import Fate, Partition, Place
from inbound.parts import Parts
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: How soon to ask again for an owner node that should be free any moment.
RETRY = 0.25
#: How soon to try again what failed for another reason than a lost connection.
AFTER_ERROR = 5.0
#: Who leaves waits so long for its partitions to drain, in seconds, so that they can be released together.
TOGETHER = 0.1
#: Brokers that go on naming a topic that the group knows as deleted are believed after so many seconds.
BELIEVE_AFTER = 60.0


@dataclass
class _Hearsay:
    """A partition whose topic, by name, is another one for the group than the brokers told us; they are asked again."""

    question: int
    since: float
    found: str | None = None  # the id that the group knows
    former: str | None = None  # what the brokers told us, if that is a topic that the group knows as deleted


class Holdings:
    """Carries out claims, checks and releases; `Ownership` has the transactions, `Schedule` the partitions' places."""

    def __init__(self, parts: Parts, tasks: Tasks, reader: Reader, dead_sessions: Collection[int]) -> None:
        self._parts = parts
        self._tasks = tasks
        self._reader = reader
        self._dead_sessions = dead_sessions
        self.ownership = Ownership(parts.zk, parts.config.group, parts.consumer_id)
        #: Set when the group is being left: nothing is claimed any more.
        self.leaving = False
        #: Their owner node may be ours although we do not hold them.
        self._suspects: set[TopicPartition] = set()
        self._releases: dict[TopicPartition, Call[None]] = {}
        #: While the group is being left: what drained partitions wait for, and whose owner nodes are gone already.
        self._together: Call[None] | None = None
        self._deleted: frozenset[TopicPartition] = frozenset()
        #: Partitions whose nodes cannot be read, and when to look at them again.
        self._unreadable: dict[TopicPartition, float] = {}
        self._hearsay: dict[TopicPartition, _Hearsay] = {}

    # -- beliefs against nodes ---------------------------------------------------------------------------------------

    async def verify(self) -> None:
        """Hold what we believe to hold against the nodes; drop without commit what they give to another."""
        held = [p for p in self._parts.schedule.held() if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self.ownership.verify(p.tp, p.fence) for p in held], "check")
        again = []
        self._drop_other_topics(held)
        for partition, (verdict, fence) in zip(held, verdicts, strict=True):
            if verdict is Verdict.HELD and fence.session != partition.fence.session:
                self._parts.schedule.refence(partition, fence)
            elif verdict in (Verdict.LOST, Verdict.BROKEN):
                self._drop(partition, verdict)
            elif verdict is Verdict.UNVERIFIED:
                again.append(partition)
        if again:
            await self.recover(again)
        self._parts.committer_wakeup.set()

    async def recover(self, partitions: Sequence[Partition]) -> None:
        """Get owner nodes back in the current session, under the same epochs."""
        connection = self._parts.zk.connection
        if connection is None:
            raise ZkUnavailableError(f"channel {self._parts.name}: no connection to recover its partitions with")
        needy = [p for p in partitions if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self._recover_one(p) for p in needy], "recovery")
        recovered = [p for p, verdict in zip(needy, verdicts, strict=True) if verdict is Verdict.HELD]
        if recovered:
            log.info(
                "channel %s: %d partitions verified in session %#x",
                self._parts.name,
                len(recovered),
                connection.session.id,
            )
        for partition, verdict in zip(needy, verdicts, strict=True):
            if verdict in (Verdict.LOST, Verdict.BROKEN):
                self._drop(partition, verdict)
            elif verdict is Verdict.UNVERIFIED:
                self._parts.evaluate()
        self._parts.schedule.hurry_all()
        self._parts.committer_wakeup.set()

    async def _recover_one(self, partition: Partition) -> Verdict:
        verdict, fence = await self.ownership.verify(partition.tp, partition.fence)
        if verdict is Verdict.UNVERIFIED:
            # The server declared the old session expired before it gave us a new one, so no commit of the old one can
            # land any more, and the same epoch is safe to go on with.
            verdict, fence = await self.ownership.recover(partition.tp, partition.fence)
        if verdict is Verdict.HELD:
            self._parts.schedule.refence(partition, fence)
        return verdict

    def _drop(self, partition: Partition, verdict: Verdict) -> None:
        log.warning(
            "%s: lost: %s; nothing more of it is committed", partition.tp,
            "its epoch moved on although the owner node is ours" if verdict is Verdict.BROKEN
            else "another consumer has claimed it",
        )  # fmt: skip
        self._parts.schedule.doom(partition, Fate.DROP)

    def _drop_other_topics(self, held: Sequence[Partition]) -> None:
        """Drop what was claimed in a topic that is deleted: offsets of the old one mean nothing in the new one.

        Without a commit; the claim that follows sets the offset to 0, and its epoch keeps out whatever is on its way.
        """
        for partition in held:
            tp, hearsay = partition.tp, self._hearsay.get(partition.tp)
            if not self._reader.is_another(partition):
                self._hearsay.pop(tp, None)
            elif hearsay is None:  # one old answer of one broker is not enough
                self._hearsay[tp] = _Hearsay(self._reader.ask_topics(), self._parts.clock.now())
            elif self._reader.answered(hearsay.question):
                del self._hearsay[tp]
                log.warning("%s: the topic was deleted and created anew; what was read of the old one is dropped", tp)
                partition.why_lost = "the topic was deleted and created anew; the new one is read from its start"
                self._parts.schedule.doom(partition, Fate.DROP)

    async def settle_suspects(self, owned: frozenset[TopicPartition], ours: frozenset[TopicPartition]) -> bool:
        """Where an owner node may be ours although we do not hold the partition, look; if it is, claim anew.

        After a claim whose answer was lost, or a drop: nobody else can take such a partition, and we do not read it.
        Returns False if one of them could not be had: it counts as owned, so no plan would take it; look again soon.
        """
        settled = True
        self._suspects |= self._parts.schedule.take_dropped()
        connection = self._parts.zk.connection
        for tp in sorted(self._suspects - ours):
            if tp not in owned or connection is None or not self._parts.schedule.may_claim(tp):
                continue
            node = await self._parts.zk.get(self._parts.paths.owner(*tp))
            if node is None or node.stat.ephemeral_owner != connection.session.id:
                continue
            settled &= await self.claim(tp)
        self._suspects -= {p.tp for p in self._parts.schedule.held()}
        return settled

    # -- taking and releasing ----------------------------------------------------------------------------------------

    async def take(self, partitions: Sequence[TopicPartition]) -> bool:
        """Claim these. Returns False if any of them could not be had."""
        if partitions:
            self._reader.expect()
        results = await self._tasks.gather([self.claim(tp) for tp in partitions], "claim")
        taken = [tp for tp, done in zip(partitions, results, strict=True) if done]
        if taken:
            log.info("channel %s: took %s", self._parts.name, _listed(taken))
        return len(taken) == len(partitions)

    async def claim(self, tp: TopicPartition) -> bool:
        """Claim one partition, and begin to read it. Returns whether it is ours now."""
        now = self._parts.clock.now()
        if self.leaving or not self._parts.schedule.may_claim(tp) or self._unreadable.get(tp, now) > now:
            return False
        meta = self._reader.topics.get(tp.topic)
        topic_id = meta.topic_id if meta is not None else None
        hearsay = self._hearsay.get(tp)
        if hearsay is not None and not self._may_believe(hearsay, topic_id):
            return False
        self._suspects.add(tp)
        try:
            claim = await self.ownership.claim(
                tp, self._dead_sessions, topic_id, instead_of=hearsay.found if hearsay is not None else None
            )
        except OtherTopicError as error:
            self._ask_which_topic(tp, error, hearsay)
            return False
        except BadNodeError as error:
            log.error("%s: claimed, but cannot be read: %s; looking again in %.0f s", tp, error, AFTER_ERROR)
            self._unreadable[tp] = now + AFTER_ERROR
            return False
        except TransientError as error:
            log.debug("%s: %s", tp, error)
            return False
        if claim is None:
            # Refused: whatever we sent for it cannot land any more, unless the answer before this one was lost.
            return False
        self._suspects.discard(tp)
        self._hearsay.pop(tp, None)
        if self._stop_came():
            # The stop came while the claim was on its way. Nobody would release it any more.
            await self.ownership.drop(tp, claim.fence)
            return False
        self._adopt(tp, claim)
        return True

    def _may_believe(self, hearsay: _Hearsay, topic_id: str | None) -> bool:
        """Whether the brokers have answered anew; and, for a topic known as deleted, said so for long enough."""
        if not self._reader.answered(hearsay.question):
            return False
        if topic_id != hearsay.former or self._parts.clock.now() - hearsay.since >= BELIEVE_AFTER:
            return True
        hearsay.question = self._reader.ask_topics()  # a broker that is behind the times
        return False

    def _ask_which_topic(self, tp: TopicPartition, error: OtherTopicError, before: _Hearsay | None) -> None:
        """Ask the brokers again before anything is claimed on what they said before."""
        now = self._parts.clock.now()
        same = before is not None and before.found == error.found
        since = before.since if before is not None and same else now
        former = error.told if error.former else None
        self._hearsay[tp] = _Hearsay(self._reader.ask_topics(), since, error.found, former)
        log.info("%s; asking them again", error)

    def _stop_came(self) -> bool:
        return self.leaving

    def _adopt(self, tp: TopicPartition, claim: Claim) -> None:
        parts = self._parts
        partition = Partition(tp, claim.fence, claim.offset, claim.added_later, claim.topic_id)
        if claim.recreated:
            log.warning("%s: the topic was deleted and created anew; the group starts at offset 0 of the new one", tp)
            parts.note("reset", tp, claim.fence.epoch, old=claim.old, new=0, reason="topic created anew")
        parts.note("claimed", tp, claim.fence.epoch, position=claim.offset, session=claim.fence.session)
        parts.schedule.adopt(partition)
        self._reader.open(partition)

    def release(self, partition: Partition) -> Call[None]:
        """Start to release a partition, once. Returns what completes when it is out of our hands."""
        running = self._releases.get(partition.tp)
        if running is None or running.done:
            running = self._releases[partition.tp] = self._tasks.spawn(
                self._give_up(partition), f"release of {partition.tp}"
            )
        return running

    async def _give_up(self, partition: Partition) -> None:
        """Let the partition drain, then delete its owner node; ends when it is out of our hands."""
        drained: Call[None] = Call(f"drain of {partition.tp}")
        partition.on_given_up = lambda: drained.succeed(None)
        self._parts.schedule.doom(partition, Fate.RELEASE)
        await drained
        if self._together is not None:
            await self._together
        while partition.place is Place.LEAVING and partition.fate is not Fate.DROP:
            if partition.tp in self._deleted:
                break
            try:
                await self.ownership.release(partition.tp, partition.fence, None)
                await self._suspect_if_still_ours(partition.tp)
                break
            except TransientError as error:
                log.debug("%s: %s", partition.tp, error)
                await self._tasks.sleep(RETRY)
            except InboundError as error:
                log.error("%s: cannot be released: %s; trying again in %.0f s", partition.tp, error, AFTER_ERROR)
                await self._tasks.sleep(AFTER_ERROR)
        released = partition.place is Place.LEAVING
        if released:
            log.info("channel %s: released %s", self._parts.name, partition.tp)
            self._parts.note("released", partition.tp, partition.fence.epoch)
        self._parts.schedule.leave(partition)
        self._parts.evaluate()

    async def _suspect_if_still_ours(self, tp: TopicPartition) -> None:
        """Look whether a release has left an owner node of ours behind: it was refused, for the epoch is another's.

        Somebody outside has moved the epoch (a reset). Nobody else can take such a partition, and we do not hold it.
        """
        connection = self._parts.zk.connection
        if self.leaving or connection is None:
            return  # the node goes with the session
        node = await self._parts.zk.get(self._parts.paths.owner(*tp))
        if node is not None and node.stat.ephemeral_owner == connection.session.id:
            self._suspects.add(tp)

    async def leave(
        self, members_part: Sequence[Op], otherwise: Callable[[], Coroutine[Call[Any], None, None]]
    ) -> None:
        """Release everything, and carry out `members_part` (the id node's deletion) with the first of it.

        What has drained by then goes in one transaction with the id node. The others see at once all that is to be had,
        each takes its share of it, and nobody looks twice. What takes longer follows as it drains. If that transaction
        does not come about, `otherwise` is awaited, and the partitions are released one by one.
        """
        held = [p for p in self._parts.schedule.held() if p.fate is not Fate.DROP]
        self.leaving = True
        together: Call[None] = Call("the others that leave")
        self._together = together
        releases = [self.release(p) for p in held]
        try:
            soon = self._parts.clock.now() + TOGETHER
            while any(p.place not in (Place.LEAVING, Place.GONE) for p in held) and self._parts.clock.now() < soon:
                await self._tasks.sleep(TOGETHER / 10)
            ready = [p for p in held if p.place is Place.LEAVING and p.fate is Fate.RELEASE]
            try:
                self._deleted = await self.ownership.release_all([(p.tp, p.fence) for p in ready], members_part)
            except InboundError as error:
                log.debug("channel %s: releasing one by one: %s", self._parts.name, error)
                await otherwise()
        finally:
            together.succeed(None)
        for release in releases:
            await release

    @property
    def nothing_to_commit(self) -> bool:
        """Whether all that is left to do is to delete owner nodes."""
        return all(p.place is Place.LEAVING for p in self._parts.schedule.held())


def _listed(partitions: Sequence[TopicPartition]) -> str:
    text = ", ".join(map(str, sorted(partitions)[:20]))
    return text if len(partitions) <= 20 else f"{text} and {len(partitions) - 20} more"

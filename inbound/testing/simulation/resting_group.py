"""Judges a group at rest: its shares, its requests, and probes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inbound.coordinators.assignment import share
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.static import StaticCoordinator
from inbound.coordinators.zookeeper import Create, Delete
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.testing.simulation.stage import Stage
    from inbound.testing.world import Consumer


@dataclass(frozen=True)
class RankedMember:
    """One member, in the order of seniority among its like."""

    name: str
    kind: str  # see `make`
    joined: int


def make(kind: str, topics: Sequence[str]) -> ZkCoordinator:
    """Return a coordinator: `dynamic`, `fixed-count N`, or `static N` (that partition)."""
    name, _, number = kind.partition(" ")
    if name == "static":
        return StaticCoordinator({topic: [int(number)] for topic in topics})
    if name == "fixed-count":
        return FixedCountCoordinator(int(number))
    return DynamicCoordinator()


def wrong_shares(
    members: Sequence[RankedMember], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str | None]
) -> str | None:
    """Return a wrong share of members that read every topic, or None."""
    everything = [TopicPartition(topic, p) for topic, count in partitions.items() for p in range(count)]
    of = {member.name: member for member in members}
    for tp in everything:
        rightful = [m.name for m in members if m.kind == f"static {tp.partition}"]
        if rightful and owners.get(tp) not in rightful:
            return f"{tp} is listed by {', '.join(rightful)}, and {owners.get(tp)} owns it"
    listed = {tp for tp in everything if any(m.kind == f"static {tp.partition}" for m in members)}
    shared = [tp for tp in everything if tp not in listed]
    fixed = sorted((m for m in members if m.kind.startswith("fixed-count")), key=lambda m: m.joined)
    left: Counter[str] = Counter(tp.topic for tp in shared)
    for member in fixed:
        for topic in partitions:
            due = min(int(member.kind.split()[1]), left[topic])
            left[topic] -= due
            has = sum(owners.get(tp) == member.name and tp.topic == topic for tp in shared)
            if has != due:
                return f"{member.name} ({member.kind}) owns {has} partitions of {topic} instead of {due}"
    dynamic = [m.name for m in members if m.kind == "dynamic"]
    if not dynamic:
        return None
    unowned = [str(tp) for tp in shared if owners.get(tp) not in of]
    if unowned:
        return f"no member owns {', '.join(unowned)}"
    counts = {name: sum(owners.get(tp) == name for tp in shared) for name in dynamic}
    return f"shares {counts}" if max(counts.values()) - min(counts.values()) > 1 else None


#: The most requests of a member at rest, in less time than its backoff for a refused partition;
MOST_REQUESTS = 70
#: and for each claim, with the check of the held partitions that follows it.
OF_A_CLAIM = 12


class Requests:
    """Counts the members' requests from `begin` on; `check` judges them."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._commits: Counter[str] = Counter()  # executed ones by process, which have work to do
        self.begin()
        stage.ensemble.observers.append(self._executed)

    def begin(self) -> None:
        """Count from now on."""
        self._from = self._stage.world.clock.now()
        self._asked = {c.name: self._so_far(c.name) for c in self._stage.living()}
        self._tenures = [judge.tenures() for judge in self._stage.judges()]

    def check(self) -> None:
        """Judge the requests since `begin`; each claim may cost some."""
        claims, time = 0, self._stage.world.clock.now() - self._from
        for judge, before in zip(self._stage.judges(), self._tenures, strict=True):
            for tp, tenure in judge.tenures().items():
                new = tenure - before.get(tp, 0)
                claims += min(new, 1) if tp in judge.refused else new
        for name in [c.name for c in self._stage.living() if c.name in self._asked]:
            asked = self._so_far(name) - self._asked[name]
            if asked > MOST_REQUESTS + OF_A_CLAIM * claims:
                but = f" but {claims} claims" if claims else ""
                self._stage.judge.violated(
                    f"{name} has asked ZooKeeper {asked} times in {time:.1f} s, with nothing to do{but}"
                )

    def _so_far(self, name: str) -> int:
        return self._stage.world.consumers[name].zk.requests - self._commits[name]

    def _executed(self, commit: Commit) -> None:
        name = self._stage.ensemble.clients_of.get(commit.session)
        families = {path.split("/")[3] for kind, path in commit.changed if kind == "data" and path.count("/") == 5}
        if name is not None and not commit.expired and "offsets" in families and "owners" not in families:
            self._commits[name] += 1


#: A probe's changes are over within this time, in virtual seconds.
PROBE = 6.0
#: A probe lets no member join a group of this size.
MOST_MEMBERS = 6


class Probes:
    """Probes disturb a settled group for `PROBE` seconds each."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._settle()

    def _settle(self) -> None:
        self._owners, self._tenures = self._stage.judge.owners(), self._stage.judge.tenures()
        #: How many partitions must move by the end, and to whom they may.
        self._must_move: Callable[[], tuple[int, set[str]]] = lambda: (0, set())

    def begin(self, probe: str) -> None:
        """Do one thing to the group."""
        stage = self._stage
        stage.scheduler.reseed(f"{stage.plan.seed} probe {probe}")
        stage.judge.say(f"-- probe: {probe}")
        self._settle()
        members = stage.staying()
        if probe == "join" and len(members) < MOST_MEMBERS:
            joiner = stage.join()
            due = share(len(members), len(members) + 1, len(stage.partitions()))
            self._must_move = lambda: (due, {joiner.name})
        elif probe == "leave" and (leavers := self._leavers()):
            leaver = leavers[stage.plan.seed % len(leavers)]
            owned = stage.counts()[leaver.name]
            stage.leave(leaver)
            self._must_move = lambda: (owned, {c.name for c in stage.staying()})
        elif probe == "blink":
            for consumer in members:
                stage.ensemble.disconnect(consumer.name)
        elif probe == "outage":
            stage.ensemble.down()
            stage.scheduler.at(stage.world.clock.now() + 1.5, stage.ensemble.up)
        elif probe == "expire all":
            stage.expire(members)
        elif probe == "pause":
            self._pause()

    def end(self) -> None:
        """Judge which partitions have moved."""
        stage, judge = self._stage, self._stage.judge
        if stalled := stage.stalled():
            judge.violated(f"not committed to the end after a probe: {', '.join(stalled)}")
        owners = judge.owners()
        moved = {tp for tp, owner in owners.items() if self._owners.get(tp) != owner}
        claimed = {tp for tp, tenure in judge.tenures().items() if self._tenures.get(tp) != tenure}
        expected, receivers = self._must_move()
        wrong = [str(tp) for tp in moved if owners[tp] not in receivers]
        judged = not (stage.plan.setup.others and receivers) and stage.make_coordinator is None
        # Where rights differ, how few moves would do is no simple sum.
        if judged and (len(moved) != expected or wrong or claimed != moved):
            judge.violated(
                f"{len(moved)} partitions moved and {len(claimed)} were claimed instead of {expected}"
                + (f"; {', '.join(wrong)} should have stayed" if wrong else "")
            )
        stage.check_shares()

    def _leavers(self) -> list[Consumer]:
        """Return the members that may leave: one dynamic member must stay."""
        dynamic = [c for c in self._stage.staying() if self._stage.kinds[c.name] == "dynamic"]
        return [c for c in self._stage.staying() if dynamic != [c]]

    def _pause(self) -> None:
        """Pause the group; records published then must wait for its resumption."""
        stage = self._stage
        now, path = stage.world.clock.now(), stage.paths.pause("operator")
        stage.write_by_hand(Create(path))

        def publish() -> None:
            handed_out = stage.judge.handed_out
            for tp in stage.partitions():
                stage.kafka.publish(*tp, [b"while paused"])
            stage.scheduler.at(now + 3.5, lambda: go_on(handed_out))

        def go_on(handed_out: int) -> None:
            if stage.judge.handed_out != handed_out:
                stage.judge.violated("a batch was delivered in a paused group")
            stage.write_by_hand(Delete(path))

        stage.scheduler.at(now + 1.5, publish)

"""Mirrors offsets to a simulated Kafka group, and judges what is sent.

The mirror promises little (`docs/offsets-mirror.md`): it is in no commit's way, it sends what the group's offset is or was, of
its own partitions, and when all has been well for a while both are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from inbound.errors import BrokerUnavailableError
from inbound.mirror.plan import (
    ANSWER_WAIT,
    EVERY,
    LIVE_GROUP_AGAIN,
    ONCE_MORE,
    RELEASED_KEPT,
    Answer,
    Asked,
    Connect,
    Kind,
)
from inbound.testing.simulation.reset_judge import changed_nodes, changed_offsets
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.testing.simulation.stage import Stage

#: How long a request and its answer are in flight at most; and how soon a process knows of a release. Seconds.
LATENCY, AWARE = 0.2, 0.5
#: Seconds after the storm in which the last failure is retried, and then everything is sent once more.
SETTLED = 16.0 + ANSWER_WAIT + ONCE_MORE + EVERY + 1.0


@dataclass(eq=False)
class _Owned:
    """When a process last had a partition; `until` inf: it still has."""

    since: float
    until: float = float("inf")
    expired: bool = False  # it has lost it with its session


@dataclass(eq=False)
class _MirrorRequest:
    offsets: dict[TopicPartition, int]
    answer: Answer | None = None


class Mirrors:
    """The Kafka group's coordinator, which judges each request."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.groups = stage.world.groups
        self.hangs = 0.0  # requests are not answered, and executed at most this much later
        self.share = 1  # one request in this many hangs
        self._rng = Random(f"{stage.plan.seed} mirrors")
        #: What the group's offset is (until inf) and was, and until when.
        self._had: dict[TopicPartition, dict[int, float]] = defaultdict(dict)
        self._owned: dict[tuple[str, TopicPartition], _Owned] = {}
        self._under_way: dict[str, tuple[_MirrorRequest, float]] = {}  # by process, and since when
        self._refused: dict[str, float] = {}  # when a process heard that the group has members
        stage.ensemble.observers.append(self._committed)

    def connect(self, process: str) -> Connect:
        """Return what makes the clients of a process."""

        def connect(group: str) -> _MirrorClient:
            if not self.groups.is_up:
                raise BrokerUnavailableError("Kafka (fake) does not answer")
            return _MirrorClient(self, process, group)

        return connect

    def send(self, process: str, group: str, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        """A process sends offsets."""
        request, now = _MirrorRequest(dict(offsets)), self.stage.world.clock.now()
        self._judge_sending(process, request, now)
        self._under_way[process] = request, now
        silent = self.hangs > 0 and self._rng.randrange(self.share) == 0
        late = min(self.hangs, ANSWER_WAIT - 1.0) * self._rng.random()

        def execute() -> None:
            answer = self.groups.write(group, request.offsets)
            if answer is not None and not silent:
                self.stage.scheduler.at_next(self._rng.random() * LATENCY, lambda: answered(answer))

        def answered(answer: Answer) -> None:
            request.answer = answer
            if not self.stage.world.consumers[process].dead:
                if any(refusal.kind is Kind.LIVE_GROUP for refusal in answer.values()):
                    self._refused[process] = self.stage.world.clock.now()
                wake()

        self.stage.scheduler.at_next(late if silent else self._rng.random() * LATENCY, execute)
        return lambda: request.answer

    def check(self) -> None:
        """Judge the Kafka group after a calm in which everything was resent."""
        if self._refused:
            return  # it is asked again minutes later
        has = self.groups.offsets.get(self.stage.world.group, {})
        # There can be a lot to catch up with: then commits still land, and what landed since the last request waits for the next.
        waits = self.stage.world.clock.now() - EVERY - 2 * LATENCY
        owners = self.stage.judge.owners()
        wrong = [
            f"{tp} is at {has.get(tp)} instead of {commit}"
            for tp in self.stage.partitions()
            if owners.get(tp) is not None
            and (commit := self.stage.judge.commit_of(tp)) is not None
            and self._had[tp].get(has.get(tp, -1), -1.0) < waits
        ]
        if wrong:
            self.stage.judge.violated(f"in the Kafka group {', '.join(wrong)}")

    # -- what must hold ----------------------------------------------------------------------------------------------------

    def _judge_sending(self, process: str, request: _MirrorRequest, now: float) -> None:
        judge, consumer = self.stage.judge, self.stage.world.consumers[process]
        judge.say(f"{process} sends {', '.join(f'{tp} {offset}' for tp, offset in request.offsets.items())} to Kafka")
        before, since = self._under_way.get(process, (None, -1.0))
        if before is not None:
            if before.answer is None and now < since + ANSWER_WAIT and not consumer.stopping:
                judge.violated(f"{process} sends offsets to Kafka while a request of its own is on its way")
            elif now < since + EVERY * 0.99 and not consumer.stopping:
                judge.violated(f"{process} sends offsets to Kafka again after {now - since:.3f} s")
        if now < self._refused.get(process, float("-inf")) + LIVE_GROUP_AGAIN:
            judge.violated(f"{process} sends offsets to a Kafka group again that has members")
        for tp, offset in request.offsets.items():
            owned = self._owned.get((process, tp))
            if owned is None or self._had[tp].get(offset, -1.0) < owned.since:
                judge.violated(
                    f"{process} sends {tp} {offset} to Kafka, which the group's offset was not since it has it"
                )
            elif now > owned.until + (0.0 if owned.expired else RELEASED_KEPT + AWARE) and not judge.is_unaware(
                consumer
            ):
                how = "lost" if owned.expired else "given up"
                judge.violated(f"{process} sends {tp} to Kafka, which it has {how} {now - owned.until:.1f} s ago")

    def _committed(self, commit: Commit) -> None:
        stage, now = self.stage, self.stage.world.clock.now()
        for family, path, tp in changed_nodes(commit, stage.paths):
            if family == "owners":
                self._owner_changed(commit, tp, owned=commit.after.get(path) is not None)
        for tp, offset in changed_offsets(commit, stage.paths):
            had = self._had[tp]
            had.update({before: now for before, until in had.items() if until == float("inf")})
            had[offset] = float("inf")

    def _owner_changed(self, commit: Commit, tp: TopicPartition, *, owned: bool) -> None:
        now = self.stage.world.clock.now()
        for (_, other), had in self._owned.items():
            if other == tp and had.until == float("inf"):
                had.until, had.expired = now, commit.expired
        if owned and commit.session:
            key = self.stage.ensemble.clients_of[commit.session], tp
            # A claim moves the epoch. Else the partition is recovered, and had no other owner: it sends the commits it knew to
            # have landed, also where the answer to a later one was lost with the session.
            recovered = ("data", self.stage.paths.epoch(*tp)) not in commit.changed and key in self._owned
            self._owned[key] = _Owned(self._owned[key].since if recovered else now)


@dataclass
class _MirrorClient:
    mirrors: Mirrors
    process: str
    group: str

    def send(self, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        return self.mirrors.send(self.process, self.group, offsets, wake)

    def close(self) -> None:
        """There are no connections to be closed."""

"""Kafka's groups in memory, and a client that commits their offsets.

Nothing waits: an answer is there at once, or never comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inbound.errors import BrokerUnavailableError
from inbound.mirror.plan import Answer, Asked, Kind, RefusedOffset
from inbound.testing.clock import ManualClock
from inbound.topic_partition import TopicPartition


class FakeGroups:
    """The groups, and the verbs that change how they answer."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.offsets: dict[str, dict[TopicPartition, int]] = {}
        #: Each request, refused ones too: its time, its group, its offsets.
        self.requests: list[tuple[float, str, dict[TopicPartition, int]]] = []
        self.live: set[str] = set()  # groups that have members
        self.denied: set[str] = set()  # topics that we may not read
        self.loading = False  # the groups' coordinator has just been elected
        self.hangs = False  # requests are never answered
        self.is_up = True
        self.open_clients = 0

    def connect(self, group: str) -> FakeMirrorClient:
        """Return a client; raise BrokerUnavailableError if no broker answers."""
        if not self.is_up:
            raise BrokerUnavailableError("Kafka at fake:9092 does not answer; check that a broker runs there")
        return FakeMirrorClient(self, group)

    def of(self, group: str, topic: str = "orders") -> dict[int, int]:
        """Return a group's offsets of a topic, by partition."""
        return {tp.partition: offset for tp, offset in sorted(self.offsets.get(group, {}).items()) if tp.topic == topic}

    def write(self, group: str, offsets: Mapping[TopicPartition, int]) -> Answer | None:
        """Answer an offset commit as a broker does; None: no answer."""
        self.requests.append((self._clock.now(), group, dict(offsets)))
        if self.hangs:
            return None
        if not self.is_up:
            return dict.fromkeys(offsets, RefusedOffset(Kind.UNREACHABLE, "the connection broke"))
        if self.loading:
            return dict.fromkeys(offsets, RefusedOffset(Kind.COORDINATOR, "CoordinatorLoadInProgress"))
        if group in self.live:
            return dict.fromkeys(offsets, RefusedOffset(Kind.LIVE_GROUP, "UnknownMemberId"))
        taken = {tp: offset for tp, offset in offsets.items() if tp.topic not in self.denied}
        self.offsets.setdefault(group, {}).update(taken)
        return {tp: RefusedOffset(Kind.DENIED, "TopicAuthorizationFailed") for tp in offsets if tp not in taken}


class FakeMirrorClient:
    """See `inbound.mirror.plan.MirrorClient`."""

    def __init__(self, groups: FakeGroups, group: str) -> None:
        self._groups = groups
        self._group = group
        groups.open_clients += 1

    def send(self, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        """Have the offsets written at once."""
        answer = self._groups.write(self._group, offsets)
        if answer is not None:
            wake()
        return lambda: answer

    def close(self) -> None:
        """Count it as closed."""
        self._groups.open_clients -= 1

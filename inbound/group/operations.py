"""Operators' pause, resume and rebalance of a group.

The command line and the admin port both come here. Operations need ZooKeeper alone, and no live member.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.coordinators import pauses
from inbound.coordinators.nodes import OPEN
from inbound.coordinators.paths import GroupPaths, path_part
from inbound.coordinators.pauses import OPERATOR, Pause
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, Node, ZooKeeper, ambiguous, unavailable
from inbound.errors import InboundError

T = TypeVar("T")

#: Seconds after which the caller of an operation gets an error that its outcome is unknown.
ANSWER_SECONDS = 10.0


class OperationKind(Enum):
    """An operation."""

    PAUSE = "pause"
    RESUME = "resume"
    REBALANCE = "rebalance"
    RELEASE = "release"
    RATE = "rate"


#: Operations on one member alone, in its process: see `inbound.process.member_operations`.
OF_MEMBERS = (OperationKind.RELEASE, OperationKind.RATE)


class UnknownTargetError(InboundError):
    """The operation names a channel, or a member, that does not exist."""


class BadOperationError(InboundError):
    """The operation cannot be done to its target."""


@dataclass(frozen=True)
class Operation:
    """An operator's request. `consumer` is one member's id; None: the whole group."""

    verb: OperationKind
    consumer: str | None = None
    reason: str | None = None
    topic: str | None = None  # of `release`
    partition: int | None = None
    seconds: float | None = None  # how long it is left to others; None: until the next rebalance
    per_second: float | None = None  # of `rate`; None: as fast as it goes


@dataclass(frozen=True)
class ChannelTarget:
    """A channel that an operation is for."""

    channel: str
    group: str
    fixed_id: str | None = None  # the consumer_id that its configuration gives

    @classmethod
    def of(cls, name: str, config: ChannelConfig) -> ChannelTarget:
        """Return the target of a channel's configuration."""
        return cls(name, config.group, config.consumer_id)


@dataclass(frozen=True)
class OperationResult:
    """The result of an operation."""

    channel: str
    group: str
    operation: str
    consumer: str | None
    changed: bool  # False: the operation changed nothing
    message: str  # for people, one line
    members: list[str]  # consumer ids alive: they are notified at once
    held_by: list[str]  # the holders of pauses that remain on the group, or on the one member

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON takes it."""
        return asdict(self)


async def carry_out(
    zk: ZooKeeper, target: ChannelTarget, operation: Operation, *, by: str, wall: float
) -> OperationResult:
    """Do `operation`. `by` (the operator) and `wall` (Unix time) are for people.

    Raises:
        UnknownTargetError: no member of that id is alive, and the configuration does not name it.
        TransientError: ZooKeeper does not answer. Trying again is safe.
    """
    consumer = operation.consumer
    paths = GroupPaths(target.group)
    alive = await pauses.members_alive(zk, paths)
    if consumer is not None:
        await _known(zk, target, consumer, alive)
    since = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
    reason = pauses.one_line(operation.reason or "") or None
    mine = Pause(OPERATOR, consumer, since, by, reason)
    if operation.verb is OperationKind.PAUSE:
        before = await pauses.pause(zk, target.group, mine)
        changed, text = before is None, _paused(target, mine, before, alive)
    elif operation.verb is OperationKind.RESUME:
        ended = await pauses.resume(zk, target.group, OPERATOR, consumer)
        changed, text = bool(ended), _resumed(consumer, ended)
    else:
        await pauses.ask_rebalance(zk, target.group, mine)
        none = "no member is alive to rebalance; members that start claim their shares anyway"
        changed, text = True, "every member looks at its share now" if alive else none
    left = [p for p in await pauses.read_pauses(zk, paths) if p.consumer is None or p.consumer == consumer]
    if operation.verb is OperationKind.RESUME and left:
        text += f"; {_still(target, left)}"
    if operation.verb in (OperationKind.RESUME, OperationKind.REBALANCE):
        text += await _behind_gates(zk, paths)
    message = f"{target.channel}: {text} (group {target.group}, {_count(alive)} alive)"
    holders = sorted({p.holder for p in left})
    return OperationResult(
        target.channel, target.group, operation.verb.value, consumer, changed, message, alive, holders
    )  # fmt: skip


async def _known(zk: ZooKeeper, target: ChannelTarget, consumer: str, alive: list[str]) -> None:
    path_part(consumer, "consumer id")
    fixed = target.fixed_id
    if consumer in alive or (fixed is not None and re.fullmatch(rf"{re.escape(fixed)}(-\d+)?", consumer)):
        return  # it is alive, or a process of this configuration can have the id (`-N`: --processes)
    if any(p.consumer == consumer for p in await pauses.read_pauses(zk, GroupPaths(target.group))):
        return  # it was known once, and could never be resumed otherwise
    raise UnknownTargetError(
        f"channel {target.channel}: group {target.group} has no member {consumer!r}; alive: {', '.join(alive) or 'no member'}. "
        "One that is down can be named where its consumer_id stands in the configuration"
    )


def _paused(target: ChannelTarget, mine: Pause, before: Pause | None, alive: list[str]) -> str:
    if before is not None:
        return f"already {before.told(target.channel)}"
    if mine.consumer is None:
        return "paused; each member ends the batch in hand, keeps its partitions and reads nothing"
    if mine.consumer in alive:
        return f"member {mine.consumer} paused; it ends the batch in hand, keeps its partitions and reads nothing"
    return f"member {mine.consumer} paused; it is not alive just now, and reads nothing when it comes"


def _resumed(consumer: str | None, ended: list[Pause]) -> str:
    if not ended:
        return "was not paused by an operator" if consumer is None else f"member {consumer} was not paused on its own"
    if consumer is not None:
        return f"member {consumer} resumed"
    members = [p.consumer for p in ended if p.consumer is not None]
    if len(members) == len(ended):
        return f"member {', '.join(members)} resumed"
    return "resumed" + (f", and member {', '.join(members)}, paused on its own" if members else "")


def _still(target: ChannelTarget, left: list[Pause]) -> str:
    if any(p.holder == OPERATOR and p.consumer is None for p in left):
        return f"the whole group is paused, so nothing is read before `inbound resume {target.channel}`"
    return f"still paused by {', '.join(sorted({p.holder for p in left}))}: goes on when that is done"


async def _behind_gates(zk: ZooKeeper, paths: GroupPaths) -> str:
    topics = sorted(await zk.children(paths.all_gates) or ())
    calls: list[tuple[str, Call[Node | None]]] = [(topic, zk.get(paths.gate(topic))) for topic in topics]
    closed = []
    for topic, call in calls:
        node = await call
        if node is not None and node.data != OPEN:
            closed.append(f"{topic} (reset {node.data.decode(errors='replace').rpartition('/')[2]})")
    return f"; for {', '.join(closed)} it takes effect when the gate opens again" if closed else ""


def _count(alive: list[str]) -> str:
    return f"{len(alive)} member{'' if len(alive) == 1 else 's'}"


def waited_for(call: Call[T], what: str) -> T:
    """Wait for a call on the controller's thread, and return its result.

    Raises:
        TransientError: the call did not end in time.
    """
    ended = threading.Event()
    call.when_done(ended.set)
    if not ended.wait(ANSWER_SECONDS):
        raise ambiguous(what, f"no answer within {ANSWER_SECONDS:g} s")
    return call.result()


@dataclass(eq=False)
class Operator:
    """Carries operations out on the controller's thread, for callers on other threads.

    `of_member` carries out those of `OF_MEMBERS`.
    """

    tasks: Tasks
    zk: ZooKeeper
    clock: Clock
    channels: Mapping[str, ChannelConfig]
    by: str
    of_member: Callable[[str, Operation], OperationResult] | None = None

    def __call__(self, channel: str, operation: Operation) -> OperationResult:
        """Do an operation, and wait. Any thread but the controller's.

        Raises:
            UnknownTargetError: there is no such channel, or no such member.
            TransientError: ZooKeeper is unavailable, or did not answer in time. Trying again is safe.
        """
        channels = dict(self.channels)  # subscriptions come and go
        if channel not in channels:
            raise UnknownTargetError(f"no channel {channel!r}; there are: {', '.join(channels)}")
        if operation.verb in OF_MEMBERS and self.of_member is not None:
            return self.of_member(channel, operation)
        target = ChannelTarget.of(channel, channels[channel])
        if self.zk.connection is None:
            raise unavailable(f"{operation.verb.value} of channel {channel}")
        work = carry_out(self.zk, target, operation, by=self.by, wall=self.clock.wall())
        call: Call[OperationResult] = self.tasks.spawn(work, f"{operation.verb.value} of {channel}")
        return waited_for(call, f"{operation.verb.value} of channel {channel}")

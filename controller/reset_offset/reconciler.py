"""Carries out one reset, step by step, from its node's state.

Each step is one transaction that is conditional on the version of the command's node. So any number of leaders may run
at the same time, and each may die at any moment: what was done is done once, and the next leader does the rest. If a
transaction's answer is lost, the next step reads the node again, and continues from there.

    accepted    topic and group are found                            by the RefMapper
    mapped      it is first of its group; everything can be done     queue, brokers
    acquired    the gate is closed, in one transaction with the note of it
    stopping    no owner is left; all epochs are moved on, offsets read, targets stored
    stopped     offsets and epochs are moved, in one transaction with the note of it, or in chunks
    updated     the gate is opened
    starting    the partitions have owners again
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inbound.controller.reset_offset.command import PATHS, ResetCommand, decode, encode
from inbound.controller.reset_offset.command_store import listing, read_chunk, read_targets
from inbound.controller.reset_offset.data_plane import DataPlane, Replica, Watches
from inbound.controller.reset_offset.model import (
    TRANSITIONS,
    ConditionNote,
    ConditionType,
    Moved,
    RefMapper,
    ResetEvent,
    State,
    TopicLog,
    TopicLogs,
)
from inbound.controller.reset_offset.moves import (
    Epoch,
    ResetNodes,
    about,
    ahead_of,
    checked,
    chunks,
    fence_ops,
    grouped,
    move_ops,
    open_abandoned,
    target_ops,
)
from inbound.controller.reset_offset.targets import check, chosen, resolve
from inbound.coordinators.nodes import OPEN
from inbound.coordinators.pauses import members_alive
from inbound.coordinators.rights import named
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    Check,
    Create,
    Node,
    Op,
    RefusedError,
    SetData,
    ZooKeeper,
    accepted,
)
from inbound.errors import ResetError, TransientError, UnknownRefError, ZkNodeError

log = logging.getLogger(__name__)

#: Seconds until the next look: after a refusal, and while others are waited for. Watches are faster.
AGAIN, LOOK = 0.05, 1.0
#: Seconds until an unknown reference is mapped again: a process with another configuration may know it.
MAP_AGAIN = 5.0
#: A condition names what is waited for after so many seconds of waiting, and at most so often.
TELL_AFTER, TELL_EVERY = 0.9, 2.0
#: Seconds that the brokers may take to answer, if the request has no deadline.
BROKER_SECONDS = 60.0
#: The condition that says what a reset waits for.
WAITING: Mapping[State, ConditionType] = {
    State.MAPPED: "AcquireDataPlaneServices",
    State.ACQUIRED: "ConsumerGroupsStopped",
    State.STOPPING: "ConsumerGroupsStopped",
    State.STOPPED: "OffsetsUpdated",
    State.MOVING: "OffsetsUpdated",
    State.UPDATED: "ConsumerGroupsStarted",
    State.STARTING: "ConsumerGroupsStarted",
    State.CANCELLING: "ConsumerGroupsStarted",
    State.REFUSING: "ConsumerGroupsStarted",
}
#: Replicas named in one message.
NAMED = 10


class Reconciler:
    """Carries out one reset, on the controller's thread.

    `step` is called again after the time that it returns, or when a watch fires.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        name: str,
        *,
        logs: TopicLogs,
        mapper: RefMapper | None,
        plane: DataPlane,
        watches: Watches,
        largest: int = MAX_TRANSACTION_BYTES,
    ) -> None:
        """`mapper` None: commands without topic and group are left to others.

        What can be split takes several transactions of at most `largest` bytes.
        """
        self._largest = largest
        self._zk = zk
        self._path = PATHS.reset(name)
        self._logs = logs
        self._mapper = mapper
        self._plane = plane
        self._watches = watches
        self._nodes: ResetNodes | None = None
        self._stopping_since: float | None = None
        self._waits_for: tuple[ConditionType, str] | None = None
        self._tell_at = 0.0
        #: The command as it was read last; None: not yet, or there is none any more.
        self.command: ResetCommand | None = None

    async def step(self) -> float | None:
        """Do the next step; return the seconds until the next one.

        None: the reset has ended, or is gone.

        Raises:
            TransientError: ZooKeeper, a broker or the data plane does not answer; come back in a moment.
            BadNodeError: the command cannot be read, it may be of a later version.
        """
        node = await self._watches.get(self._path)
        if node is None:
            self.command = None
            return None
        command = self.command = decode(self._path, node)
        if command.finished:
            return None
        if command.state is State.ACCEPTED:
            return await self._map(command)
        assert command.info is not None
        try:
            if self._nodes is None:
                self._nodes = checked(self._zk, command.info)
            return await self._next(command, self._nodes)
        except ResetError as refusal:
            return await self._refuse(command, refusal)
        except ZkNodeError as error:
            await self._wait(command, WAITING[command.state], "NodeRefused", str(error))
            raise

    async def _next(self, command: ResetCommand, nodes: ResetNodes) -> float:
        steps = {
            State.MAPPED: self._acquire,
            State.ACQUIRED: self._close,
            State.STOPPING: self._stop,
            State.STOPPED: self._move,
            State.MOVING: self._move,
            State.UPDATED: self._open,
            State.STARTING: self._start,
            State.CANCELLING: self._restart,
            State.REFUSING: self._restart,
        }
        return await steps[command.state](command, nodes)

    # -- before anything is stopped ----------------------------------------------------------------------------------

    async def _map(self, command: ResetCommand) -> float:
        """Find topic and group; another process may know an unknown reference."""
        info = command.info
        try:
            if info is None:
                if self._mapper is None:
                    return MAP_AGAIN
                info = self._mapper.map(command.ref)
            checked(self._zk, info)
        except ResetError as error:
            reason = "UnknownRef" if isinstance(error, UnknownRefError) else "BadNames"
            # Once, by the first process: else several would keep overwriting each other's message.
            if not any(c.type == "RefMapped" and c.status == "False" for c in command.conditions):
                await self._write(command, None, {"RefMapped": ConditionNote(reason, str(error), "False")})
            return MAP_AGAIN
        note = ConditionNote("Mapped", f"{command.ref} is group {info.group} of topic {info.topic}")
        return await self._write(command, ResetEvent.MAP, {"RefMapped": note}, info=info)

    async def _acquire(self, command: ResetCommand, nodes: ResetNodes) -> float:
        """Wait for the turn, and check the request while the group runs."""
        first = ahead_of(command, await listing(self._zk, bad=lambda error: None))
        if first is not None:
            await self._watches.get(first.path)
            words = f"waits for reset {first.name} of the same group, which is {first.state.value}"
            return await self._wait(command, "AcquireDataPlaneServices", "Queued", words)
        await nodes.check_known()
        found = await self._ask(command, nodes, "AcquireDataPlaneServices")
        check(command.spec, found, command.created)
        await nodes.ensure(found)
        members = await members_alive(self._zk, nodes.paths)
        found_members = f"{_count(len(members), 'replica')}: {named(members, NAMED)} to be stopped"
        note = ConditionNote("Found", found_members if members else "no replica runs; nothing to stop")
        return await self._write(
            command, ResetEvent.ACQUIRE, {"AcquireDataPlaneServices": note}, replicas=tuple(members)
        )

    async def _close(self, command: ResetCommand, nodes: ResetNodes) -> float:
        gate = await nodes.gate()
        if gate is None:
            await nodes.mend(await self._ask(command, nodes, "ConsumerGroupsStopped"))
            return AGAIN
        if gate.data not in (OPEN, self._path.encode()):
            await open_abandoned(self._zk, nodes.paths.gate(nodes.topic))
            await self._watches.get(nodes.paths.gate(nodes.topic))
            words = f"the gate of {nodes.info.group}/{nodes.topic} is closed by {gate.data.decode(errors='replace')}"
            return await self._wait(command, "ConsumerGroupsStopped", "GateClosed", words)
        owned = tuple(sorted(await nodes.owned()))
        closing = SetData(nodes.paths.gate(nodes.topic), self._path.encode(), gate.stat.version)
        return await self._write(command, ResetEvent.CLOSE, {}, [closing], owned=owned)

    # -- while the group is stopped ----------------------------------------------------------------------------------

    async def _stop(self, command: ResetCommand, nodes: ResetNodes) -> float:
        """Wait until no partition has an owner; then fence, resolve, store targets."""
        if not await self._closed(command, nodes):
            return AGAIN
        now = self._zk.clock.now()
        self._stopping_since = now if self._stopping_since is None else self._stopping_since
        waiting = [r for r in await self._plane.stop(nodes.info, self._path) if not r.done]
        left = None if command.force_after is None else command.force_after - (now - self._stopping_since)
        if waiting and (left is None or left > 0):
            wait = await self._wait(command, "ConsumerGroupsStopped", "Waiting", _words(waiting))
            return wait if left is None else min(wait, left)
        found = await self._ask(command, nodes, "ConsumerGroupsStopped")
        await nodes.ensure(found)
        wanted = chosen(command.spec, found)
        epochs = await nodes.epochs({*wanted, *await nodes.owned()})
        if found.topic_id is not None and any(e.info.knows_as_former(found.topic_id) for e in epochs.values()):
            words = f"the brokers still name a topic {nodes.topic} that was deleted"
            return await self._wait(command, "ConsumerGroupsStopped", "OldMetadata", words)
        # From here on no commit can land, so the offsets read next are the exact old ones. That includes commits of a member
        # that lost its session while it worked and reconnects, and of one that was not waited for.
        await self._fence(command, nodes, epochs)
        moved = resolve(command.spec, about(await nodes.offsets(wanted), epochs, found.topic_id), found)
        overtaken = f"overtaken, as they did not stop in time: {_words(waiting).removeprefix('waits for ')}"
        note = ConditionNote("Stopped", overtaken if waiting else "no partition has an owner")
        return await self._store(command, nodes, moved, found.topic_id, note)

    async def _fence(self, command: ResetCommand, nodes: ResetNodes, epochs: dict[int, Epoch]) -> None:
        fences = fence_ops(nodes.paths, nodes.topic, epochs, await nodes.owned())
        for ops in grouped(fences, Check(self._path, command.version), self._largest):
            try:
                await self._zk.transaction(ops)
            except RefusedError as refused:
                raise TransientError(f"reset {command.name}: {refused}; looked at again") from None

    async def _store(
        self,
        command: ResetCommand,
        nodes: ResetNodes,
        moved: Sequence[Moved],
        topic_id: str | None,
        note: ConditionNote,
    ) -> float:
        """Store the targets before anything moves: the next leader reads them."""
        with_targets = command.at(
            self._zk.clock.wall(), ResetEvent.RESOLVE, {"ConsumerGroupsStopped": note},
            topic_id=topic_id, targets=os.urandom(4).hex(),
        )  # fmt: skip
        epochs = await nodes.epochs([m.partition for m in moved])
        parts = chunks(with_targets, nodes.paths, nodes.topic, epochs, moved, self._largest)
        *before, last = target_ops(with_targets, parts, self._largest)
        for ops in before:
            if not await accepted(self._zk, [Check(self._path, command.version), *ops]):
                return AGAIN
        return await self._put(command, replace(with_targets, chunks=len(parts)), last)

    async def _move(self, command: ResetCommand, nodes: ResetNodes) -> float:
        """Move the next chunk, mostly the only one."""
        gate = await self._closed(command, nodes)
        if gate is None:
            return AGAIN
        # Asked again: a data plane's locks may expire, and an operator may have opened the gate since.
        waiting = [r for r in await self._plane.stop(nodes.info, self._path) if not r.done]
        if waiting and command.force_after is None:
            return await self._wait(command, "ConsumerGroupsStopped", "Waiting", _words(waiting))
        done = set(await self._zk.children(self._path) or ())
        left = [k for k in range(command.chunks) if f"applied-{k}" not in done]
        chunk = min(left, default=0)
        targets = await read_chunk(self._zk, command, chunk)
        epochs = await nodes.epochs([m.partition for m in targets])
        if any(m.partition not in epochs for m in targets):  # deleted by hand since
            await nodes.mend(await self._ask(command, nodes, "OffsetsUpdated"))
            return AGAIN
        ops: list[Op] = [Check(nodes.paths.gate(nodes.topic), gate.stat.version)]
        if command.chunks > 1:
            ops.append(Create(PATHS.applied(command.name, chunk)))
        ops += move_ops(command, nodes.paths, nodes.topic, epochs, targets)
        if len(left) == 1:
            count = sum(1 for _ in await read_targets(self._zk, command))
            note = ConditionNote("Updated", f"{_count(count, 'partition')} moved")
            return await self._write(command, ResetEvent.UPDATE, {"OffsetsUpdated": note}, ops)
        if command.state is State.STOPPED:
            return await self._write(command, ResetEvent.BEGIN, {}, ops)
        return 0.0 if await accepted(self._zk, [Check(self._path, command.version), *ops]) else AGAIN

    # -- the way back ------------------------------------------------------------------------------------------------

    async def _open(self, command: ResetCommand, nodes: ResetNodes) -> float:
        return await self._write(command, ResetEvent.OPEN, {}, await self._opening(nodes))

    async def _restart(self, command: ResetCommand, nodes: ResetNodes) -> float:
        """End without a move: open the gate, and start the consumers."""
        opening = await self._opening(nodes)
        if opening and not await accepted(self._zk, [Check(self._path, command.version), *opening]):
            return AGAIN
        return await self._start(command, nodes)

    async def _opening(self, nodes: ResetNodes) -> list[Op]:
        """Return what opens the gate, unless an operator has done so."""
        gate = await nodes.gate()
        if gate is None or gate.data != self._path.encode():
            return []
        return [SetData(nodes.paths.gate(nodes.topic), OPEN, gate.stat.version)]

    async def _start(self, command: ResetCommand, nodes: ResetNodes) -> float:
        replicas = await self._plane.start(nodes.info, self._path)
        waiting = [replica for replica in replicas if not replica.done]
        if waiting:
            return await self._wait(command, "ConsumerGroupsStarted", "Waiting", _words(waiting))
        remarks = sorted({r.message for r in replicas if r.message})
        told = "; ".join([f"{_count(sum(bool(r.name) for r in replicas), 'replica')} running", *remarks])
        notes: dict[ConditionType, ConditionNote] = {"ConsumerGroupsStarted": ConditionNote("Started", told, "True")}
        event = ResetEvent.START if command.state is State.STARTING else ResetEvent.RESTART
        if event is ResetEvent.START:
            notes["Succeeded"] = ConditionNote("Succeeded", "the group goes on at its new offsets")
        return await self._write(command, event, notes)

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _closed(self, command: ResetCommand, nodes: ResetNodes) -> Node | None:
        """Return this reset's closed gate; None after an attempt to close it."""
        gate, path = await nodes.gate(), nodes.paths.gate(nodes.topic)
        if gate is not None and gate.data == self._path.encode():
            return gate
        log.warning(
            "reset %s: the gate %s is not closed any more: it was changed by hand; it is closed again",
            command.name, path,
        )  # fmt: skip
        if gate is not None and gate.data != OPEN:
            await open_abandoned(self._zk, path)
        else:
            closing = Create(path, self._path.encode()) if gate is None else None
            op = closing or SetData(path, self._path.encode(), gate.stat.version if gate is not None else 0)
            await accepted(self._zk, [Check(self._path, command.version), op])  # refused: the next look says why
        return None

    async def _ask(self, command: ResetCommand, nodes: ResetNodes, about: ConditionType) -> TopicLog:
        """Ask the brokers for the topic.

        Raises:
            ResetError: there is no such topic.
            BrokerUnavailableError: no answer; the condition `about` says so.
        """
        call = self._logs.ask(nodes.topic, command.spec.time)
        if call.deadline is None:
            call.deadline = self._zk.clock.now() + BROKER_SECONDS
        try:
            found = await call
        except TransientError as error:
            await self._wait(command, about, "BrokersAway", str(error))
            raise
        if found is None:
            raise ResetError(f"topic {nodes.topic}: the brokers know none of this name (any more)")
        return found

    async def _refuse(self, command: ResetCommand, refusal: ResetError) -> float:
        if (command.state, ResetEvent.REFUSE) not in TRANSITIONS:
            raise refusal  # too late: our nodes were changed by hand; it is logged, and tried again
        note = ConditionNote("Refused", str(refusal), "False")
        return await self._write(command, ResetEvent.REFUSE, {"OffsetsUpdated": note, "Succeeded": note})

    async def _wait(self, command: ResetCommand, about: ConditionType, reason: str, words: str) -> float:
        """Note in `about` what a longer wait is for; return the wait."""
        now = self._zk.clock.now()
        if self._waits_for != (about, reason):
            self._waits_for, self._tell_at = (about, reason), now + TELL_AFTER
        told = next(((c.reason, c.message) for c in command.conditions if c.type == about), None)
        if now >= self._tell_at and told != (reason, words):
            self._tell_at = now + TELL_EVERY
            await self._write(command, None, {about: ConditionNote(reason, words, "Unknown")})
        return LOOK

    async def _write(
        self,
        command: ResetCommand,
        event: ResetEvent | None,
        notes: dict[ConditionType, ConditionNote],
        ops: Iterable[Op] = (),
        **changes: Any,
    ) -> float:
        """Apply `event` and `ops` in one transaction; return the wait."""
        return await self._put(command, command.at(self._zk.clock.wall(), event, notes, **changes), ops)

    async def _put(self, command: ResetCommand, changed: ResetCommand, ops: Iterable[Op]) -> float:
        try:
            await self._zk.transaction([SetData(self._path, encode(changed), command.version), *ops])
        except RefusedError as refused:
            log.debug("reset %s: %s", command.name, refused)
            return AGAIN  # another leader was faster, or something else changed: read all again
        if changed.state is not command.state:
            log.info("reset %s: %s", command.name, changed.state.value)
        return 0.0


def _words(waiting: Sequence[Replica]) -> str:
    some = [": ".join(filter(None, (r.name or "the group", r.message))) for r in waiting]
    more = f", and {len(some) - NAMED} more" if len(some) > NAMED else ""
    return f"waits for {', '.join(some[:NAMED])}{more}"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"

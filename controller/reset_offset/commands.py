"""The node of a reset: what stands in it, how one is submitted, read, cancelled and, in the end, cleared away.

    /inbound/commands/reset-offset/<name>                  specification, state, conditions
    /inbound/commands/reset-offset/<name>/targets-<x>-<k>  old and new offsets of the partitions of chunk k
    /inbound/commands/reset-offset/<name>/applied-<k>      made by what moves chunk k, where there are several
    /inbound/commands/reset-offset/<name>/leader           ephemeral: who carries it out
    /inbound/commands/reset-offset-names/<name>            this name was used; stays for ever

Every change is conditional on the version of the command's node, so nothing is lost and nothing done twice whoever else
changes it at the same time. A name is never used again, so that a late request of a former leader meets either the
command it was meant for, in a later version, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from inbound.controller.reset_offset.command import (
    PATHS,
    ResetCommand,
    decode,
    decode_targets,
    encode,
    new_name,
)
from inbound.controller.reset_offset.model import Moved
from inbound.controller.reset_offset.states import FINISHED, MOVED, Event, Note, State
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    Call,
    Create,
    Delete,
    Node,
    Op,
    RefusedError,
    SetData,
    ZooKeeper,
)
from inbound.errors import ResetError, ZkAmbiguousError, ZkUnavailableError

__all__ = [
    "KEEP_COUNT",
    "KEEP_SECONDS",
    "PATHS",
    "ResetCommand",
    "cancel",
    "decode",
    "encode",
    "listing",
    "new_name",
    "prune",
    "read",
    "read_all",
    "read_chunk",
    "read_targets",
    "submit",
]

#: Finished commands are kept for so many seconds, and no more than so many of them.
KEEP_SECONDS, KEEP_COUNT = 7 * 86400.0, 100
#: How often a change is tried while others change the same node, or answers are lost.
ATTEMPTS = 5
#: A command's node is written anew with each step, in the transaction that moves too: it must leave room there.
MAX_COMMAND_BYTES = MAX_TRANSACTION_BYTES // 2


async def submit(zk: ZooKeeper, command: ResetCommand) -> bool:
    """Write a new command. Returns False if one of its name was submitted before: nothing is done then.

    Raises:
        ResetError: it is too large for ZooKeeper.
        TransientError: ZooKeeper does not answer; whether it was submitted is not known. Submitting it again is safe.
    """
    fresh = command.at(command.created)
    data = encode(fresh)
    if len(data) > MAX_COMMAND_BYTES:
        raise ResetError(
            f"reset {command.name} of {command.ref}: takes {len(data)} bytes, ZooKeeper holds {MAX_COMMAND_BYTES} for a "
            "command; reset fewer partitions at a time"
        )
    for folder in PATHS.parents():
        if await zk.get(folder) is None:
            await _tried(zk, [Create(folder)])
    ops: list[Op] = [Create(command.path, data)]
    if command.once:
        ops.append(Create(PATHS.used_name(command.name)))
    for _ in range(ATTEMPTS):
        done = await _tried(zk, ops)
        if done:
            return True
        node = await zk.get(command.path)
        if node is not None:
            # A name that nobody else can have: ours, from an attempt whose answer was lost, or submitted again.
            return not command.once or (done is None and node.data == data)
        if command.once and await zk.get(PATHS.used_name(command.name)) is not None:
            return False
    raise _undecided(command.path)


async def read(zk: ZooKeeper, name: str, watch: Callable[[], None] | None = None) -> ResetCommand | None:
    """Return a command with its targets; None: there is none. `watch` fires, on any thread, when it changes.

    Raises:
        BadNodeError: the node holds something else.
        TransientError: ZooKeeper does not answer.
    """
    path = PATHS.reset(name)
    node = await zk.get(path, watch)
    if node is None:
        return None
    command = decode(path, node)
    return replace(command, moved=await read_targets(zk, command))


async def read_targets(zk: ZooKeeper, command: ResetCommand) -> tuple[Moved, ...]:
    """Return what a command moves: known from STOPPED on, and never changed after. For people: see `read_chunk`."""
    paths = [PATHS.targets(command.name, command.targets, chunk) for chunk in range(command.chunks)]
    calls: list[Call[Node | None]] = [zk.get(path) for path in paths]
    targets: list[Moved] = []
    for path, call in zip(paths, calls, strict=True):
        node = await call
        if node is not None:  # else it is being cleared away just now
            targets += decode_targets(path, node.data)
    return tuple(targets)


async def read_chunk(zk: ZooKeeper, command: ResetCommand, chunk: int) -> tuple[Moved, ...]:
    """Return what one transaction of a command moves.

    Raises:
        ResetError: the node is gone.
    """
    path = PATHS.targets(command.name, command.targets, chunk)
    node = await zk.get(path)
    if node is None:
        raise ResetError(f"{path}: is gone, somebody deleted it; where the offsets were to go is not known any more")
    return decode_targets(path, node.data)


async def listing(zk: ZooKeeper, bad: Callable[[BadNodeError], None] | None = None) -> list[ResetCommand]:
    """Return all commands in the order of their submission, without their targets.

    `bad` is told of nodes that cannot be read.

    Raises:
        BadNodeError: a node cannot be read, and there is no `bad`.
        TransientError: ZooKeeper does not answer.
    """
    return await read_all(zk, await zk.children(PATHS.RESETS) or (), bad)


async def read_all(
    zk: ZooKeeper, names: Iterable[str], bad: Callable[[BadNodeError], None] | None = None
) -> list[ResetCommand]:
    """Return the commands of these names, as far as they are there, like `listing`."""
    calls: list[tuple[str, Call[Node | None]]] = [(name, zk.get(PATHS.reset(name))) for name in names]
    commands = []
    for name, call in calls:
        node = await call
        try:
            if node is not None:
                commands.append(decode(PATHS.reset(name), node))
        except BadNodeError as error:
            if bad is None:
                raise
            bad(error)
    return sorted(commands, key=lambda command: (command.czxid, command.name))


async def cancel(zk: ZooKeeper, name: str, by: str = "") -> ResetCommand:
    """Let a command end without moving anything; what it has stopped is started again by whoever leads it.

    `by` says who wants it, for people. Cancelling twice is safe. Returns the command as it is then.

    Raises:
        ResetError: there is no such command, it has ended, or offsets are being moved already.
        TransientError: ZooKeeper does not answer; cancelling again is safe.
    """
    path = PATHS.reset(name)
    for _ in range(ATTEMPTS):
        node = await zk.get(path)
        if node is None:
            raise ResetError(f"reset {name}: there is no such command; it never was, or was cleared away after its end")
        command = decode(path, node)
        if command.state in (State.CANCELLING, State.CANCELLED):
            return command
        if command.state in FINISHED:
            raise ResetError(f"reset {name}: has ended ({command.state.value}), there is nothing to cancel")
        if command.state in MOVED or command.state is State.REFUSING:
            what = "is ending by itself" if command.state is State.REFUSING else "is moving offsets, or has moved them"
            raise ResetError(
                f"reset {name}: {what}, and cannot be cancelled any more; it goes on until its group runs again"
            )
        note = Note("Cancelled", f"cancelled{f' by {by}' if by else ''} before any offset was moved", "False")
        changed = command.at(zk.clock.wall(), Event.CANCEL, {"Succeeded": note}, chunks=0)
        await _tried(zk, [SetData(path, encode(changed), command.version)])  # the next look says what became of it
    raise _undecided(path)


async def prune(zk: ZooKeeper, now: float, commands: Iterable[ResetCommand] | None = None) -> list[str]:
    """Clear away finished commands that are older than a week, and all but the last hundred; return their names.

    `now` is in seconds since 1970. `commands` are all there are, as `listing` returns them; None: they are read.

    Raises:
        TransientError: ZooKeeper does not answer; what was cleared away stays so.
    """
    if commands is None:
        commands = await listing(zk, bad=lambda error: None)
    ended = sorted(
        (c for c in commands if c.finished), key=lambda c: (c.ended or 0.0, c.czxid), reverse=True
    )  # the latest first
    gone = [c for index, c in enumerate(ended) if index >= KEEP_COUNT or now - (c.ended or 0.0) > KEEP_SECONDS]
    return [command.name for command in gone if await _clear_away(zk, command)]


async def _clear_away(zk: ZooKeeper, command: ResetCommand) -> bool:
    """Delete a finished command with its children. Others may be doing the same."""
    names = await zk.children(command.path)
    if names is None:
        return False
    return await _tried(zk, [*(Delete(f"{command.path}/{name}") for name in names), Delete(command.path)]) is True


async def _tried(zk: ZooKeeper, ops: list[Op]) -> bool | None:
    """Try a transaction. Returns whether it was done; None where nobody knows."""
    try:
        await zk.transaction(ops)
    except RefusedError:
        return False
    except ZkAmbiguousError:
        return None
    return True


def _undecided(path: str) -> ZkUnavailableError:
    return ZkUnavailableError(
        f"ZooKeeper: {path} could not be changed in {ATTEMPTS} attempts: others change it, or answers are lost; try again"
    )

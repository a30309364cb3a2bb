"""Submits, reads, cancels and prunes commands of resets in ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from inbound.controller.reset_offset.command import PATHS, ResetCommand, decode, decode_targets, encode
from inbound.controller.reset_offset.model import FINISHED, MOVED, ConditionNote, Moved, ResetEvent, State
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.zookeeper import (
    ATTEMPTS,
    MAX_TRANSACTION_BYTES,
    Create,
    Delete,
    Op,
    SetData,
    ZooKeeper,
    attempted,
    get_all,
    undecided,
)
from inbound.errors import ResetError

#: Ended commands are kept for so many seconds, and at most so many of them.
KEEP_SECONDS, KEEP_COUNT = 7 * 86400.0, 100
#: Each step rewrites the command's node, also in the transaction that moves: it must leave room there.
MAX_COMMAND_BYTES = MAX_TRANSACTION_BYTES // 2


async def submit(zk: ZooKeeper, command: ResetCommand) -> bool:
    """Write a new command; return False if its name was submitted before.

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
            await attempted(zk, [Create(folder)])
    ops: list[Op] = [Create(command.path, data)]
    if command.once:
        ops.append(Create(PATHS.used_name(command.name)))
    for _ in range(ATTEMPTS):
        done = await attempted(zk, ops)
        if done:
            return True
        node = await zk.get(command.path)
        if node is not None:
            # The name is unique: ours, from an attempt whose answer was lost, or submitted again.
            return not command.once or (done is None and node.data == data)
        if command.once and await zk.get(PATHS.used_name(command.name)) is not None:
            return False
    raise undecided(command.path)


async def read(zk: ZooKeeper, name: str, watch: Callable[[], None] | None = None) -> ResetCommand | None:
    """Return a command with its targets; None: there is none.

    `watch` fires, on any thread, when the command changes.

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
    """Return what a command moves, for people; see `read_chunk`.

    The targets are known from STOPPED on, and never change.
    """
    paths = [PATHS.targets(command.name, command.targets, chunk) for chunk in range(command.chunks)]
    targets: list[Moved] = []
    for path, node in zip(paths, await get_all(zk, paths), strict=True):
        if node is not None:  # else it is being deleted now
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
        raise ResetError(f"{path}: was deleted; where the offsets were to go is not known any more")
    return decode_targets(path, node.data)


async def listing(zk: ZooKeeper, bad: Callable[[BadNodeError], None] | None = None) -> list[ResetCommand]:
    """Return all commands in the order of their submission, without targets.

    `bad` is called with the error of each unreadable node.

    Raises:
        BadNodeError: a node cannot be read, and there is no `bad`.
        TransientError: ZooKeeper does not answer.
    """
    return await read_all(zk, await zk.children(PATHS.RESETS) or (), bad)


async def read_all(
    zk: ZooKeeper, names: Iterable[str], bad: Callable[[BadNodeError], None] | None = None
) -> list[ResetCommand]:
    """Return the existing commands of these names, like `listing`."""
    paths, commands = [PATHS.reset(name) for name in names], []
    for path, node in zip(paths, await get_all(zk, paths), strict=True):
        try:
            if node is not None:
                commands.append(decode(path, node))
        except BadNodeError as error:
            if bad is None:
                raise
            bad(error)
    return sorted(commands, key=lambda command: (command.czxid, command.name))


async def cancel(zk: ZooKeeper, name: str, by: str = "") -> ResetCommand:
    """End a command that has moved nothing; its leader restarts the consumers.

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
            what = "is ending already" if command.state is State.REFUSING else "is moving offsets, or has moved them"
            raise ResetError(
                f"reset {name}: {what}, and cannot be cancelled any more; it goes on until its group runs again"
            )
        note = ConditionNote("Cancelled", f"cancelled{f' by {by}' if by else ''} before any offset was moved", "False")
        changed = command.at(zk.clock.wall(), ResetEvent.CANCEL, {"Succeeded": note}, chunks=0)
        await attempted(zk, [SetData(path, encode(changed), command.version)])  # the next look says what became of it
    raise undecided(path)


async def prune(zk: ZooKeeper, now: float, commands: Iterable[ResetCommand] | None = None) -> list[str]:
    """Delete ended commands; keep the last hundred of one week.

    Returns their names. `now` is in seconds since 1970. `commands` are all that exist, as `listing` returns them; None:
    they are read.

    Raises:
        TransientError: ZooKeeper does not answer; what was deleted stays so.
    """
    if commands is None:
        commands = await listing(zk, bad=lambda error: None)
    ended = sorted(
        (c for c in commands if c.finished), key=lambda c: (c.ended or 0.0, c.czxid), reverse=True
    )  # the latest first
    gone = [c for index, c in enumerate(ended) if index >= KEEP_COUNT or now - (c.ended or 0.0) > KEEP_SECONDS]
    return [command.name for command in gone if await _clear_away(zk, command)]


async def _clear_away(zk: ZooKeeper, command: ResetCommand) -> bool:
    """Delete a finished command's nodes; other processes may do the same."""
    names = await zk.children(command.path)
    if names is None:
        return False
    return await attempted(zk, [*(Delete(f"{command.path}/{name}") for name in names), Delete(command.path)]) is True

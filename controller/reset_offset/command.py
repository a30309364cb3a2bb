"""Commands of resets: their nodes, and the operations on them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inbound.controller.reset_offset.model import (
    FINISHED,
    MOVED,
    TRANSITIONS,
    Condition,
    ConditionNote,
    ConditionNotes,
    Moved,
    Ref,
    RefInfo,
    ResetEvent,
    ResetSpec,
    State,
    To,
    conditions,
)
from inbound.coordinators.nodes import BadNodeError, encode_object, read_object
from inbound.coordinators.paths import CommandPaths
from inbound.coordinators.rights import runs
from inbound.coordinators.zookeeper import (
    ATTEMPTS,
    MAX_TRANSACTION_BYTES,
    Create,
    Delete,
    Node,
    Op,
    SetData,
    ZooKeeper,
    attempted,
    get_all,
    undecided,
)
from inbound.errors import ResetError

#: Where commands stand.
PATHS = CommandPaths()


@dataclass(frozen=True, kw_only=True)
class ResetCommand:
    """One reset: what is asked for, and how far it has come."""

    name: str
    ref: Ref
    spec: ResetSpec
    #: Topic and group; None: a leader that knows `ref` is to find them.
    info: RefInfo | None = None
    created: float  # seconds since 1970: for people, and what a time to move to is compared with
    by: str = ""  # who asked for it, for people
    #: After so many seconds of waiting a member that does not let go is overtaken; None: wait as long as it takes.
    force_after: float | None = None
    #: The name is derived from something that lasts (a manifest): it is remembered when the command is gone.
    once: bool = False
    state: State = State.ACCEPTED
    conditions: tuple[Condition, ...] = ()
    #: Live members when they were asked to stop, and the partitions that were owned then.
    replicas: tuple[str, ...] = ()
    owned: tuple[int, ...] = ()
    #: Which topic of that name the targets are about, as the brokers said; None where they don't say.
    topic_id: str | None = None
    #: In how many parts the targets are stored and moved, and what the names of these nodes hold: of two leaders that
    #: resolve at the same time only one gets its own into the command.
    chunks: int = 0
    targets: str = ""
    ended: float | None = None  # seconds since 1970
    #: Old and new offsets, from STOPPED on. `read` brings them, `listing` does not.
    moved: tuple[Moved, ...] = ()
    #: Of the node as it was read: what a change is conditional on, and the order of submission.
    version: int = field(default=-1, compare=False)
    czxid: int = field(default=0, compare=False)

    @property
    def path(self) -> str:
        """The command's node, which a gate that it has closed names."""
        return PATHS.reset(self.name)

    @property
    def finished(self) -> bool:
        """Whether nothing more will be done."""
        return self.state in FINISHED

    def at(
        self, wall: float, event: ResetEvent | None = None, notes: ConditionNotes | None = None, **changes: Any
    ) -> ResetCommand:
        """Return the command as it is after `event` (None: the state stays), at `wall` seconds since 1970.

        Raises:
            IllegalTransitionError: the table has no such step.
        """
        state = self.state if event is None else TRANSITIONS.step(self.state, event)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))  # as Kubernetes writes times
        told = conditions(self.conditions, state, at, notes or {})
        ended = wall if state in FINISHED and self.ended is None else self.ended
        return replace(self, state=state, conditions=told, ended=ended, **changes)


def new_name(wall: float) -> str:
    """Return a unique name: the time, for people, and a random part."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}-{os.urandom(8).hex()}"


# -- what stands in the nodes ------------------------------------------------------------------------------------------


def encode(command: ResetCommand) -> bytes:
    """Return the data of the command's node: all but its name and its targets."""
    spec = command.spec
    body: dict[str, Any] = {
        "ref": asdict(command.ref),
        "spec": {
            "to": spec.to.value,
            "time": spec.time,
            "shift": spec.shift,
            "offset": spec.offset,
            "offsets": None if spec.offsets is None else {str(p): o for p, o in sorted(spec.offsets.items())},
            "partitions": None if spec.partitions is None else list(spec.partitions),
        },
        "info": None if command.info is None else asdict(command.info),
        "created": command.created,
        "by": command.by,
        "force_after": command.force_after,
        "once": command.once,
        "state": command.state.value,
        "conditions": [asdict(condition) for condition in command.conditions],
        "replicas": list(command.replicas),
        "owned": ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs(command.owned)),
        "topic_id": command.topic_id,
        "chunks": command.chunks,
        "targets": command.targets,
        "ended": command.ended,
    }
    return encode_object(body)


def decode(path: str, node: Node) -> ResetCommand:
    """Return the command in a node, without its targets, which stand in other nodes.

    Raises:
        BadNodeError: it is no command, or of a version that this one does not know.
    """
    body = read_object(path, node.data)
    try:
        spec, info = body["spec"], body["info"]
        offsets, partitions = spec.get("offsets"), spec.get("partitions")
        return ResetCommand(
            name=path.rsplit("/", 1)[1],
            ref=Ref(**_known(body["ref"], "kind", "name", "namespace", "api_version")),
            spec=ResetSpec(
                to=To(spec["to"]),
                time=spec.get("time"),
                shift=spec.get("shift"),
                offset=spec.get("offset"),
                offsets=None if offsets is None else {int(p): int(o) for p, o in offsets.items()},
                partitions=None if partitions is None else tuple(map(int, partitions)),
            ),
            info=None if info is None else RefInfo(**_known(info, *RefInfo.__dataclass_fields__)),
            created=float(body["created"]),
            by=str(body.get("by", "")),
            force_after=body.get("force_after"),
            once=bool(body.get("once", False)),
            state=State(body["state"]),
            conditions=tuple(Condition(**_known(c, *Condition.__dataclass_fields__)) for c in body["conditions"]),
            replicas=tuple(map(str, body.get("replicas", ()))),
            owned=_partitions(body.get("owned", "")),
            topic_id=body.get("topic_id"),
            chunks=int(body.get("chunks", 0)),
            targets=str(body.get("targets", "")),
            ended=body.get("ended"),
            version=node.stat.version,
            czxid=node.stat.czxid,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadNodeError(
            f"{path}: not a reset that this inbound can read ({error!r}); unless it was made by hand, upgrade inbound here"
        ) from None


def encode_targets(targets: Iterable[Moved]) -> bytes:
    """Return the data of a `targets-<k>` node."""
    return encode_object({"moved": [[m.partition, m.old, m.new] for m in targets]})


def decode_targets(path: str, data: bytes) -> tuple[Moved, ...]:
    """Return what a `targets-<k>` node says.

    Raises:
        BadNodeError: it is none.
    """
    body = read_object(path, data)
    try:
        return tuple(Moved(int(p), None if old is None else int(old), int(new)) for p, old, new in body["moved"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(
            f"{path}: not the targets of a reset ({error!r}); it was written by hand, or by another tool"
        ) from None


def _known(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return what we know of an object: a newer version may have written more."""
    return {name: body[name] for name in names if name in body}


#: ZooKeeper's nodes bound what a group can have far below this.
_MOST_PARTITIONS = 1_000_000


def _partitions(ranges: str) -> tuple[int, ...]:
    """Return the partitions of a text such as "0-63,70"."""
    found: list[int] = []
    for run in filter(None, ranges.split(",")):
        first, _, last = run.partition("-")
        if int(last or first) - int(first) > _MOST_PARTITIONS:
            raise ValueError(f"{run[:40]!r} are more partitions than a topic has")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


# -- submit, read, cancel, clear away ----------------------------------------------------------------------------------

#: Finished commands are kept for so many seconds, and no more than so many of them.
KEEP_SECONDS, KEEP_COUNT = 7 * 86400.0, 100
#: A command's node is rewritten with each step, in the transaction that moves too: it must leave room there.
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
    targets: list[Moved] = []
    for path, node in zip(paths, await get_all(zk, paths), strict=True):
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
        raise ResetError(f"{path}: was deleted; where the offsets were to go is not known any more")
    return decode_targets(path, node.data)


async def listing(zk: ZooKeeper, bad: Callable[[BadNodeError], None] | None = None) -> list[ResetCommand]:
    """Return all commands in the order of their submission, without their targets.

    `bad` is called with the error of each unreadable node.

    Raises:
        BadNodeError: a node cannot be read, and there is no `bad`.
        TransientError: ZooKeeper does not answer.
    """
    return await read_all(zk, await zk.children(PATHS.RESETS) or (), bad)


async def read_all(
    zk: ZooKeeper, names: Iterable[str], bad: Callable[[BadNodeError], None] | None = None
) -> list[ResetCommand]:
    """Return the commands of these names, as far as they are there, like `listing`."""
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
    """Let a command end without moving anything; its leader starts the stopped consumers again.

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
    return await attempted(zk, [*(Delete(f"{command.path}/{name}") for name in names), Delete(command.path)]) is True

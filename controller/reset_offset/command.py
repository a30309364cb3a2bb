"""A reset's command, and the data of its nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inbound.controller.reset_offset.model import (
    FINISHED,
    TRANSITIONS,
    Condition,
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
from inbound.coordinators.zookeeper import Node

#: Paths of commands.
PATHS = CommandPaths()


@dataclass(frozen=True, kw_only=True)
class ResetCommand:
    """One reset: the request, and its progress."""

    name: str
    ref: Ref
    spec: ResetSpec
    #: Topic and group; None: a leader that knows `ref` will find them.
    info: RefInfo | None = None
    created: float  # seconds since 1970: for people, and to compare a time to move to
    by: str = ""  # who asked for it, for people
    #: After so many seconds a member that does not release its partitions is fenced; None: wait as long as it takes.
    force_after: float | None = None
    #: The name comes from something that lasts (a manifest): it stays used after the command is gone.
    once: bool = False
    state: State = State.ACCEPTED
    conditions: tuple[Condition, ...] = ()
    #: The members and owned partitions when the group was asked to stop.
    replicas: tuple[str, ...] = ()
    owned: tuple[int, ...] = ()
    #: The id of the topic that the targets are about, as the brokers said; None: they have no ids.
    topic_id: str | None = None
    #: The number of parts in which targets are stored and moved, and a mark in the names of their nodes: of two leaders
    #: that resolve at the same time only one gets its mark into the command.
    chunks: int = 0
    targets: str = ""
    ended: float | None = None  # seconds since 1970
    #: Old and new offsets, from STOPPED on. `read` brings them, `listing` does not.
    moved: tuple[Moved, ...] = ()
    #: Of the node as it was read: changes are conditional on the version; czxid is the order of submission.
    version: int = field(default=-1, compare=False)
    czxid: int = field(default=0, compare=False)

    @property
    def path(self) -> str:
        """The command's node; a gate that it has closed names it."""
        return PATHS.reset(self.name)

    @property
    def finished(self) -> bool:
        """Whether the reset has ended."""
        return self.state in FINISHED

    def at(
        self, wall: float, event: ResetEvent | None = None, notes: ConditionNotes | None = None, **changes: Any
    ) -> ResetCommand:
        """Return the command after `event` (None: same state), at `wall` (Unix seconds)."""
        state = self.state if event is None else TRANSITIONS.step(self.state, event)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))  # as Kubernetes writes times
        told = conditions(self.conditions, state, at, notes or {})
        ended = wall if state in FINISHED and self.ended is None else self.ended
        return replace(self, state=state, conditions=told, ended=ended, **changes)


def new_name(wall: float) -> str:
    """Return a unique name: the time, for people, and a random part."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}-{os.urandom(8).hex()}"


def encode(command: ResetCommand) -> bytes:
    """Return the command node's data: all but its name and targets."""
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
    """Return the command in a node, without its targets.

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
    """Return the targets in a `targets-<k>` node; BadNodeError: it holds none."""
    body = read_object(path, data)
    try:
        return tuple(Moved(int(p), None if old is None else int(old), int(new)) for p, old, new in body["moved"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(
            f"{path}: not the targets of a reset ({error!r}); it was written by hand, or by another tool"
        ) from None


def _known(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: body[name] for name in names if name in body}  # a newer version may have written more


#: The size of ZooKeeper's nodes limits a group far below this.
_MOST_PARTITIONS = 1_000_000


def _partitions(ranges: str) -> tuple[int, ...]:
    """Return the partitions of a text like "0-63,70"."""
    found: list[int] = []
    for run in filter(None, ranges.split(",")):
        first, _, last = run.partition("-")
        if int(last or first) - int(first) > _MOST_PARTITIONS:
            raise ValueError(f"{run[:40]!r} are more partitions than a topic has")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)

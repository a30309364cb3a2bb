"""A reset as it stands in its node: what is asked for, and how far it has come. Plain values, no I/O."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from inbound.controller.reset_offset.model import Condition, Moved, Ref, RefInfo, ResetSpec, To
from inbound.controller.reset_offset.states import FINISHED, Event, Notes, State, conditions, step
from inbound.coordinators.nodes import FORMAT, BadNodeError, read_object
from inbound.coordinators.paths import CommandPaths
from inbound.coordinators.zookeeper import Node

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

    def at(self, wall: float, event: Event | None = None, notes: Notes | None = None, **changes: Any) -> ResetCommand:
        """Return the command as it is after `event` (None: the state stays), at `wall` seconds since 1970.

        Raises:
            IllegalTransitionError: the table has no such step.
        """
        state = self.state if event is None else step(self.state, event)
        told = conditions(self.conditions, state, rfc3339(wall), notes or {})
        ended = wall if state in FINISHED and self.ended is None else self.ended
        return replace(self, state=state, conditions=told, ended=ended, **changes)


def rfc3339(wall: float) -> str:
    """Return seconds since 1970 as Kubernetes writes times."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))


def new_name(wall: float) -> str:
    """Return a name that nobody else has: the time, for people, and what makes it unique."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}-{os.urandom(8).hex()}"


# -- what stands in the nodes ------------------------------------------------------------------------------------------


def encode(command: ResetCommand) -> bytes:
    """Return the data of the command's node: all but its name and its targets."""
    spec = command.spec
    body: dict[str, Any] = {
        "v": FORMAT,
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
        "owned": _ranges(command.owned),
        "topic_id": command.topic_id,
        "chunks": command.chunks,
        "targets": command.targets,
        "ended": command.ended,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode(path: str, node: Node) -> ResetCommand:
    """Return the command in a node, without what it moves, which stands in nodes of its own.

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
            f"{path}: not a reset that this inbound can read ({error!r}); if nobody made it by hand, upgrade inbound here"
        ) from None


def encode_targets(targets: Iterable[Moved]) -> bytes:
    """Return the data of a `targets-<k>` node."""
    body = {"v": FORMAT, "moved": [[m.partition, m.old, m.new] for m in targets]}
    return json.dumps(body, separators=(",", ":")).encode()


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


def _ranges(partitions: Iterable[int]) -> str:
    """Return partitions as text, "0-63,70": thousands of them must not make the node large."""
    runs: list[list[int]] = []
    for partition in sorted(partitions):
        if runs and runs[-1][1] == partition - 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


#: ZooKeeper's nodes bound what a group can have far below this.
_MOST_PARTITIONS = 1_000_000


def _partitions(ranges: str) -> tuple[int, ...]:
    """Return the partitions that `_ranges` made a text of."""
    found: list[int] = []
    for run in filter(None, ranges.split(",")):
        first, _, last = run.partition("-")
        if int(last or first) - int(first) > _MOST_PARTITIONS:
            raise ValueError(f"{run[:40]!r} are more partitions than a topic has")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)

"""What must hold of resets at every step, judged from the nodes.

A reset moves each of its partitions once, from the exact last offset to where its specification says, while none has an
owner and its gate is closed; the gate opens when all are moved, or none is and none will be. `Judge` calls this judge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from inbound.controller.reset_offset.command import ResetCommand, decode, decode_targets
from inbound.controller.reset_offset.model import CLOSED, FINISHED, State, To
from inbound.controller.reset_offset.moves import CLAIMANT
from inbound.coordinators.nodes import OPEN, BadNodeError, EpochInfo, ResetNote, decode_epoch, decode_offset
from inbound.coordinators.paths import CommandPaths, GroupPaths
from inbound.testing.simulation.witness import Scene
from inbound.testing.zookeeper_tree import Commit, Snapshot
from inbound.topic_partition import TopicPartition

_COMMANDS = f"{CommandPaths.RESETS}/"
_GROUPS = f"{GroupPaths.GROUPS}/"

#: A time that has not come yet.
NOT_YET = float("inf")

Ranges = dict[TopicPartition, tuple[int, int]]
T = TypeVar("T")


@dataclass
class _JudgedCommand:
    state: State | None = None
    deleted: bool = False  # by hand
    targets: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    #: Where the targets may lie: log starts and ends, or offsets of a time, when the gate was closed.
    bounds: Ranges = field(default_factory=dict)
    #: The lowest and highest ends of logs that were cut since.
    ends: Ranges = field(default_factory=dict)


@dataclass(frozen=True)
class ByReset:
    """An epoch that a reset made, and the redeliveries it explains."""

    epoch: int
    note: ResetNote | None  # the move; None: it has only fenced the owner
    overtaken: str | None  # the process whose owner node it has deleted

    def explains(self, offset: int, consumer: str) -> bool:
        """Return whether the reset explains that `offset` of `consumer` is redelivered."""
        note = self.note
        back = note is not None and note.new <= offset and (note.old is None or offset < note.old)
        return back or self.overtaken == consumer


class ResetJudge:
    """Judges every transaction, before `Judge` looks at the partitions that it changed."""

    def __init__(self, world: Scene, violated: Callable[[str], None], say: Callable[[str], None]) -> None:
        self._world = world
        self._violated = violated
        self._say = say
        self._commands: dict[str, _JudgedCommand] = {}
        self._gates: dict[str, bytes] = {}
        #: When each gate was closed, and opened again (`NOT_YET`: it is still closed).
        self._closures: dict[str, list[tuple[float, float]]] = defaultdict(list)
        #: The moves in the simulated group: `on_reset` must report these, and no others.
        self.moves: set[tuple[TopicPartition, int | None, int]] = set()
        #: The group's offset at its last commit, and after the last move.
        self._since: dict[TopicPartition, tuple[int | None, int]] = {}
        #: What happens when a reset next comes to a state.
        self._due: dict[State, list[Callable[[], None]]] = defaultdict(list)
        #: The moves of the transaction in hand.
        self.notes: dict[TopicPartition, ResetNote] = {}

    # -- asked by the run ----------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the submitted resets in order, without those deleted by hand."""
        return [name for name, known in self._commands.items() if not known.deleted]

    def unfinished(self) -> list[str]:
        """Return the resets that have not ended."""
        return [
            f"{name} ({known.state.value})"
            for name, known in self._commands.items()
            if not known.deleted and known.state is not None and known.state not in FINISHED
        ]

    def closed(self) -> list[str]:
        """Return the gates that are closed."""
        return [path for path, data in self._gates.items() if data != OPEN]

    def waited(self, tp: TopicPartition, began: float, patience: float) -> bool:
        """Return whether a gate stayed closed for `patience` during a callback.

        The batch was delivered at `began`. Its partition is released later than that where its nodes are refused, maybe when
        the gate is open again.
        """
        now = self._world.clock.now()
        closures = self._closures[self._world.paths.gate(tp.topic)]
        return any(began <= opened and closed + patience <= min(opened, now) for closed, opened in closures)

    def deleted(self, name: str) -> None:
        """An operator deletes a command."""
        self._commands[name].deleted = True

    def cut(self, tp: TopicPartition, end: int) -> None:
        """A log is about to lose everything from `end` on."""
        for known in self._commands.values():
            least, most = known.ends.get(tp, (end, end))
            known.ends[tp] = min(least, end), max(most, self._world.kafka.end(tp))

    def when(self, state: State, then: Callable[[], None]) -> None:
        """Call `then` when a reset next comes to a state."""
        self._due[state].append(then)

    # -- transactions --------------------------------------------------------------------------------------------------

    def committed(self, commit: Commit) -> Mapping[TopicPartition, EpochInfo]:
        """Judge a transaction; return the group's epochs that a reset wrote."""
        changed = [path for kind, path in commit.changed if kind == "data"]
        by_reset: dict[TopicPartition, EpochInfo] = {}
        self.notes = {}
        states: list[tuple[str, State]] = []
        for path in changed:
            if path.startswith(_COMMANDS) and "/" not in path[len(_COMMANDS) :]:
                states += self._command_changed(path, commit.after)
        for path in changed:
            group, _, rest = path.removeprefix(_GROUPS).partition("/")
            family, *where = rest.split("/")
            if not path.startswith(_GROUPS):
                continue
            if family == "gates" and len(where) == 1:
                self._gate_changed(path, commit.after, by_hand=commit.session == 0)
            elif family == "epochs" and len(where) == 2 and where[1].isdigit():
                tp, info = TopicPartition(where[0], int(where[1])), epoch_in(path, commit.after)
                if info is None or info.consumer != CLAIMANT:
                    continue
                ours = GroupPaths(group).root == self._world.paths.root
                if ours:
                    by_reset[tp] = info
                if info.reset is not None and GroupPaths(group).offset(*tp) in changed:
                    self._moved(group, tp, info.reset, commit, ours)
        for name, state in states:
            self._check_state(name, state, commit.after)
            for then in self._due.pop(state, ()):
                then()
        return by_reset

    def exact(self, tp: TopicPartition, note: ResetNote, commit: int | None) -> None:
        """Judge a move's old offsets; `commit` is the last commit or move."""
        name, since = _name(note.command), self._since.get(tp, (commit, commit))
        if note.old != commit:
            self._violated(f"reset {name} says that {tp} was at {note.old}; it was at {commit}")
        first = since[0] if since[1] == commit else commit
        if note.since != first:
            self._violated(f"reset {name} says that {tp} was at {note.since} before all moves; it was at {first}")
        self._since[tp] = first, note.new

    def overtakes(self, tp: TopicPartition, commit: Commit, owner: str | None) -> None:
        """Judge a reset that deletes an owner's node instead of waiting."""
        gate = commit.after.get(self._world.paths.gate(tp.topic))
        command = _read(_name(gate.data.decode()), commit.after) if gate is not None else None
        if owner is not None and (command is None or command.force_after is None):
            self._violated(f"a reset takes down the owner node of {tp}, which is {owner}'s, and is not asked to")

    def _command_changed(self, path: str, after: Snapshot) -> list[tuple[str, State]]:
        name, node = path[len(_COMMANDS) :], after.get(path)
        known = self._commands.setdefault(name, _JudgedCommand())
        if node is None:
            if not known.deleted:
                self._violated(f"reset {name} is deleted")
            return []
        if known.deleted:
            self._violated(f"reset {name} is made again")
        try:
            state = decode(path, node).state
        except BadNodeError as error:
            self._violated(str(error))
            return []
        if state is known.state:
            return []
        if known.state in FINISHED:
            self._violated(f"reset {name} was {known.state.value}, and is {state.value} now")
        known.state = state
        self._say(f"reset {name} is {state.value}")
        return [(name, state)]

    def _check_state(self, name: str, state: State, after: Snapshot) -> None:
        known = self._commands[name]
        command = _read(name, after)
        if command is None or command.info is None:
            return
        if state is State.STOPPING:
            known.bounds, known.ends = self._bounds(command), {}
            for other in after.children(CommandPaths.RESETS) or ():
                rival = _read(other, after)
                if other == name or rival is None or rival.info is None:
                    continue
                if rival.info.group == command.info.group and rival.state in CLOSED:
                    self._violated(f"reset {name} stops a group that reset {other} has stopped ({rival.state.value})")
        elif state is State.STOPPED:
            self._check_targets(command, known, after)
        elif state in (State.UPDATED, State.STARTING, State.SUCCEEDED) and set(known.targets) != known.moved:
            self._violated(f"reset {name} is {state.value}, and has moved {known.moved} of {sorted(known.targets)}")
        elif state in (State.CANCELLING, State.CANCELLED, State.REFUSING, State.REFUSED) and known.moved:
            self._violated(f"reset {name} is {state.value}, and has moved {sorted(known.moved)}")

    def _check_targets(self, command: ResetCommand, known: _JudgedCommand, after: Snapshot) -> None:
        """Judge the targets by the logs since the gate closed."""
        assert command.info is not None
        known.targets = {}
        for chunk in range(command.chunks):
            path = f"{command.path}/targets-{command.targets}-{chunk}"
            node = after.get(path)
            if node is None:
                self._violated(f"reset {command.name}: {path} is missing")
                return
            for moved in decode_targets(path, node.data):
                if moved.partition in known.targets:
                    self._violated(f"reset {command.name} has two targets of partition {moved.partition}")
                known.targets[moved.partition] = moved.old, moved.new
        wanted = command.spec.partitions
        if wanted is not None and set(wanted) != set(known.targets):
            self._violated(f"reset {command.name} is of partitions {wanted}, and moves {sorted(known.targets)}")
        now = self._bounds(command)
        for partition, (old, new) in known.targets.items():
            tp = TopicPartition(command.info.topic, partition)
            if tp not in now or tp not in known.bounds:
                continue  # without a leader at one of these times, or added since
            (low_start, low_end), (start, end) = known.bounds[tp], now[tp]
            least, most = known.ends.get(tp, (low_end, end))
            low_end, end = min(low_end, least), max(end, most)
            spec = command.spec
            if spec.to is To.EARLIEST:
                right = low_start <= new <= start
            elif spec.to is To.LATEST:
                right = low_end <= new <= end
            elif spec.to is To.SHIFT:
                wanted_offset = (old or 0) + (spec.shift or 0)
                right = min(max(wanted_offset, low_start), low_end) <= new <= min(max(wanted_offset, start), end)
            elif spec.to is To.OFFSET:
                right = new == spec.offset
            elif spec.to is To.OFFSETS:
                right = spec.offsets is not None and new == spec.offsets[partition]
            else:
                right = low_start <= new <= end and not self._later(tp, spec.time or 0.0, new)
            if not right:
                self._violated(f"reset {command.name} ({spec.to.value}) is to move {tp} from {old} to {new}: {now[tp]}")

    def _later(self, tp: TopicPartition, time: float, new: int) -> bool:
        """Return whether a record at or after `time` lies before `new`."""
        found = self._world.kafka.offset_at(tp, round(time * 1000))
        return found is not None and found < new

    def _bounds(self, command: ResetCommand) -> Ranges:
        assert command.info is not None
        topic, ranges = command.info.topic, Ranges()
        meta = self._world.kafka.topics().get(topic)
        for partition in range(meta.partitions if meta is not None else 0):
            limits = self._world.kafka.log_range(TopicPartition(topic, partition))
            if limits is not None:
                ranges[TopicPartition(topic, partition)] = limits.start, limits.end
        return ranges

    def _moved(self, group: str, tp: TopicPartition, note: ResetNote, commit: Commit, ours: bool) -> None:
        name, paths = _name(note.command), GroupPaths(group)
        known = self._commands.get(name)
        if known is None or commit.after.get(note.command) is None:
            self._violated(f"{tp} of {group} is moved by reset {name}, which is not there")
            return
        if tp.partition in known.moved:
            self._violated(f"reset {name} moves {tp} of {group} a second time")
        known.moved.add(tp.partition)
        if known.targets.get(tp.partition) != (note.old, note.new):
            self._violated(
                f"reset {name} moves {tp} from {note.old} to {note.new}; its target was {known.targets.get(tp.partition)}"
            )
        if known.state not in (State.MOVING, State.UPDATED):
            self._violated(f"reset {name} moves {tp} while it is {known.state.value if known.state else 'unknown'}")
        gate = commit.after.get(paths.gate(tp.topic))
        if gate is None or gate.data.decode() != note.command:
            self._violated(f"reset {name} moves {tp}, and its gate is {gate.data if gate else None!r}")
        owners = commit.after.children(paths.owners(tp.topic))
        if owners:
            self._violated(f"reset {name} moves {tp} while {tp.topic}'s partitions {owners} have owners")
        if ours:
            self.notes[tp] = note
            self.moves.add((tp, note.old, note.new))

    def _gate_changed(self, path: str, after: Snapshot, *, by_hand: bool) -> None:
        node = after.get(path)
        self._note_closure(path, closed=node is not None and node.data != OPEN)
        if node is None:
            self._violated(f"{path} is deleted")
            return
        before, self._gates[path] = self._gates.get(path, OPEN), node.data
        if node.data == before or by_hand:
            return
        if node.data != OPEN:
            name = _name(node.data.decode())
            command = _read(name, after)
            if before != OPEN:
                self._violated(f"{path}, closed by {before!r}, is closed by {node.data!r}")
            if command is None or command.state is not State.STOPPING:
                self._violated(
                    f"{path} is closed by reset {name}, which is {command.state.value if command else 'gone'}"
                )
            return
        name = _name(before.decode())
        known = self._commands.get(name)
        if known is None or known.deleted:
            return
        if known.state not in (State.STARTING, State.CANCELLING, State.REFUSING, State.CANCELLED, State.REFUSED):
            self._violated(f"{path} is opened while reset {name} is {known.state.value if known.state else 'unknown'}")

    def _note_closure(self, path: str, *, closed: bool) -> None:
        now, closures = self._world.clock.now(), self._closures[path]
        was_closed = bool(closures) and closures[-1][1] == NOT_YET
        if closed and not was_closed:
            closures.append((now, NOT_YET))
        elif was_closed and not closed:
            closures[-1] = closures[-1][0], now


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def epoch_in(path: str, after: Snapshot) -> EpochInfo | None:
    """Return an epoch node's content; None if missing or unreadable."""
    return _decoded(decode_epoch, path, after)


def changed_nodes(commit: Commit, paths: GroupPaths) -> Iterator[tuple[str, str, TopicPartition]]:
    """Yield family, path and partition of changed owner, offset and epoch nodes."""
    root = f"{paths.root}/"
    for kind, path in commit.changed:
        family, _, rest = path.removeprefix(root).partition("/")
        topic, _, number = rest.rpartition("/")
        known = kind == "data" and path.startswith(root) and family in ("owners", "offsets", "epochs")
        if known and topic and number.isdigit():
            yield family, path, TopicPartition(topic, int(number))


def changed_offsets(commit: Commit, paths: GroupPaths) -> Iterator[tuple[TopicPartition, int]]:
    """Yield the group's offsets that a transaction wrote."""
    for family, path, tp in changed_nodes(commit, paths):
        if family == "offsets" and (offset := _decoded(decode_offset, path, commit.after)) is not None:
            yield tp, offset


def _decoded(decode: Callable[[str, bytes], T | None], path: str, after: Snapshot) -> T | None:
    node = after.get(path)
    try:
        return None if node is None else decode(path, node.data)
    except BadNodeError:
        return None


def _read(name: str, after: Snapshot) -> ResetCommand | None:
    path = f"{_COMMANDS}{name}"
    node = after.get(path)
    try:
        return None if node is None else decode(path, node)
    except BadNodeError:
        return None

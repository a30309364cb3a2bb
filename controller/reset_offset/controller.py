"""Finds resets, carries them out or follows their leader, prunes ended ones."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from inbound.controller.reset_offset.command import PATHS, ResetCommand, decode
from inbound.controller.reset_offset.command_store import prune, read_all
from inbound.controller.reset_offset.data_plane import DataPlane, Signal, Watches, ZkDataPlane
from inbound.controller.reset_offset.model import RefMapper, State, TopicLogs
from inbound.controller.reset_offset.moves import open_abandoned
from inbound.controller.reset_offset.reconciler import Reconciler
from inbound.coordinators.nodes import OPEN
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import MAX_TRANSACTION_BYTES, Call, Create, Delete, RefusedError, ZooKeeper, get_all
from inbound.errors import InboundError, TransientError

log = logging.getLogger(__name__)

#: Seconds between looks without a watch: at all resets, and at one that another process carries out.
LOOK_EVERY, FOLLOW_EVERY = 60.0, 5.0
#: Seconds until a retry: if ZooKeeper did not answer, and after other errors.
RETRY, AFTER_ERROR = 0.25, 5.0
#: A leader without progress for so many seconds may be stuck: it is not waited for. Two leaders do no harm.
OVERTAKE = 15.0


class _Lead:
    """One process's state of one reset."""

    def __init__(self, controller: ResetController, name: str) -> None:
        self.name = name
        self.signal = Signal(controller.zk.clock)
        self.watches = Watches(controller.zk, self.signal.set)
        self.reconciler = controller.reconciler(name, self.watches)
        self.command: ResetCommand | None = None
        self.group: str | None = None  # also when the command is gone
        self.leads_in: int | None = None  # the session that our leader node belongs to
        self.unchanged: tuple[int, float] = (-1, 0.0)  # the version under another leader, and since when
        self.overtakes = False  # that leader is not waited for any more
        self.told = ""

    def heard(self, command: ResetCommand | None) -> None:
        """Take the command as it is now; None: it is gone."""
        self.command = command
        if command is not None and command.info is not None:
            self.group = command.info.group


class ResetController:
    """One process's part in resets.

    Runs as coroutines on `tasks`: `run` for good, or `lead` for one reset. Resets of different groups go side by side.
    The process that makes a reset's `leader` node carries it out; when its session ends, another process goes on. That
    only saves work: steps are safe with any number of leaders.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        tasks: Tasks,
        logs: TopicLogs,
        *,
        mapper: RefMapper | None = None,
        plane: DataPlane | None = None,
        name: str = "",
        groups: Callable[[], Iterable[str]] = tuple,
        largest: int = MAX_TRANSACTION_BYTES,
    ) -> None:
        """Do nothing yet.

        `mapper` None: other processes find topic and group. `plane` None: consumers of inbound. `name` is written to
        the leader node, for people. The gates of `groups` are opened if their reset is gone, and those of groups whose
        reset went away while this process followed it. What moves more than fits into a transaction of `largest` bytes
        takes several.
        """
        self.zk = zk
        self._largest = largest
        #: For metrics: resets that this process has led to their end, and the seconds that the last one of each took.
        self.ended: Counter[State] = Counter()
        self.last_seconds: dict[State, float] = {}
        self._tasks = tasks
        self._logs = logs
        self._mapper = mapper
        self._plane = plane
        self._name = name
        self._groups = groups
        self._signal = Signal(zk.clock)
        self._watches = Watches(zk, self._signal.set)
        self._leads: dict[str, tuple[_Lead, Call[ResetCommand | None]]] = {}
        self._finished: dict[str, ResetCommand] = {}  # need not be read again
        self._orphans: set[str] = set()  # groups whose reset went away before its end, maybe without a member
        self._told: set[str] = set()
        self._closing = False

    def reconciler(self, name: str, watches: Watches) -> Reconciler:
        plane = self._plane
        return Reconciler(
            self.zk, name, logs=self._logs, mapper=self._mapper, watches=watches, largest=self._largest,
            plane=plane if plane is not None else ZkDataPlane(self.zk, watches),
        )  # fmt: skip

    def look(self) -> None:
        """Look at all resets at once, also for replicas' answers. Any thread."""
        self._signal.set()
        for lead, _ in list(self._leads.values()):
            lead.signal.set()

    def close(self) -> None:
        """Begin nothing more; other processes go on. Any thread."""
        self._closing = True
        self.look()

    @property
    def unfinished(self) -> int:
        """The number of known resets that have not ended. Any thread."""
        return sum(not call.done for _, call in list(self._leads.values()))

    @property
    def known(self) -> list[ResetCommand]:
        """The resets as last read, unfinished and ended. Any thread."""
        under_way = [lead.command for lead, _ in list(self._leads.values()) if lead.command is not None]
        told = {command.name: command for command in (*list(self._finished.values()), *under_way)}
        return list(told.values())

    async def run(self) -> None:
        """Carry out resets as they come, until `close`."""
        while not self._closing:
            wait = LOOK_EVERY
            try:
                await self._look_around()
            except TransientError as error:
                log.debug("resets of offsets: %s", error)
                wait = RETRY
            except InboundError as error:
                self._tell(str(error))
            except Exception:
                log.exception(
                    "resets of offsets: a defect of inbound, please report it; tried again in %.0f s", AFTER_ERROR
                )
                wait = AFTER_ERROR
            await self._signal.wait(wait)

    async def lead(self, name: str) -> ResetCommand | None:
        """Carry out or follow one reset; return it as it ended.

        None: the reset is gone, or `close` was called.
        """
        return await self._carry(_Lead(self, name))

    # -- all resets --------------------------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        names = await self._watches.children(PATHS.RESETS) or []
        unknown = [name for name in names if name not in self._finished]
        commands = await read_all(self.zk, unknown, lambda error: self._tell(str(error)))
        for command in commands:
            if command.finished:
                self._finished[command.name] = command
            else:
                self._begin(command)
        for gone in set(self._finished) - set(names):
            del self._finished[gone]
        for name, (_, call) in list(self._leads.items()):
            if call.done:
                self._end(name)
        await prune(self.zk, self.zk.clock.wall(), list(self._finished.values()))
        for group in dict.fromkeys([*self._groups(), *self._orphans]):
            await self._open_gates(group)
            self._orphans.discard(group)

    def _begin(self, command: ResetCommand) -> None:
        name = command.name
        if name not in self._leads or self._leads[name][1].done:
            lead = _Lead(self, name)
            lead.heard(command)
            call = self._tasks.spawn(self._carry(lead), f"reset {name}")
            self._leads[name] = lead, call
            call.when_done(self._signal.set)

    def _end(self, name: str) -> None:
        lead, _ = self._leads.pop(name)
        command = lead.command
        if command is None and lead.group is not None:
            self._orphans.add(lead.group)
        if command is not None and command.ended is not None and lead.leads_in is not None:
            self.ended[command.state] += 1
            self.last_seconds[command.state] = max(0.0, command.ended - command.created)

    async def _open_gates(self, group: str) -> None:
        """Open gates whose reset is gone: see `open_abandoned`."""
        paths = GroupPaths(group)
        topics = await self.zk.children(paths.all_gates) or ()
        gates = zip(topics, await get_all(self.zk, map(paths.gate, topics)), strict=True)
        for topic in [topic for topic, gate in gates if gate is not None and gate.data != OPEN]:
            closed_by = await open_abandoned(self.zk, paths.gate(topic))
            if closed_by is not None:
                log.warning(
                    "the gate %s was still closed by %s, which is gone: opened, the group goes on. Cancel resets rather than "
                    "delete their nodes", paths.gate(topic), closed_by,
                )  # fmt: skip

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            log.error("resets of offsets: %s", text)

    # -- one reset ---------------------------------------------------------------------------------------------------

    async def _carry(self, lead: _Lead) -> ResetCommand | None:
        while not self._closing:
            try:
                wait = await self._step(lead)
            except TransientError as error:
                log.debug("reset %s: %s", lead.name, error)
                wait = RETRY
            except InboundError as error:
                if lead.told != str(error):
                    lead.told = str(error)
                    log.error("reset %s: %s; trying again every %.0f s", lead.name, error, AFTER_ERROR)
                wait = AFTER_ERROR
            except Exception:  # also of a user's RefMapper or data plane
                log.exception("reset %s: failed unexpectedly; tried again in %.0f s", lead.name, AFTER_ERROR)
                wait = AFTER_ERROR
            if wait is None:
                await self._resign(lead)
                return lead.command
            if wait > 0:
                await lead.signal.wait(wait)
        return None

    async def _step(self, lead: _Lead) -> float | None:
        """Do or follow a step; return the wait, None at the end."""
        if not (lead.overtakes or await self._leads_it(lead)):
            path = PATHS.reset(lead.name)
            node = await lead.watches.get(path)
            lead.heard(None if node is None else decode(path, node))
            if lead.command is None or lead.command.finished:
                return None
            now = self.zk.clock.now()
            version, since = lead.unchanged
            if version != lead.command.version:
                lead.unchanged = lead.command.version, now
            if version != lead.command.version or now - since < OVERTAKE:
                return FOLLOW_EVERY
            lead.overtakes = True
        wait = await lead.reconciler.step()
        lead.heard(lead.reconciler.command)
        return wait

    async def _leads_it(self, lead: _Lead) -> bool:
        connection = self.zk.connection
        if connection is None:
            raise TransientError(f"reset {lead.name}: no connection to ZooKeeper")
        session = connection.session.id
        if lead.leads_in == session:
            return True
        path = PATHS.leader(lead.name)
        node = await lead.watches.get(path)
        if node is None:
            try:
                await self.zk.transaction([Create(path, self._name.encode(), ephemeral=True)])
            except RefusedError as refused:
                return refused.reason == "NoNode"  # the reset itself is gone, and the step will say so
        elif node.stat.ephemeral_owner != session:
            return False
        lead.leads_in = session
        return True

    async def _resign(self, lead: _Lead) -> None:
        """Delete our leader node, so that none waits for our session."""
        if lead.leads_in is None:
            return
        try:
            await self.zk.transaction([Delete(PATHS.leader(lead.name))])
        except InboundError as error:
            log.debug("reset %s: its leader node goes with our session (%s)", lead.name, error)


@dataclass(frozen=True, kw_only=True)
class ControllerFactory:
    """Makes a ResetController for each connection to ZooKeeper.

        factory = ControllerFactory(mapper=MyMapper(), logs=KafkaTopicLogs(connect), plane=MyDispatchers())
        ...
        controller = factory(zk, tasks)
        tasks.spawn(controller.run(), "resets of offsets")

    Its maker owns `logs` and `plane`, and closes them after the controllers.
    """

    #: Finds topic and group of a reset's reference. None: only resets that name both are carried out.
    mapper: RefMapper | None = None
    #: Asks the brokers.
    logs: TopicLogs
    #: Stops and starts the consumers. None: consumers of inbound, by the gate and their owner nodes.
    plane: DataPlane | None = None
    #: Written to the nodes of its resets, for people.
    name: str = ""
    #: Groups whose gates are opened if their reset is gone.
    groups: Callable[[], Iterable[str]] = tuple

    def __call__(self, zk: ZooKeeper, tasks: Tasks) -> ResetController:
        """Return a controller, idle before `run` or `lead` is spawned."""
        return ResetController(
            zk, tasks, self.logs, mapper=self.mapper, plane=self.plane, name=self.name, groups=self.groups
        )

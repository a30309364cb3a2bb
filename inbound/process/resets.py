"""Submits resets of manifests, and makes the controller of resets."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace

from inbound.config import Loaded, ResetManifest
from inbound.controller.reset_offset import (
    ControllerFactory,
    Ref,
    RefInfo,
    RefMapper,
    ResetCommand,
    ResetController,
    read,
    submit,
)
from inbound.controller.reset_offset.data_plane import Signal
from inbound.controller.reset_offset.model import FINISHED
from inbound.controller.reset_offset.targets import in_words
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import BrokerUnavailableError, ConfigError, ResetError, TransientError
from inbound.kafka.base import LogClient
from inbound.kafka.clients.choice import connector
from inbound.kafka.clients.topic_logs import KafkaTopicLogs
from inbound.observe.status.status import ManifestStatus, ResetsStatus, reset_details
from inbound.plan.plan import PlannedChannel
from inbound.plan.resets import command_of, name_of, ref_mapper_of

log = logging.getLogger(__name__)

#: Seconds between looks at a reset's progress, and until the next look after ZooKeeper did not answer.
LOOK, RETRY = 2.0, 1.0
#: Seconds between looks without an unfinished reset; a changed manifest wakes the follower.
IDLE = 600.0
#: In status, of a reset that was cleared away.
GONE = "carried out before, and cleared away"


class ManifestResets:
    """The reset manifests of a process. Any thread; `follow` on the controller's."""

    def __init__(self, mapper: RefMapper, by: str) -> None:
        """`mapper` finds a manifest's group and topic; `by` names the submitter."""
        self._mapper = mapper
        self._by = by
        self._signals: tuple[Signal, ...] = ()
        self._manifests: tuple[ResetManifest, ...] = ()
        self._status: dict[str, ManifestStatus] = {}  # replaced as a whole
        self._told: dict[str, str] = {}

    def learn(self, manifests: tuple[ResetManifest, ...]) -> None:
        """Take in the current manifests. A missing manifest cancels no reset."""
        self._manifests = manifests
        for signal in self._signals:
            signal.set()

    def status(self) -> list[ManifestStatus]:
        """Return the status of each manifest, in the order of the files."""
        known = self._status
        return [known[one.name] for one in self._manifests if one.name in known]

    async def follow(self, zk: ZooKeeper) -> None:
        """Submit resets on this connection, and follow them; never returns.

        Every process of a group does the same: the name of a manifest's reset is the same for all, and is taken once.
        """
        signal = Signal(zk.clock)
        self._signals += (signal,)
        submitted: set[str] = set()
        while True:
            try:
                more = await self._look(zk, submitted)
                wait = LOOK if more else IDLE
            except TransientError as error:
                log.debug("manifests of resets: %s", error)
                wait = RETRY
            await signal.wait(wait)

    async def _look(self, zk: ZooKeeper, submitted: set[str]) -> bool:
        manifests, mapper = self._manifests, self._mapper
        found: dict[str, ManifestStatus] = {}
        for manifest in manifests:
            before = self._status.get(manifest.name)
            if _is_over(manifest, before):
                found[manifest.name] = before  # type: ignore[assignment]  # over means that there is one
                continue
            found[manifest.name] = await self._see_to(zk, manifest, mapper, submitted)
            self._status = {**self._status, **found}
        self._status = found
        if manifests is not self._manifests:
            return True
        return any(not _is_over(one, found[one.name]) and one.reset is not None for one in manifests)

    async def _see_to(
        self, zk: ZooKeeper, manifest: ResetManifest, mapper: RefMapper, submitted: set[str]
    ) -> ManifestStatus:
        told = ManifestStatus(name=manifest.name, where=manifest.where)
        try:
            command = command_of(manifest, mapper, created=zk.clock.wall(), by=self._by)
        except ConfigError as error:
            return self._refused(replace(told, problem=str(error)))
        except ResetError as error:
            return self._refused(replace(told, problem=f"{manifest.where}: {error}"))
        told = replace(told, reset=command.name)
        try:
            if command.name not in submitted:
                if await submit(zk, command):
                    log.info("reset %s of %s is submitted: %s", command.name, manifest.where, in_words(command.spec))
                submitted.add(command.name)
            now = await read(zk, command.name)
        except (ResetError, BadNodeError) as error:
            return self._refused(replace(told, problem=str(error)))
        if now is None:
            return replace(told, state="gone", message=GONE)
        return replace(told, state=now.state.value, message=_message(now), finished=now.finished)

    def _refused(self, told: ManifestStatus) -> ManifestStatus:
        if self._told.get(told.name) != told.problem:
            self._told[told.name] = told.problem or ""
            log.error("the reset of %s does nothing: %s", told.where, told.problem)
        return told


def _is_over(manifest: ResetManifest, status: ManifestStatus | None) -> bool:
    """Whether a manifest's status is final."""
    if status is None or manifest.reset is None:
        return False
    return status.reset == name_of(manifest.reset) and (status.finished or status.state == "gone")


def _message(command: ResetCommand) -> str:
    said = [c for c in command.conditions if c.message]
    if command.finished:
        return next((c.message for c in said if c.type == "Succeeded"), "")
    return next((c.message for c in said if c.status != "True"), "")


class Resetting:
    """A process's part in resets. Any thread; `learn` one at a time."""

    def __init__(self, loaded: Loaded, planned: Callable[[], Iterable[PlannedChannel]]) -> None:
        """Connect to nothing yet. `planned` returns the channels that run.

        Raises:
            ConfigError: the RefMapper that the configuration names cannot be used.
        """
        self._planned = planned
        self._logs = KafkaTopicLogs(self._connect)
        #: The resets that manifests beside the configuration ask for.
        self.manifests = ManifestResets(self, f"a manifest, read by process {os.getpid()} on {socket.gethostname()}")
        self.learn(loaded)

    def learn(self, loaded: Loaded) -> None:
        """Take in a configuration. Raises ConfigError: the former RefMapper stays."""
        self._mapper: RefMapper = ref_mapper_of(loaded)
        self._kafka = loaded.config.kafka
        self.manifests.learn(loaded.resets)

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group of `ref`; see `RefMapper.map`."""
        return self._mapper.map(ref)

    def controller(self, zk: ZooKeeper, tasks: Tasks) -> ResetController:
        """Return a controller on `zk`, and begin to submit manifests' resets."""
        factory = ControllerFactory(
            mapper=self, logs=self._logs, name=f"{socket.gethostname()}-{os.getpid()}",
            groups=lambda: [one.config.group for one in self._planned()],
        )  # fmt: skip
        tasks.spawn(self.manifests.follow(zk), "manifests of resets")
        return factory(zk, tasks)

    def close(self) -> None:
        """Close the clients, after the controllers have ended."""
        self._logs.close()

    def _connect(self) -> LogClient:
        """Return a client like the first channel's, but for committed transactions only."""
        first = next(iter(self._planned()), None)
        if first is None:
            raise BrokerUnavailableError("Kafka is not asked: this process has no channel any more")
        reader = first.config.reader
        return connector(reader, self._kafka, client_id="inbound-reset", isolation="read_committed")()


def status_of(controller: ResetController) -> ResetsStatus:
    """Return the resets' status. Any thread."""
    return ResetsStatus(
        unfinished=controller.unfinished,
        ended_total={state.value: controller.ended[state] for state in sorted(FINISHED, key=lambda s: s.value)},
        last_seconds={state.value: seconds for state, seconds in list(controller.last_seconds.items())},
        known=reset_details(controller.known),
    )

"""What a process needs to carry out resets of offsets: it asks the brokers, and knows what references stand for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable

from inbound.config import Loaded
from inbound.controller.reset_offset import ControllerFactory, Ref, RefInfo, RefMapper, ResetController
from inbound.controller.reset_offset.states import FINISHED
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import BrokerUnavailableError
from inbound.kafka.base import LogClient
from inbound.kafka.clients import connector
from inbound.kafka.topic_logs import KafkaTopicLogs
from inbound.planning import PlannedChannel
from inbound.reset_details import reset_details
from inbound.reset_following import ManifestResets
from inbound.reset_refs import ref_mapper_of
from inbound.status import ResetsStatus


class Resetting:
    """Made and closed by the process; `learn` by one thread at a time, all else by any."""

    def __init__(self, loaded: Loaded, planned: Callable[[], Iterable[PlannedChannel]]) -> None:
        """Connect to nothing yet. `planned` returns the channels as they run.

        Raises:
            ConfigError: the RefMapper that the configuration names cannot be used.
        """
        self._planned = planned
        self._mapper: RefMapper = ref_mapper_of(loaded)
        self._kafka = loaded.config.kafka
        self._logs = KafkaTopicLogs(self._connect)
        #: The resets that manifests beside the configuration ask for.
        self.manifests = ManifestResets(self, f"a manifest, read by process {os.getpid()} on {socket.gethostname()}")
        self.manifests.learn(loaded.resets)

    def learn(self, loaded: Loaded) -> None:
        """Take over what another configuration says.

        Raises:
            ConfigError: the RefMapper that it names cannot be used; what was known before stays.
        """
        self._mapper = ref_mapper_of(loaded)
        self._kafka = loaded.config.kafka
        self.manifests.learn(loaded.resets)

    def map(self, ref: Ref) -> RefInfo:
        """Return what `ref` stands for now; see `RefMapper.map`."""
        return self._mapper.map(ref)

    def controller(self, zk: ZooKeeper, tasks: Tasks) -> ResetController:
        """Return what carries resets out on this connection, not begun; those of manifests are submitted from now on."""
        factory = ControllerFactory(
            mapper=self, logs=self._logs, name=f"{socket.gethostname()}-{os.getpid()}",
            groups=lambda: [one.config.group for one in self._planned()],
        )  # fmt: skip
        tasks.spawn(self.manifests.follow(zk), "manifests of resets")
        return factory(zk, tasks)

    def close(self) -> None:
        """Ask the brokers nothing more. The controllers have ended."""
        self._logs.close()

    def _connect(self) -> LogClient:
        """Return a client as the first channel reads with one: its topics' logs end where committed transactions do."""
        first = next(iter(self._planned()), None)
        if first is None:
            raise BrokerUnavailableError("Kafka is not asked: this process has no channel any more")
        reader = first.config.reader
        return connector(reader, self._kafka, client_id="inbound-reset", isolation="read_committed")()


def status_of(controller: ResetController) -> ResetsStatus:
    """Return what the status of a process says of resets. Any thread."""
    ended = controller.ended
    return ResetsStatus(
        unfinished=controller.unfinished,
        ended_total={state.value: ended.count.get(state, 0) for state in sorted(FINISHED, key=lambda s: s.value)},
        last_seconds={state.value: seconds for state, seconds in list(ended.seconds.items())},
        known=reset_details(controller.known),
    )

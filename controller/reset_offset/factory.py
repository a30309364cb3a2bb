"""How a process that has a controller of its own takes resets on: everything is said first, and made when it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from inbound.controller.reset_offset.controller import ResetController
from inbound.controller.reset_offset.data_plane import DataPlane
from inbound.controller.reset_offset.model import RefMapper, TopicLogs
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import ZooKeeper


@dataclass(frozen=True, kw_only=True)
class ControllerFactory:
    """Makes ResetControllers: one for each connection to ZooKeeper, when that is there and something runs its tasks.

        factory = ControllerFactory(mapper=MyMapper(), logs=KafkaTopicLogs(connect), plane=MyDispatchers())
        ...
        controller = factory(zk, tasks)
        tasks.spawn(controller.run(), "resets of offsets")

    Whoever makes it owns `logs` and `plane`, and closes them after the controllers.
    """

    #: Finds topic and group of what a reset names. None: only resets that come with both are carried out.
    mapper: RefMapper | None = None
    #: What the brokers are asked with.
    logs: TopicLogs
    #: Who stops and starts the consumers. None: consumers of inbound, by the gate and their owner nodes.
    plane: DataPlane | None = None
    #: Stands in the nodes of resets that it carries out, for people.
    name: str = ""
    #: Whose gates are opened if their reset is gone.
    groups: Callable[[], Iterable[str]] = tuple

    def __call__(self, zk: ZooKeeper, tasks: Tasks) -> ResetController:
        """Return a controller on this connection; it does nothing before `run` or `lead` is spawned on `tasks`."""
        return ResetController(
            zk, tasks, self.logs, mapper=self.mapper, plane=self.plane, name=self.name, groups=self.groups
        )

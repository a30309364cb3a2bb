"""Takes on resets of the offsets of consumers that are not inbound's: see README.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from inbound.clock import SystemClock
from inbound.config import ReaderConfig, ZooKeeperConfig
from inbound.controller.reset_offset import (
    ConsumerManager,
    ControllerFactory,
    RefInfo,
    Replica,
    ResetController,
    TopicLogs,
)
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, ZooKeeper
from inbound.errors import ResetError
from inbound.kafka.clients.choice import connector
from inbound.kafka.clients.topic_logs import KafkaTopicLogs
from inbound.process.zookeeper.client import zookeeper_client
from inbound.runtime.driver import Wakeup


class Dispatcher:
    """The consumers of one group in one replica. Yours ends its batches, commits, and completes the Call then."""

    def __init__(self) -> None:
        self.running = True

    def stop(self) -> Call[None]:
        self.running = False
        return _done()

    def start(self) -> Call[None]:
        self.running = True
        return _done()


class Dispatchers:
    """A data plane: all replicas are asked at the same time, and their answers put together.

    It never waits. A replica that is not done yet says so; its Call brings the controller back.
    """

    def __init__(self, replicas: Mapping[str, ConsumerManager]) -> None:
        self._replicas = replicas
        #: Has the controller look again. Any thread.
        self.changed: Callable[[], None] = lambda: None

    async def stop(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """Lock the group in every replica, and have it stopped."""
        return self._ask(lambda manager: manager.stop(group.group, token, owner="a reset of offsets"))

    async def start(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """Have it started in every replica, and unlocked."""
        return self._ask(lambda manager: manager.start(group.group, token))

    def _ask(self, ask: Callable[[ConsumerManager], Call[None]]) -> list[Replica]:
        return [self._answer(name, manager, ask) for name, manager in self._replicas.items()]

    def _answer(self, name: str, manager: ConsumerManager, ask: Callable[[ConsumerManager], Call[None]]) -> Replica:
        try:
            call = ask(manager)
            if not call.done:
                call.when_done(self.changed)
                return Replica(name, done=False, message="is not done yet")
            call.result()
        except ResetError as error:  # locked by another reset
            return Replica(name, done=False, message=str(error))
        return Replica(name, done=True)


def embed(
    zk: ZooKeeper, tasks: Tasks, logs: TopicLogs, replicas: Mapping[str, ConsumerManager], groups: Sequence[str]
) -> ResetController:
    """Return the controller of these replicas, begun. The caller steps `tasks`."""
    plane = Dispatchers(replicas)
    factory = ControllerFactory(logs=logs, plane=plane, name="dispatchers", groups=lambda: groups)
    controller = factory(zk, tasks)
    plane.changed = controller.look
    zk.on_change = controller.look
    tasks.spawn(controller.run(), "resets of offsets")
    return controller


def main(hosts: str, brokers: str) -> None:
    """Run two replicas of one group until Ctrl-C."""
    clock, wakeup = SystemClock(), Wakeup()
    replicas = {name: ConsumerManager(clock.now) for name in ("dispatcher-0", "dispatcher-1")}
    for manager in replicas.values():
        manager.add("orders-svc", Dispatcher())
    zk = zookeeper_client(ZooKeeperConfig(hosts=hosts), clock)
    tasks = Tasks(clock, wakeup.set)
    properties = {"bootstrap.servers": brokers}
    logs = KafkaTopicLogs(connector(ReaderConfig(), properties, client_id="dispatchers", isolation="read_committed"))
    embed(zk, tasks, logs, replicas, ["orders-svc"])
    zk.start()
    try:
        while True:
            due = tasks.step()
            for manager in replicas.values():
                manager.expire()
            wakeup.wait(1.0 if due is None else min(1.0, due - clock.now()))
    finally:
        tasks.close()
        zk.close()
        logs.close()


def _done() -> Call[None]:
    call: Call[None] = Call("dispatcher")
    call.succeed(None)
    return call


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

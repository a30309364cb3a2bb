"""A process that submits a reset, leads it, and dies of SIGKILL as soon as a step is done.

    python -m integration.controller.reset_offset.reset_leader CONFIG NAME STEP SESSION < the data of the command's node

STEP is a state that the command comes to, or `applied-<k>`, the node that the transaction of a chunk makes. The process is
the command's leader from its very submission, in one transaction: no other process does a step before it is dead and its session,
of so many seconds, has expired.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inbound.cli.shared.zookeeper import with_tasks
from inbound.config import load
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.controller.reset_offset import ControllerFactory
from inbound.controller.reset_offset.command import PATHS
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Create, Op, RefusedError, SetData
from inbound.errors import InboundError
from inbound.kafka.clients.topic_logs import KafkaTopicLogs
from inbound.offsets.gather import Way


def die_at(zk: KazooZooKeeper, path: str, step: str) -> None:
    """Have this process killed when ZooKeeper has answered the transaction that does `step` of the command at `path`."""
    send = zk.transaction

    def does(op: Op) -> bool:
        if isinstance(op, Create):
            return op.path == f"{path}/{step}"
        return isinstance(op, SetData) and op.path == path and json.loads(op.data)["state"] == step

    def transaction(ops: Sequence[Op]) -> Any:
        call = send(ops)

        def answered() -> None:
            try:
                call.result()
            except InboundError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

        if any(map(does, ops)):
            call.when_done(answered)
        return call

    zk.transaction = transaction  # type: ignore[method-assign]


async def lead(zk: KazooZooKeeper, tasks: Tasks, factory: ControllerFactory, name: str, data: bytes, step: str) -> Any:
    """Submit a command as its leader, and carry it out."""
    for folder in PATHS.parents():
        try:
            await zk.transaction([Create(folder)])
        except RefusedError:
            pass  # it is there
    die_at(zk, PATHS.reset(name), step)
    await zk.transaction([Create(PATHS.reset(name), data), Create(PATHS.leader(name), b"dies soon", ephemeral=True)])
    return await factory(zk, tasks).lead(name)


def main() -> None:
    """Live until the step is done."""
    path, name, step, session = sys.argv[1:]
    data = sys.stdin.buffer.read()
    config = load(Path(path).read_text(), filename=path).config
    factory = ControllerFactory(logs=KafkaTopicLogs(lambda: Way().connect(config.kafka)), name="dies soon")
    settings = config.zookeeper.model_copy(update={"session_timeout": float(session)})
    with_tasks(settings, lambda zk, tasks: lead(zk, tasks, factory, name, data, step), work_seconds=120)


if __name__ == "__main__":
    main()

"""Twenty causes that stall a partition, each as it comes about."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from inbound import Batch, BatchResponse
from inbound.cli.inspect.explain import explained
from inbound.errors import LedgerError
from inbound.observe.explain.facts import Cause
from integration.observe.explain.explaining import BEHAVIOURS, Named, Stage, hang, watch
from integration.proxy import Proxy
from tests.waiting import until

Tell = Callable[[], str | None]
#: What plants a cause in a channel that is idle, and returns what tells what is named for it.
Plant = Callable[[Stage, str], Tell]
UNREACHABLE = "http://127.0.0.1:9/"  # nothing listens there


def _raises(batch: Batch) -> BatchResponse:
    raise OSError("the database does not answer")


def _told(*, after: Callable[[Batch], BatchResponse], records: int = 1) -> Plant:
    def plant(stage: Stage, name: str) -> Tell:
        BEHAVIOURS[name] = after
        stage.publish(name, count=records)
        return stage.cause(name)

    return plant


def _published(stage: Stage, name: str) -> Tell:
    stage.publish(name)
    return stage.cause(name)


def _paused(stage: Stage, name: str) -> Tell:
    stage.zk.create(f"{stage.paths(name).pauses}/operator", b'{"v":1,"since":"now","by":"ann","reason":"migration"}')
    return stage.cause(name)


def _reset(stage: Stage, name: str) -> Tell:
    stage.zk.set(stage.paths(name).gate(stage.topic(name)), b"/inbound/commands/reset-offset/one")
    return _outside(stage, name)


def _outside(stage: Stage, name: str, partition: int = 0) -> Tell:
    """Ask as the command does: ZooKeeper, the owner, Kafka."""
    loaded = stage.loaded([name])
    config = loaded.config.channels[name]
    return lambda: explained(loaded, stage.tp(name, partition), name, config, None)["cause"]


def _not_fetching(stage: Stage, name: str) -> Tell:
    """As kafka-python 3.0.7 did: a partition is assigned, and never fetched."""
    client: Any = stage.running(name).reader._client
    client._consumer.pause(client._keys[stage.tp(name, 1)])
    stage.publish(name, 1, 10)
    return stage.cause(name, 1)


def _workers_busy(stage: Stage, name: str) -> Tell:
    BEHAVIOURS[name] = hang
    stage.publish(name, 0)
    until(
        lambda: (held := stage.held(name)) is not None and held.totals.batch_since is not None, 60, "the worker hangs"
    )
    stage.publish(name, 1)
    return stage.cause(name, 1)


#: Of the channel whose buffers are filled.
FULL = 8


def _buffer_full(stage: Stage, name: str) -> Tell:
    BEHAVIOURS[name] = hang
    for partition in range(FULL - 1):
        stage.publish(name, partition, count=3, size=900_000)
    channel = stage.running(name)
    until(
        lambda: all(stream.paused for stream in channel.reader._streams.values()),
        60,
        lambda: f"the prefetch is full: {channel.reader.read_ahead}",
    )
    stage.publish(name, FULL - 1)
    return stage.cause(name, FULL - 1)


class FullDisk:
    """A ledger on a disk without room."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def begun(self, entry: Any) -> None:
        raise LedgerError("ledger: No space left on device; make room")


def _ledger(stage: Stage, name: str) -> Tell:
    books: Any = stage.running(name).parts.ledger_notes
    books.ledger = FullDisk(books.ledger)
    stage.publish(name)
    return stage.cause(name)


def _left_out(stage: Stage, name: str) -> Tell:
    owned = {p.tp.partition for p in stage.running(name).parts.schedule.held()}
    (left_out,) = {0, 1} - owned
    return _outside(stage, name, left_out)


#: In one process: channel, cause, its settings, how it is planted.
IN_ONE_PROCESS: dict[str, tuple[Cause, dict[str, Any], Plant]] = {
    "slow": (Cause.SLOW_PROCESSOR, {}, _told(after=hang)),
    "slow-async": (
        Cause.SLOW_PROCESSOR, {"processor": {"type": "integration.observe.explain.explaining:ToldLater"}}, _told(after=hang),
    ),
    "waiting": (Cause.WAITING, {}, _told(after=lambda batch: BatchResponse.advance(wait=600.0))),
    "reverting": (Cause.REVERT_LOOP, {}, _told(after=lambda batch: BatchResponse.revert(wait=0.1))),
    "poison": (Cause.POISON_EVENT, {}, _told(after=_raises)),
    "failing": (Cause.PROCESSOR_FAILS, {}, _told(after=_raises, records=10)),
    "subscriber": (
        Cause.SUBSCRIBER_DOWN, {"processor": {"type": "dispatch", "options": {"subscriberUri": UNREACHABLE}}}, _published,
    ),
    "dead-letters": (
        Cause.DEAD_LETTERS,
        {
            "processor": {
                "type": "dispatch",
                "options": {"subscriberUri": UNREACHABLE, "delivery": {"retry": 0, "deadLetterSink": {"uri": UNREACHABLE}}},
            }
        },
        _published,
    ),
    "paused": (Cause.PAUSED, {}, _paused),
    "reset": (Cause.RESET, {}, _reset),
    "forgotten": (Cause.NOT_FETCHING, {}, _not_fetching),
    "busy": (Cause.WORKERS_BUSY, {}, _workers_busy),
    "full": (
        Cause.BUFFER_FULL, {"partitions": FULL, "reader": {"prefetch_bytes": "4MiB", "batch_bytes": "1MiB"}}, _buffer_full,
    ),
    "ledger": (Cause.LEDGER, {}, _ledger),
    "left-out": (Cause.NONE_ALLOWED, {"coordinator": {"type": "fixed-count", "count": 1}}, _left_out),
}  # fmt: skip


def plant_in_one_process(stage: Stage, names: list[str]) -> list[Named]:
    """Plant these in one process, one right after the other, and wait until all are named."""
    for name in names:
        stage.channel(name, **IN_ONE_PROCESS[name][1])
    application = stage.start(*names, session="30s")
    for name in names:
        partitions = IN_ONE_PROCESS[name][1].get("partitions", 2)
        stage.settled(name, 1 if name == "left-out" else partitions)
    planted = []
    for name in names:
        cause, _, plant = IN_ONE_PROCESS[name]
        tell = plant(stage, name)
        planted.append((name, cause.value, time.monotonic(), tell))
    found = watch(planted)
    stage.stop(application)
    return found


def plant_no_member(stage: Stage) -> list[Named]:
    """A group without a member."""
    stage.channel("empty")
    return watch([("empty", Cause.NO_MEMBER.value, time.monotonic(), _outside(stage, "empty"))])


@contextmanager
def _behind_a_proxy(stage: Stage, name: str, session: str) -> Iterator[Proxy]:
    stage.channel(name)
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(int(stage.cluster.zookeeper_hosts.rpartition(":")[2])))
        application = stage.start(name, hosts=proxy.address, session=session)
        stage.settled(name)
        yield proxy
        stage.stop(application)


def plant_suspended(stage: Stage) -> list[Named]:
    """ZooKeeper cannot be reached, and the session goes on for long."""
    with _behind_a_proxy(stage, "suspended", "60s") as proxy:
        proxy.close()
        at = time.monotonic()
        return watch([("suspended", Cause.SESSION_SUSPENDED.value, at, stage.cause("suspended"))])


def plant_in_doubt(stage: Stage) -> list[Named]:
    """ZooKeeper cannot be reached for two thirds of the session: it counts from then on."""
    with _behind_a_proxy(stage, "doubtful", "9s") as proxy:
        zk = stage.running("doubtful").parts.zk
        held = stage.held("doubtful")
        assert held is not None
        proxy.close()
        until(lambda: zk.doubtful_from(held.fence.session) <= zk.clock.now(), 60, "the session is in doubt")
        at = time.monotonic()
        return watch([("doubtful", Cause.IN_DOUBT.value, at, stage.cause("doubtful"))])


def plant_silent_owner(stage: Stage) -> list[Named]:
    """A process that is stopped, and whose session lives on."""
    stage.channel("stopped")
    config = stage.folder / "stopped.yaml"
    body = stage.loaded(["stopped"], session="60s").config
    config.write_text(
        f'zookeeper: {{hosts: "{body.zookeeper.hosts}", session_timeout: 60s}}\n'
        f'kafka: {{bootstrap.servers: "{stage.cluster.bootstrap_servers}"}}\n'
        f'admin: {{listen: "127.0.0.1:0"}}\nledger: {{path: {stage.folder / "stopped-ledger"}}}\n'
        f"channels:\n  stopped:\n    topics: [{stage.topic('stopped')}]\n    group: {stage.group('stopped')}\n"
        f'    processor: {{type: "integration.observe.explain.explaining:Told"}}\n'
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in (os.getcwd(), *sys.path) if path)}
    with open(stage.folder / "stopped.log", "wb") as log:
        command = [sys.executable, "-m", "inbound", "run", "-c", str(config)]
        process = subprocess.Popen(command, stderr=log, env=environment)
    try:
        owners = stage.paths("stopped").owners(stage.topic("stopped"))
        until(
            lambda: stage.zk.exists(owners) and len(stage.zk.get_children(owners)) == 2,
            60,
            lambda: (stage.folder / "stopped.log").read_text()[-2000:],
        )
        process.send_signal(signal.SIGSTOP)
        return watch([("stopped", Cause.OWNER_SILENT.value, time.monotonic(), _outside(stage, "stopped"))])
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def plant_broker_away(stage: Stage) -> list[Named]:
    """The broker that leads it dies; no other can lead it: it is the only one."""
    stage.channel("unled")
    application = stage.start("unled", session="20s")
    stage.settled("unled")
    broker = stage.cluster.brokers[0]
    broker.kill()
    try:
        found = watch([("unled", Cause.BROKER_AWAY.value, time.monotonic(), stage.cause("unled"))])
    finally:
        broker.start()
    stage.settled("unled")
    stage.stop(application)
    return found


ALONE: dict[str, Callable[[Stage], list[Named]]] = {
    "empty": plant_no_member,
    "suspended": plant_suspended,
    "doubtful": plant_in_doubt,
    "stopped": plant_silent_owner,
    "unled": plant_broker_away,
}

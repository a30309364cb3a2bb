"""A group whose offsets are reset, an operator, and an account of what was delivered that does not ask inbound."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import NoNodeError

from inbound.cli.shared.zookeeper import with_tasks, with_zookeeper
from inbound.config import Config, load
from inbound.controller.reset_offset import (
    ControllerFactory,
    Moved,
    Ref,
    RefInfo,
    ResetCommand,
    ResetSpec,
    To,
    cancel,
    new_name,
    read,
    submit,
)
from inbound.controller.reset_offset.command import PATHS, encode
from inbound.kafka.clients.topic_logs import KafkaTopicLogs
from inbound.offsets.gather import Way
from integration.books import Handed
from integration.controller.reset_offset import reset_leader
from integration.harness import STEADY, Scene
from tests.waiting import until

#: How long a process that is killed is still the leader: its session, in seconds.
LEADS = 10.0
#: How long a reset may take on a machine that does much else. Seconds.
PATIENCE = 120.0


@dataclass
class ResetScene(Scene):
    """`close` it, as the other one. Its processors can be held inside a batch."""

    session: float = STEADY

    def write_config(self, **channel: str) -> None:
        """Write the configuration, with a processor that can be held."""
        super().write_config(**{"shutdown_timeout": "300s", **channel})
        self.config.write_text(self.config.read_text().replace("recorder:Recorder", "holding:Holding"))

    @contextmanager
    def held(self, *partitions: int) -> Iterator[None]:
        """Hold batches of these partitions in the callback."""
        files = [self.seen_folder / f"hold-{p}" for p in partitions]
        for file in files:
            file.touch()
        try:
            yield
        finally:
            for file in files:
                file.unlink()

    @contextmanager
    def first_held(self) -> Iterator[subprocess.Popen[bytes]]:
        """Publish a record to each partition, and hold the first's in the callback; the others' are committed.

        Its value is the consumer that is inside that batch.
        """
        with self.held(0):
            self.publish(1)
            until(
                lambda: all(self.offset(p) == self.published[p] for p in range(1, self.partitions)), 60,
                "the other partitions are committed",
            )  # fmt: skip
            holders = until(
                lambda: [p for p in self.processes if 0 in self.inside(p.pid)], 60, "a batch of the first is held"
            )
            yield holders[0]

    def reset_while_held(self) -> str:
        """Submit a reset, inside `first_held`, and wait until all but the first partition are released; return its name."""
        name = self.reset()
        until(lambda: list(self.owners()) == [0], 60, "the other partitions are released")
        return name

    # -- the operator ------------------------------------------------------------------------------------------------

    @property
    def loaded(self) -> Config:
        """The configuration as the consumers have it."""
        return load(self.config.read_text(), filename=str(self.config)).config

    def command(self, to: To = To.EARLIEST, *, force_after: float | None = None, **fields: Any) -> ResetCommand:
        """Return a reset of this group, not submitted."""
        now = time.time()
        return ResetCommand(
            name=new_name(now), ref=Ref(kind="ConsumerGroup", name=self.group), created=now, by="a test",
            info=RefInfo(topic=self.topic, group=self.group), spec=ResetSpec(to=to, **fields), force_after=force_after,
        )  # fmt: skip

    def submit(self, *commands: ResetCommand) -> None:
        """Leave these resets, one after another, to the process that leads."""

        async def work(zk: Any) -> None:
            for command in commands:
                assert await submit(zk, command)

        with_zookeeper(self.loaded.zookeeper, work)

    def reset(self, to: To = To.EARLIEST, **fields: Any) -> str:
        """Submit a reset; return its name."""
        command = self.command(to, **fields)
        self.submit(command)
        return command.name

    def cancel(self, name: str) -> None:
        """Cancel a reset."""
        with_zookeeper(self.loaded.zookeeper, lambda zk: cancel(zk, name, "a test"))

    def lead(self, name: str) -> None:
        """Carry a reset out in this process."""
        config = self.loaded
        logs = KafkaTopicLogs(lambda: Way().connect(config.kafka))
        factory = ControllerFactory(logs=logs, name="a test")
        with_tasks(config.zookeeper, lambda zk, tasks: factory(zk, tasks).lead(name), work_seconds=PATIENCE)
        logs.close()

    def reset_and_kill_the_leader(self, command: ResetCommand, step: str) -> None:
        """Submit a reset by a process that leads it, and that is killed when `step` is done."""
        done = subprocess.run(
            [sys.executable, "-m", reset_leader.__name__, str(self.config), command.name, step, str(LEADS)],
            input=encode(command.at(command.created)), capture_output=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    # -- what became of it -------------------------------------------------------------------------------------------

    def state(self, name: str) -> str:
        """Return how far a reset has come, as its node says."""
        return str(self._body(name)["state"])

    def ended(self, name: str, state: str = "succeeded") -> dict[int, Moved]:
        """Wait until a reset has ended so; return what its status says of each partition."""
        until(lambda: self.state(name) == state, PATIENCE, lambda: f"{state}: {self._body(name)}")
        command = with_zookeeper(self.loaded.zookeeper, lambda zk: read(zk, name))
        assert command is not None
        return {moved.partition: moved for moved in command.moved}

    def _body(self, name: str) -> dict[str, Any]:
        try:
            body: dict[str, Any] = json.loads(self.zk.get(PATHS.reset(name))[0])
        except NoNodeError:
            return {"state": "gone"}
        return body

    def moves(self) -> dict[int, tuple[int, int]]:
        """Return of each partition how often its offset was written, and which transaction did so last."""
        found = {}
        for partition in range(self.partitions):
            stat = self.zk.exists(f"/consumers/{self.group}/offsets/{self.topic}/{partition}")
            found[partition] = stat.version, stat.mzxid
        return found

    def delivered(self) -> dict[int, list[Handed]]:
        """Return the batches of each partition in the order in which any processor was handed them."""
        batches = self.batches()
        return {p: [batch for batch in batches if batch.partition == p] for p in range(self.partitions)}

    def jumps(self) -> dict[int, list[tuple[int, int]]]:
        """Return from where to where each partition went, as processors saw it, whenever it did not simply go on."""
        found: dict[int, list[tuple[int, int]]] = {}
        for partition, batches in self.delivered().items():
            position = 0
            jumps = found[partition] = []
            for batch in batches:
                if batch.first != position:
                    jumps.append((position, batch.first))
                position = batch.next
        return found

    def read_to_the_ends(self) -> bool:
        """Whether the last that was delivered of each partition is its last record."""
        return all(b and b[-1].next == self.published[p] for p, b in self.delivered().items())

    def settle_at_the_ends(self) -> None:
        """End the load; wait until each partition is read to its end, and that is committed: nothing but jumps was left out."""
        self.end_load()
        until(self.read_to_the_ends, 90, lambda: f"all are read to their ends: {self.delivered()}")
        self.settle()
        jumps = self.jumps()
        for partition, offsets in self.account().lost.items():
            assert all(any(old <= offset < new for old, new in jumps[partition]) for offset in offsets), offsets


def jumps_of(partitions: int, *resets: dict[int, Moved]) -> dict[int, list[tuple[int, int]]]:
    """Return the jumps that these resets explain: where nothing was read between two of them, it is one jump."""
    found: dict[int, list[tuple[int, int]]] = {p: [] for p in range(partitions)}
    for moved in resets:
        for partition, one in moved.items():
            first, jumps = one.old or 0, found[partition]
            if jumps and jumps[-1][1] == first:
                first = jumps.pop()[0]
            if first != one.new:
                jumps.append((first, one.new))
    return found

"""The demo's consumer processes, and their group in ZooKeeper."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from inbound.coordinators.paths import GroupPaths
from inbound.errors import InboundError

GROUP = "delays"
#: Short, so that a death is noticed soon. ZooKeeper's tick is 500 ms here.
SESSION_TIMEOUT = 6.0
#: Flights arrive about half faster than they are counted, so a batch is nearly always in flight. All pauses together take so
#: many seconds, for any number of flights.
SLICE, PAUSES = 20, 168.0
_LOG_LINES = 12
_POLL = 0.01


class DemoError(InboundError):
    """The demo could not be carried out."""


def configuration(
    folder: Path, *, topic: str, zookeeper: str, kafka: str, member: str, flights: int, more: str = ""
) -> str:
    """Return the `inbound.yaml` of the demo's processes, with `more` channels."""
    return f"""\
# Written by `inbound demo`. Each process appends its number to consumer_id.
zookeeper: {{hosts: {json.dumps(zookeeper)}, session_timeout: {SESSION_TIMEOUT:.0f}s}}
kafka: {{bootstrap.servers: {json.dumps(kafka)}}}
controller: {{join_delay: 1s}}
ledger: {{type: files, path: {json.dumps(str(folder / "ledger"))}}}
channels:
  {GROUP}:
    topics: [{json.dumps(topic)}]
    group: {GROUP}
    consumer_id: {json.dumps(member)}
    shutdown_timeout: 10s
    processor:
      type: "delays:DelaysPerCarrier"
      options: {{journal: {json.dumps(str(folder / "journal"))}, slice: {SLICE}, pause: {PAUSES * SLICE / flights:.4f}}}
{more}"""


class ConsumerProcess:
    """One `inbound run` process; it also stops if its owner dies."""

    def __init__(self, number: int, config: Path, member: str) -> None:
        self.number = number
        self.name = f"process {number}"
        self.consumer_id = f"{member}-{number}"
        self.log = config.parent / f"process-{number}.log"
        #: The signal that the demo has ended it with.
        self.ending: str | None = None
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "inbound", "run", "-c", str(config), "--child", str(number)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the demo alone, which then ends its processes
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died already: `check` says so
            # The token of its admin port, which the demo does not use.
            self._process.stdin.write(f"{secrets.token_urlsafe(32)}\n".encode())
            self._process.stdin.flush()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """Raise DemoError if the process has ended unexpectedly."""
        code = self._process.poll()
        if code is not None and self.ending is None:
            raise DemoError(f"{self.name} ended unexpectedly with {_ending(code)}\n{self.tail()}")

    def freeze(self) -> bool:
        """Freeze the process (SIGSTOP). Returns False if it has ended."""
        self._process.send_signal(signal.SIGSTOP)
        # Waits until the kernel says that it stopped; WNOWAIT leaves its exit status for Popen.
        result = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return result is not None and result.si_code == os.CLD_STOPPED

    def thaw(self) -> None:
        """Resume the process after `freeze`."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> float:
        """Kill the process, and wait for its end. Returns the Unix time."""
        self.ending = "SIGKILL"
        at = time.time()
        self._process.kill()
        self._process.wait()
        return at

    def request_stop(self) -> None:
        """Ask for a graceful stop (SIGTERM)."""
        self.ending = "SIGTERM"
        self._process.terminate()

    def stopped(self) -> bool:
        """Return whether the process has ended; exit codes raise DemoError."""
        code = self._process.poll()
        if code:
            raise DemoError(f"{self.name} was asked to stop and ended with {_ending(code)}, not 0\n{self.tail()}")
        return code == 0

    def close(self) -> None:
        """Kill the process if it runs, and close its standard input."""
        if self.running:
            self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def tail(self) -> str:
        """Return the log's path and last lines."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"the end of {self.log}:", *(f"  {line}" for line in lines)])


def kill_when(consumer: ConsumerProcess, inside: Callable[[], bool], *, within: float) -> float:
    """Kill `consumer` while `inside` holds. Returns the time.

    SIGKILL hits a chosen moment only in a frozen process. So the process is frozen for some milliseconds, and then killed or
    resumed. Raises DemoError if the moment does not come within so many seconds.
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not consumer.freeze():
            break
        if inside():
            return consumer.kill()
        consumer.thaw()
        time.sleep(_POLL)
    consumer.check()
    raise DemoError(f"{consumer.name} was never inside a batch for {within:.0f} s\n{consumer.tail()}")


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


_TIMEOUT = 10.0


class DemoGroup:
    """Reads owners and commits of one group and topic. One thread."""

    def __init__(self, hosts: str, group: str, topic: str, partitions: int) -> None:
        """Connect. Raises DemoError: ZooKeeper does not answer."""
        self._paths = GroupPaths(group)
        self._topic = topic
        self._partitions = partitions
        self._hosts = hosts
        self._client = KazooClient(hosts=hosts, timeout=_TIMEOUT)
        try:
            self._client.start(timeout=_TIMEOUT)
        except self._client.handler.timeout_exception:
            self._client.close()
            raise DemoError(f"ZooKeeper at {hosts} does not answer within {_TIMEOUT:.0f} s; see its log") from None

    def owners(self) -> dict[int, str]:
        """Return the owner of each partition that has one."""
        return self._read(lambda partition: self._paths.owner(self._topic, partition))

    def commits(self) -> dict[int, int]:
        """Return the committed offset of each partition that has one."""
        texts = self._read(lambda partition: self._paths.offset(self._topic, partition))
        return {partition: int(text) for partition, text in texts.items() if text}

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _read(self, path: Callable[[int], str]) -> dict[int, str]:
        pending = [(partition, self._client.get_async(path(partition))) for partition in range(self._partitions)]
        found: dict[int, str] = {}
        for partition, answer in pending:
            try:
                found[partition] = answer.get(timeout=_TIMEOUT)[0].decode()
            except NoNodeError:
                continue
            except (KazooException, self._client.handler.timeout_exception) as error:
                raise DemoError(f"ZooKeeper at {self._hosts} does not answer: {error!r}; see its log") from None
        return found

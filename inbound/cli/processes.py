"""`inbound run --processes N`: a parent that starts N consumer processes, watches them and shows one admin port."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from types import FrameType
from urllib.parse import quote, urlencode

import inbound
from inbound.cli.files import admin_token
from inbound.clock import Clock, SystemClock
from inbound.config import Loaded
from inbound.errors import InboundError
from inbound.http.admin import AdminServer
from inbound.http.client import fetch_status, post, processes_of
from inbound.http.pages import Page, text
from inbound.operations import ANSWER_SECONDS, Operation
from inbound.status import ProcessStatus, SessionStatus

log = logging.getLogger("inbound")

#: A dead child is started again after 1 s, doubling to 30 s; a child that lived a minute starts afresh.
FIRST_BACKOFF, LONGEST_BACKOFF, LIVED_WELL = 1.0, 30.0, 60.0
#: So many deaths within a minute mean that something is wrong with all of them.
DEATHS, WITHIN = 5, 60.0
#: How long a child may take to answer for its status.
ANSWER_TIMEOUT = 2.0


@dataclass(eq=False)
class Child:
    """One consumer process."""

    index: int
    process: subprocess.Popen[bytes] | None = None
    url: str | None = None
    started: float = 0.0
    backoff: float = FIRST_BACKOFF
    restart_at: float | None = None


class Deaths:
    """Counts deaths in a sliding minute."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def add(self, now: float) -> bool:
        """Note one. Returns True when there were too many."""
        self._times.append(now)
        while self._times and now - self._times[0] > WITHIN:
            self._times.popleft()
        return len(self._times) >= DEATHS


class Supervisor:
    """Owns the children: none outlives it (each watches the pipe that is its standard input)."""

    def __init__(self, args: argparse.Namespace, loaded: Loaded, clock: Clock | None = None) -> None:
        self._args = args
        self._loaded = loaded
        self._clock = clock or SystemClock()
        self._children = [Child(index) for index in range(args.processes)]
        self._stop = threading.Event()
        self._signals = 0
        self._deaths = Deaths()
        self._token = admin_token(loaded.config.admin)

    def run(self) -> int:
        """Run until told to stop, or until the children die too often. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        admin_config = self._loaded.config.admin
        host, _, port = admin_config.listen.rpartition(":")
        admin = AdminServer(
            self.statuses,
            host=host.strip("[]"),
            port=int(port),
            port_given=admin_config.given,
            operate=self._operate,
            token=self._token,
        )
        admin.start()
        log.info("admin: %s/status for %d processes", admin.url, len(self._children))
        try:
            for child in self._children:
                self._start(child)
            failed = False
            while not self._stop.is_set() and not failed:
                self._stop.wait(0.1)
                failed = self._watch()
            return self._end() or int(failed)
        finally:
            for child in self._children:
                if child.process is not None and child.process.poll() is None:
                    child.process.kill()
                    child.process.wait()
            admin.close()

    def statuses(self) -> list[ProcessStatus]:
        """Ask all children at once for their status; one that does not answer stands there with that as its problem."""
        with ThreadPoolExecutor(len(self._children)) as pool:
            return [status for statuses in pool.map(self._ask, self._children) for status in statuses]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _ask(self, child: Child) -> list[ProcessStatus]:
        url = child.url
        if url is None:
            return [_silent(child, f"process {child.index} is starting")]
        try:
            return processes_of(url, fetch_status(url, timeout=ANSWER_TIMEOUT))
        except InboundError as error:
            log.warning("process %d: %s", child.index, error)
            return [_silent(child, f"process {child.index} does not answer")]

    def _operate(self, channel: str, operation: Operation) -> Page:
        """Pass an operation on to a child: what it writes is for the whole group. Doing it twice is safe."""
        parameters = {"consumer": operation.consumer, "reason": operation.reason}
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        path = f"/channels/{quote(channel, safe='')}/{operation.verb.value}?{query}"
        token = self._token() if self._token is not None else None
        for child in self._children:
            if child.url is None:
                continue
            try:
                code, content_type, body = post(child.url, path, token, ANSWER_SECONDS + ANSWER_TIMEOUT)
            except InboundError as error:
                log.warning("process %d: %s", child.index, error)
                continue
            return Page(code, body, content_type)
        return text(HTTPStatus.SERVICE_UNAVAILABLE, "no process answers; ask again, or use the command line")

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._stop.set()

    def _start(self, child: Child) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "inbound", *(["-v"] if self._args.verbose else []), "run"]
        command += ["-c", str(self._args.config), "--child", str(child.index), "--announce", str(writing)]
        for item in self._args.set:
            command += ["--set", item]
        child.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writing], start_new_session=True)
        os.close(writing)
        child.started, child.restart_at, child.url = self._clock.now(), None, None
        threading.Thread(
            target=self._read_url, args=(child, reading), name=f"announce-{child.index}", daemon=True
        ).start()
        log.info("process %d: started, pid %d", child.index, child.process.pid)

    def _read_url(self, child: Child, reading: int) -> None:
        with os.fdopen(reading) as lines:  # ends when the child has announced itself, or died
            child.url = lines.readline().strip() or None

    def _watch(self) -> bool:
        """Restart who died. Returns True when they die too often."""
        now = self._clock.now()
        for child in self._children:
            if child.restart_at is not None:
                if now >= child.restart_at:
                    self._start(child)
                continue
            assert child.process is not None
            code = child.process.poll()
            if code is None:
                continue
            if now - child.started > LIVED_WELL:
                child.backoff = FIRST_BACKOFF
            child.url = None
            log.error("process %d ended with %s; started again in %.0f s", child.index, _reason(code), child.backoff)
            child.restart_at = now + child.backoff
            child.backoff = min(LONGEST_BACKOFF, child.backoff * 2)
            if self._deaths.add(now):
                log.error("%d processes died within a minute: giving up; see why in the log above", DEATHS)
                return True
        return False

    def _end(self) -> int:
        """Stop all children in good order; a second signal kills them."""
        living = [c.process for c in self._children if c.process is not None and c.process.poll() is None]
        for process in living:
            process.terminate()
        seen = 1
        limit = max(c.shutdown_timeout for c in self._loaded.config.channels.values()) + 15.0
        deadline = self._clock.now() + limit
        while any(p.poll() is None for p in living) and self._clock.now() < deadline:
            threading.Event().wait(0.05)
            if self._signals > seen:
                seen = self._signals
                for process in living:
                    process.terminate()
        for process in living:
            if process.poll() is None:
                log.error("process %d did not end within %.0f s and is killed", process.pid, limit)
                process.kill()
                process.wait()
        return int(any(p.returncode not in (0, -signal.SIGTERM) for p in living))


def _silent(child: Child, problem: str) -> ProcessStatus:
    """Return what can be said of a child that says nothing."""
    return ProcessStatus(
        version=inbound.__version__,
        pid=child.process.pid if child.process is not None else 0,
        host=socket.gethostname(),
        started="",
        stopping=False,
        session=SessionStatus(
            state="down", id=None, timeout=None, certain_for=0.0, sessions_total=0, evaluations_total=0
        ),
        channels=[],
        threads=[],
        problem=problem,
    )


def _reason(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

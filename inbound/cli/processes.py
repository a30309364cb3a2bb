"""`inbound run --processes N`: a parent that starts N consumer processes, watches them and shows one admin port."""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import FrameType
from typing import Any

import inbound
from inbound import logs
from inbound.changes import Plan
from inbound.cli.files import ConfigFiles, admin_token
from inbound.cli.following import ask_on_hangup, together
from inbound.cli.policy import admin_policy
from inbound.cli.watching import FolderWatch
from inbound.clock import Clock, SystemClock
from inbound.config import Config, Loaded
from inbound.driver import Driver, Wakeup
from inbound.errors import InboundError
from inbound.explain.answer import Question
from inbound.http.admin import AdminServer
from inbound.http.client import fetch_status, post, processes_of
from inbound.http.explain_client import fetch_explanations
from inbound.http.listening import AdminListener
from inbound.http.operations import path_of
from inbound.http.pages import Page, text
from inbound.http.reloads import PATH as RELOAD
from inbound.http.rights import Token
from inbound.jmx.policy import ReadPolicy
from inbound.latch import Latch
from inbound.operations import ANSWER_SECONDS, OF_MEMBERS, Operation, Verb
from inbound.planning import plan_channels
from inbound.reconfiguration import UNCHANGED, Outcome, Reconfiguration
from inbound.status import ProcessStatus, SessionStatus
from inbound.subscriptions import channels_of
from inbound.without_channels import NoChannels, OwnSections

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

    def __init__(
        self, args: argparse.Namespace, loaded: Loaded, clock: Clock | None = None, files: ConfigFiles | None = None
    ) -> None:
        """`files` tells of a configuration that has changed; without one only the children follow it."""
        self._args = args
        self._loaded = loaded
        self._clock = clock or SystemClock()
        self._children = [Child(index) for index in range(args.processes)]
        self._stop = Latch()
        self._signals = 0
        self._deaths = Deaths()
        #: What the children ask for: their ports can be reached by whoever is on this machine.
        self._token = secrets.token_urlsafe(32)
        config = loaded.config
        self._admin = AdminListener(
            self._admin_server, config, admin_token(config.admin), admin_policy(config.admin),
            read_token=admin_token, read_policy=admin_policy, tell=self._tell_address,
        )  # fmt: skip
        self._follow(files)

    def run(self) -> int:
        """Run until told to stop, or until the children die too often. Returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        ask_on_hangup(self._ask_reload)
        self._admin.start()
        try:
            for child in self._children:
                self._start(child)
            self._changes.start()
            failed = False
            while not self._stop.is_set() and not failed:
                self._stop.wait(0.1)
                failed = self._watch()
            return self._end() or int(failed)
        finally:
            self._changes.stop()
            self._changes.join(5.0)
            self._following.close()
            for child in self._children:
                if child.process is not None and child.process.poll() is None:
                    child.process.kill()
                    child.process.wait()
            self._admin.close()

    def _admin_server(self, config: Config, token: Token | None, policy: ReadPolicy | None) -> AdminServer:
        admin = config.admin
        host, _, port = admin.listen.rpartition(":")
        return AdminServer(
            self.statuses,
            host=host.strip("[]"),
            port=int(port),
            port_given=admin.given,
            operate=self._operate,
            policy=policy,
            token=token,
            tls=admin.tls,
            hosts=admin.hosts,
            reload=self._reload,
            explain=self._explain,
        )

    def _explain(self, question: Question) -> list[dict[str, Any]]:
        """Ask all children at once; who does not answer is left out, and named in the log."""

        def ask(child: Child) -> list[dict[str, Any]]:
            try:
                return [] if child.url is None else fetch_explanations(child.url, question.tp, question.at)
            except InboundError as error:
                log.warning("process %d: %s", child.index, error)
                return []

        with ThreadPoolExecutor(len(self._children)) as pool:
            said = [answer for answers in pool.map(ask, self._children) for answer in answers]
        return [answer for answer in said if question.channel in (None, answer["channel"])]

    def _tell_address(self, url: str) -> None:
        log.info("admin: %s/status for %d processes", url, len(self._children))

    # -- the configuration as it changes -----------------------------------------------------------------------------

    def _follow(self, files: ConfigFiles | None) -> None:
        wakeup = Wakeup()
        begun = self._planned(self._loaded)
        sections = OwnSections({"admin": self._admin.change, "logging": lambda config: logs.apply(config.logging)})
        self._following = Reconfiguration(
            files, self._planned, begun, NoChannels(), self._clock, process=sections, wake=wakeup.set
        )
        if files is not None:
            self._following.watch = FolderWatch(self._following.hurry)
        self._changes = Driver("changes", self._following, wakeup, self._clock)

    def _planned(self, loaded: Loaded) -> Plan:
        plan_channels(loaded)
        self._loaded = loaded
        return Plan(loaded.config, {}, loaded.contents, loaded.digest)

    def _ask_reload(self) -> None:
        self._following.ask()
        for child in self._children:
            # Whoever has announced itself takes the signal as it is meant; before, it would end it.
            if child.url is not None and child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGHUP)

    def _reload(self, seconds: float) -> Outcome | None:
        """Have all children, and ourselves, look at the configuration; None: not all have said what came of it."""
        asked = self._following.ask()
        with ThreadPoolExecutor(len(self._children)) as pool:
            answers = list(pool.map(lambda child: _reloaded(child, self._token, seconds), self._children))
        own = self._following.answer(asked, seconds)
        if own is None or None in answers:
            return None
        return together(own, [(child.index, one) for child, one in zip(self._children, answers, strict=True) if one])

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
        """Pass an operation on: to the child that it concerns, or what is for the whole group to any. Twice is safe."""
        path = path_of(channel, operation)
        meant = self._children if operation.verb not in OF_MEMBERS else self._members(channel, operation)
        if not meant:
            what = (
                f"{operation.topic}/{operation.partition}" if operation.verb is Verb.RELEASE else f"channel {channel!r}"
            )
            whose = f", as member {operation.consumer}" if operation.consumer is not None else ""
            return text(HTTPStatus.NOT_FOUND, f"no process has {what}{whose}")
        answer, silent = None, []
        for child in meant:
            try:
                if child.url is None:
                    raise InboundError("it is starting")
                answer = Page(*_reordered(post(child.url, path, self._token, ANSWER_SECONDS + ANSWER_TIMEOUT)))
            except InboundError as error:
                log.warning("process %d: %s", child.index, error)
                silent.append(str(child.index))
                continue
            if operation.verb is not Verb.RATE or answer.code != HTTPStatus.OK:  # each process has a rate of its own
                return answer
        if answer is None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "no process answers; ask again, or use the command line")
        if silent:
            who = f"process {', '.join(silent)} does not answer, and may have its rate as it was"
            return text(HTTPStatus.SERVICE_UNAVAILABLE, f"{who}; the others have the new one; ask again")
        return answer

    def _members(self, channel: str, operation: Operation) -> list[Child]:
        """Return the children that what concerns members is for; a rate is for those, too, that do not say what they have."""
        asked = list(zip(self._children, self.statuses(), strict=True))
        meant = [
            child
            for child, process in asked
            for one in process.channels
            if one.name == channel and operation.consumer in (None, one.consumer_id)
            if operation.verb is not Verb.RELEASE
            or any((p.topic, p.partition) == (operation.topic, operation.partition) for p in one.partitions)
        ]
        if operation.verb is Verb.RATE and operation.consumer is None and meant:
            meant += [child for child, process in asked if process.problem is not None and child not in meant]
        return meant

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
        assert child.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died already: `_watch` sees that
            child.process.stdin.write(f"{self._token}\n".encode())
            child.process.stdin.flush()
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
        limit = max((c.shutdown_timeout for c in channels_of(self._loaded).values()), default=0.0) + 15.0
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


def _reordered(answer: tuple[int, str, bytes]) -> tuple[int, bytes, str]:
    code, content_type, body = answer
    return code, body, content_type


def _reloaded(child: Child, token: str, seconds: float) -> Outcome | None:
    """Have a child reload; None: it does not say in time what came of it."""
    if child.url is None:
        return Outcome(UNCHANGED)  # it starts with the configuration as it is now
    try:
        code, _, body = post(child.url, RELOAD, token, seconds + ANSWER_TIMEOUT)
        if code != HTTPStatus.OK:
            return None
        answer = json.loads(body)
        return Outcome(answer["outcome"], list(answer["steps"]), answer["problem"], answer["digest"])
    except (InboundError, ValueError, KeyError) as error:
        log.warning("process %d: %s", child.index, error)
        return None


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

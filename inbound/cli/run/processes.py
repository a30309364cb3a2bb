"""The parent of `inbound run --processes N`.

It starts N consumer processes, restarts them, and has one admin port for all.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar

from inbound.admin.client import fetch_explanations, fetch_status, post, processes_of
from inbound.admin.listener import AdminListener, AdminServer
from inbound.admin.routes import RELOAD, path_of
from inbound.cli.run.folder_watch import FolderWatch
from inbound.cli.run.run import admin_policy, apply_logging
from inbound.cli.shared.command import StopSignals, ask_on_hangup
from inbound.cli.shared.files import ConfigFiles, admin_token
from inbound.clock import Clock, SystemClock
from inbound.config import Config, Loaded
from inbound.errors import InboundError
from inbound.group.operations import ANSWER_SECONDS, OF_MEMBERS, Operation, OperationKind
from inbound.http.server.page import Page, text
from inbound.http.server.rights import Token
from inbound.observe.explain.answer import PartitionQuestion
from inbound.observe.jmx.policy import ReadPolicy
from inbound.observe.status.status import (
    APPLIED,
    REFUSED,
    ROLLED_BACK,
    UNCHANGED,
    ProcessStatus,
    ReloadOutcome,
    SessionStatus,
)
from inbound.plan.plan import plan_channels
from inbound.plan.subscriptions import channels_of
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import Channels, Reconfiguration, Section
from inbound.runtime.backoff import Backoff

log = logging.getLogger("inbound")

T = TypeVar("T")

#: When a dead child is started again. A child that lived so many seconds begins with the first delay.
BACKOFF, LIVED_WELL = Backoff(1.0, 30.0), 60.0
#: So many deaths within so many seconds mean that something is wrong with all children.
DEATHS, WITHIN = 5, 60.0
#: How long a child may take to answer for its status. Seconds.
ANSWER_TIMEOUT = 2.0
#: Outcomes of a reload: the parent reports the worst one of all processes.
_WORST = (UNCHANGED, APPLIED, ROLLED_BACK, REFUSED)


@dataclass(eq=False)
class Child:
    """One consumer process."""

    index: int
    process: subprocess.Popen[bytes] | None = None
    url: str | None = None
    started: float = 0.0
    deaths: int = 0  # in a row
    restart_at: float | None = None


class Supervisor:
    """Owns the children, which end with it: each watches its standard input."""

    def __init__(
        self, args: argparse.Namespace, loaded: Loaded, clock: Clock | None = None, files: ConfigFiles | None = None
    ) -> None:
        """Without `files`, only the children follow changes of the configuration."""
        self._args = args
        self._loaded = loaded
        self._clock = clock or SystemClock()
        self._children = [Child(index) for index in range(args.processes)]
        self._deaths: deque[float] = deque(maxlen=DEATHS)
        #: The children ask for it: every user of this machine can reach their ports.
        self._token = secrets.token_urlsafe(32)
        config = loaded.config
        self._admin = AdminListener(
            self._admin_server, config, admin_token(config.admin), admin_policy(config.admin),
            read_token=admin_token, read_policy=admin_policy, tell=self._tell_address,
        )  # fmt: skip
        self._follow(files)

    def run(self) -> int:
        """Run until a signal or too many deaths. Returns the exit code."""
        stop = StopSignals()
        ask_on_hangup(self._ask_reload)
        self._admin.start()
        try:
            for child in self._children:
                self._start(child)
            self._changes.start()
            failed = False
            while not stop.asked.is_set() and not failed:
                stop.asked.wait(0.1)
                failed = self._watch()
            return self._end(stop) or int(failed)
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
        return AdminServer(
            self.statuses,
            host=admin.host,
            port=admin.port,
            port_given=admin.given,
            operate=self._operate,
            policy=policy,
            token=token,
            tls=admin.tls,
            hosts=admin.hosts,
            reload=self._reload,
            explain=self._explain,
        )

    def _explain(self, question: PartitionQuestion) -> list[dict[str, Any]]:
        """Return the answers of all children; the log names silent ones."""

        def ask(child: Child) -> list[dict[str, Any]]:
            try:
                return [] if child.url is None else fetch_explanations(child.url, question.tp, question.at)
            except InboundError as error:
                log.warning("process %d: %s", child.index, error)
                return []

        said = [answer for answers in self._of_all(ask) for answer in answers]
        return [answer for answer in said if question.channel in (None, answer["channel"])]

    def _of_all(self, ask: Callable[[Child], T]) -> list[T]:
        with ThreadPoolExecutor(len(self._children)) as pool:
            return list(pool.map(ask, self._children))

    def _tell_address(self, url: str) -> None:
        log.info("admin: %s/status for %d processes", url, len(self._children))

    # -- the configuration as it changes -----------------------------------------------------------------------------

    def _follow(self, files: ConfigFiles | None) -> None:
        sections = [
            Section("admin", lambda old, new: self._admin.change(new)),
            Section("logging", lambda old, new: apply_logging(new)),
        ]
        self._following = Reconfiguration(
            files, self._planned, self._planned(self._loaded), Channels(), self._clock, sections=sections,
            watch=FolderWatch if files is not None else None,
        )  # fmt: skip
        self._changes = self._following.driver

    def _planned(self, loaded: Loaded) -> ProcessPlan:
        plan_channels(loaded)
        self._loaded = loaded
        return ProcessPlan(loaded.config, {}, loaded.contents, loaded.digest)

    def _ask_reload(self) -> None:
        self._following.ask()
        for child in self._children:
            # Only a child that has announced itself handles the signal; an earlier one would die of it.
            if child.url is not None and child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGHUP)

    def _reload(self, seconds: float) -> ReloadOutcome | None:
        """Let all processes reload; None if one does not answer."""
        asked = self._following.ask()
        answers = self._of_all(lambda child: _reloaded(child, self._token, seconds))
        own = self._following.answer(asked, seconds)
        if own is None or None in answers:
            return None
        return together(own, filter(None, answers))

    def statuses(self) -> list[ProcessStatus]:
        """Return the status of each child; silence is a problem."""
        return [status for statuses in self._of_all(self._ask) for status in statuses]

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
        """Pass an operation on to the children that it concerns.

        Any one child carries out an operation on the whole group. An operation may arrive twice.
        """
        path = path_of(channel, operation)
        meant = self._children if operation.verb not in OF_MEMBERS else self._members(channel, operation)
        if not meant:
            what = (
                f"{operation.topic}/{operation.partition}"
                if operation.verb is OperationKind.RELEASE
                else f"channel {channel!r}"
            )
            whose = f", as member {operation.consumer}" if operation.consumer is not None else ""
            return text(HTTPStatus.NOT_FOUND, f"no process has {what}{whose}")
        answer, silent = None, []
        for child in meant:
            try:
                if child.url is None:
                    raise InboundError("it is starting")
                code, content_type, body = post(child.url, path, self._token, ANSWER_SECONDS + ANSWER_TIMEOUT)
            except InboundError as error:
                log.warning("process %d: %s", child.index, error)
                silent.append(str(child.index))
                continue
            answer = Page(code, body, content_type)
            if (
                operation.verb is not OperationKind.RATE or answer.code != HTTPStatus.OK
            ):  # each process has a rate of its own
                return answer
        if answer is None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "no process answers; ask again, or use the command line")
        if silent:
            who = f"process {', '.join(silent)} does not answer, and may still have the old rate"
            return text(HTTPStatus.SERVICE_UNAVAILABLE, f"{who}; the others have the new one; ask again")
        return answer

    def _members(self, channel: str, operation: Operation) -> list[Child]:
        """Return the children to ask; for a rate, also silent ones."""
        asked = list(zip(self._children, self.statuses(), strict=True))
        meant = [
            child
            for child, process in asked
            for one in process.channels
            if one.name == channel and operation.consumer in (None, one.consumer_id)
            if operation.verb is not OperationKind.RELEASE
            or any((p.topic, p.partition) == (operation.topic, operation.partition) for p in one.partitions)
        ]
        if operation.verb is OperationKind.RATE and operation.consumer is None and meant:
            meant += [child for child, process in asked if process.problem is not None and child not in meant]
        return meant

    def _start(self, child: Child) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "inbound", *(["-v"] if self._args.verbose else []), "run"]
        command += ["-c", str(self._args.config), "--child", str(child.index), "--announce", str(writing)]
        for item in self._args.set:
            command += ["--set", item]
        child.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writing], start_new_session=True)
        os.close(writing)
        assert child.process.stdin is not None
        with suppress(BrokenPipeError):  # it has already died: `_watch` sees that
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
        """Restart dead children. Returns True if they die too often."""
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
            child.deaths = 1 if now - child.started > LIVED_WELL else child.deaths + 1
            delay = BACKOFF.delay(child.deaths)
            child.url, child.restart_at = None, now + delay
            log.error("process %d ended with %s; started again in %.0f s", child.index, _reason(code), delay)
            self._deaths.append(now)
            if len(self._deaths) == DEATHS and now - self._deaths[0] <= WITHIN:
                log.error("%d processes died within a minute: giving up; see why in the log above", DEATHS)
                return True
        return False

    def _end(self, stop: StopSignals) -> int:
        """Stop all children gracefully; a second signal stops them at once."""
        living = [c.process for c in self._children if c.process is not None and c.process.poll() is None]
        for process in living:
            process.terminate()
        seen = 1
        limit = max((c.shutdown_timeout for c in channels_of(self._loaded).values()), default=0.0) + 15.0
        deadline = self._clock.now() + limit
        while any(p.poll() is None for p in living) and self._clock.now() < deadline:
            threading.Event().wait(0.05)
            if stop.count > seen:
                seen = stop.count
                for process in living:
                    process.terminate()
        for process in living:
            if process.poll() is None:
                log.error("process %d did not end within %.0f s and is killed", process.pid, limit)
                process.kill()
                process.wait()
        return int(any(p.returncode not in (0, -signal.SIGTERM) for p in living))


def together(own: ReloadOutcome, others: Iterable[ReloadOutcome]) -> ReloadOutcome:
    """Return the worst outcome, with each step and problem once."""
    outcomes = [own, *others]
    worst = max((one.outcome for one in outcomes), key=_WORST.index)
    steps = list(dict.fromkeys(step for one in outcomes for step in one.steps))
    problems = list(dict.fromkeys(one.problem for one in outcomes if one.problem))
    return ReloadOutcome(worst, steps, "\n".join(problems) or None, own.digest)


def _reloaded(child: Child, token: str, seconds: float) -> ReloadOutcome | None:
    """Let a child reload; None if it does not answer."""
    if child.url is None:
        return ReloadOutcome(UNCHANGED)  # it starts with the configuration as it is now
    try:
        code, _, body = post(child.url, RELOAD, token, seconds + ANSWER_TIMEOUT)
        if code != HTTPStatus.OK:
            return None
        answer = json.loads(body)
        return ReloadOutcome(answer["outcome"], list(answer["steps"]), answer["problem"], answer["digest"])
    except (InboundError, ValueError, KeyError) as error:
        log.warning("process %d: %s", child.index, error)
        return None


def _silent(child: Child, problem: str) -> ProcessStatus:
    return replace(
        ProcessStatus.here(""),
        pid=child.process.pid if child.process is not None else 0,
        session=SessionStatus(
            state="down", id=None, timeout=None, certain_for=0.0, sessions_total=0, evaluations_total=0
        ),
        problem=problem,
    )


def _reason(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

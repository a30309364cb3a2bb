"""One connection between a fake client and its server: what is on its way, in which order, and what the server shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from inbound.coordinators.zookeeper import Call, Session, loosely
from inbound.errors import InboundError
from inbound.testing.zookeeper_tree import NOBODY, Commit, Snapshot, WatchKey, Who


@dataclass(eq=False)
class Request:
    """A request; executed by the server that it reaches."""

    call: Call[Any]
    execute: Callable[[Wire], Any]
    sent_at: float
    size: int = 0  # bytes of paths and data


class _Answer(NamedTuple):
    number: int  # the place in what the server has sent over this connection
    request: Request
    result: Any
    error: InboundError | None


class _Event(NamedTuple):
    number: int
    watch: Callable[[], None]


class Wire:
    """First in, first out, both ways. Only firing a watch may take longer than an answer that came after it.

    The server may be behind the leader (`lagging`): it shows an older tree until it catches up, but never an older one
    than it has shown before, and a client sees its own writes.
    """

    def __init__(self, session: Session, view: Snapshot) -> None:
        self.session = session
        self.requests: deque[Request] = deque()
        #: Executed, but the answer is lost.
        self.unanswered: list[Request] = []
        self.view = view
        self.lagging = False
        #: The connection is gone; its client may not have noticed.
        self.broken = False
        self._behind: deque[Commit] = deque()
        self._watches: dict[WatchKey, dict[Callable[[], None], Who]] = {}
        self._answers: deque[_Answer] = deque()
        self._events: deque[_Event] = deque()
        self._sent = 0

    # -- the server's side -------------------------------------------------------------------------------------------

    def read(self, path: str, watch: Callable[[], None] | None, who: Who = NOBODY) -> Any:
        if watch is not None:
            self._watches.setdefault(("data", path), {})[loosely(watch)] = who
        return self.view.get(path, who)

    def names(self, path: str, watch: Callable[[], None] | None, who: Who = NOBODY) -> Any:
        names = self.view.children(path, who)
        if watch is not None and names is not None:
            self._watches.setdefault(("children", path), {})[loosely(watch)] = who
        return names

    def execute(self, request: Request, *, answer: bool = True) -> None:
        """Do what a request asks for, and send the answer, or lose it."""
        result, error = None, None
        try:
            result = request.execute(self)
        except InboundError as refused:
            error = refused
        if answer:
            self._sent += 1
            self._answers.append(_Answer(self._sent, request, result, error))
        else:
            self.unanswered.append(request)

    def committed(self, commit: Commit) -> None:
        """Hear of a transaction that the leader has done."""
        self._behind.append(commit)
        if not self.lagging:
            self.catch_up()

    def catch_up(self, count: int | None = None) -> None:
        """Take over the next `count` transactions (None: all), and send the events of watches they set off.

        A watch on a node that its client may not read is gone then, and nothing is sent (as by ZooKeeper 3.9.2 and later).
        """
        for _ in range(len(self._behind) if count is None else min(count, len(self._behind))):
            commit = self._behind.popleft()
            before, self.view = self.view, commit.after
            for key in commit.changed:
                for watch, who in self._watches.pop(key, {}).items():
                    if self.view.may_read(key[1], who) and before.may_read(key[1], who):
                        self._sent += 1
                        self._events.append(_Event(self._sent, watch))

    def successor(self, session: Session) -> Wire:
        """Return the connection that follows this one, to a server that is as far behind."""
        wire = Wire(session, self.view)
        wire.lagging = self.lagging
        wire._behind.extend(self._behind)
        if not wire.lagging:
            wire.catch_up()
        return wire

    @property
    def watches(self) -> dict[WatchKey, int]:
        """How many callbacks stand for each node and list."""
        return {key: len(callbacks) for key, callbacks in self._watches.items()}

    # -- the client's side -------------------------------------------------------------------------------------------

    @property
    def answers(self) -> int:
        """How many answers are on their way."""
        return len(self._answers)

    @property
    def events(self) -> int:
        """How many watches are on their way."""
        return len(self._events)

    @property
    def has_event(self) -> bool:
        """Whether a watch may fire now: not before what the server had sent earlier has arrived."""
        return bool(self._events) and not (self._answers and self._answers[0].number < self._events[0].number)

    def take_answer(self) -> tuple[Request, Any, InboundError | None]:
        answer = self._answers.popleft()
        return answer.request, answer.result, answer.error

    def fire(self) -> None:
        """Let the oldest watch fire."""
        self._events.popleft().watch()

    def lost(self) -> list[Request]:
        """Return, in order, every request without an answer; there will be none."""
        return [*(answer.request for answer in self._answers), *self.unanswered, *self.requests]

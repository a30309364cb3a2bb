"""An ingress without brokers: a producer that keeps records in memory, and a client on the same machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from inbound.config import IngressConfig
from inbound.errors import BrokerUnavailableError
from inbound.http.server.connection import ServerConnection
from inbound.http.server.listener import ConnectionTable, ServerLimits
from inbound.ingress.producer import Delivered, Failure, FailureCause
from inbound.ingress.receiver import Receiver
from inbound.ingress.server import Ingress
from inbound.ingress.topics import TopicWatch
from inbound.kafka.base import BrokerFigures
from inbound.processors.cloudevents_bridge import RecordParts
from tests.observe.status.made_status import send
from tests.waiting import until

EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/tests", "ce-type": "t", "content-type": "text/plain"}


class MemoryProducer:
    """Takes records; `poll` acknowledges them unless they are `held`, or says what went wrong with those to come."""

    name = "memory"
    of_batches: frozenset[FailureCause] = frozenset()
    partition = staticmethod(int)

    def __init__(self, *topics: str) -> None:
        self.existing = set(topics)
        self.written: list[tuple[str, RecordParts]] = []
        self.held = False
        self.fails: list[Failure | None] = []  # what the next records end with; then they arrive
        self.refuses: list[Failure | None] = []  # what the next records are answered with when they are sent
        self.raises: list[Exception] = []  # what the next polls raise
        self.is_away: str | None = None
        self.made: list[tuple[str, int]] = []
        self.alone: list[RecordParts] = []  # what was sent in a batch of its own
        self.closed = False
        self.polls = 0
        self._sent: list[tuple[str, RecordParts, Delivered]] = []

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        for number, (record, answer) in enumerate(zip(records, delivered, strict=True)):
            refusal = self.refuses.pop(0) if self.refuses else None
            if refusal is not None:
                return number, refusal
            self._sent.append((topic, record, answer))
            if alone:
                self.alone.append(record)
        return len(records), None

    def poll(self) -> None:
        self.polls += 1
        if self.raises:
            raise self.raises.pop(0)
        if self.held:
            return
        sent, self._sent = self._sent, []
        for topic, record, delivered in sent:
            failure = self.fails.pop(0) if self.fails else None
            if failure is None:
                self.written.append((topic, record))
            delivered(failure, 0 if failure is None else None)

    def failure(self, error: Any) -> Failure:
        assert isinstance(error, Failure)
        return error

    def topics(self) -> frozenset[str]:
        if self.is_away is not None:
            raise BrokerUnavailableError(self.is_away)
        return frozenset(self.existing)

    def create(self, topic: str, partitions: int) -> None:
        self.made.append((topic, partitions))
        self.existing.add(topic)

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        return {}

    def figures(self) -> Sequence[BrokerFigures]:
        return ()

    def close(self, seconds: float) -> None:
        self.closed = True


AWAY = Failure(FailureCause.AWAY, "timed out")


class Wire:
    """A transport in memory: what the connection wrote, and whether it reads and is open."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.written = b""
        self.reading = True
        self.ended = False  # its writing side
        self.closed = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.address, 40000)}.get(name)

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Loop:
    """As much of an event loop as a listener needs; time is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self._soon: list[tuple[Any, tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Any, *arguments: Any) -> None:
        self._soon.append((callback, arguments))

    def run(self) -> None:
        """Call what is to be called."""
        while self._soon:
            callback, arguments = self._soon.pop(0)
            callback(*arguments)


class Stage:
    """A receiver and its connections, all in one thread."""

    def __init__(
        self,
        config: IngressConfig | None = None,
        limits: ServerLimits | None = None,
        *topics: str,
        held: bool = False,
        fails: Sequence[Failure | None] = (),
    ) -> None:
        """`held` and `fails` are those of the producer."""
        self.loop = Loop()
        self.producer = MemoryProducer(*(topics or ("orders", "returns")))
        self.producer.held, self.producer.fails = held, list(fails)
        self.watch = TopicWatch(
            self.producer, lambda: None, config.create_partitions if config else None, lambda: self.loop.now
        )
        self.receiver = Receiver(
            config or IngressConfig(),
            self.producer,
            self.watch,
            lambda: None,
            lambda work, done: done(work),
            clock=lambda: self.loop.now,
        )
        self.look()
        self.listener = ConnectionTable(self.receiver, limits or ServerLimits(), self.loop)  # type: ignore[arg-type]

    def look(self) -> None:
        """Read the topics again, now."""
        self.watch._look()
        self.receiver.topics_changed()

    def connect(self, sent: bytes = b"", address: str = "127.0.0.1") -> tuple[ServerConnection, Wire]:
        """Open a connection, and send something."""
        connection, wire = ServerConnection(self.listener), Wire(address)
        connection.connection_made(wire)
        if sent:
            connection.data_received(sent)
        return connection, wire

    def acknowledge(self, times: int = 1) -> None:
        """Let the producer acknowledge what it held, and the connections write."""
        self.producer.held = False
        self.settle(times)

    def settle(self, times: int = 1) -> None:
        """Let the producer acknowledge, and the connections write."""
        for _ in range(times):
            self.producer.poll()
            self.loop.run()

    def advance(self, seconds: float) -> None:
        """Let time pass, and the listener look for connections that have waited too long."""
        self.loop.now += seconds
        self.listener.tick(0.0)

    def post(self, message: bytes) -> bytes:
        """Send `message` on a connection of its own. Returns all that was answered."""
        _, wire = self.connect(message)
        self.loop.run()
        self.settle()
        return wire.written


def request(
    target: str = "/topics/orders", headers: dict[str, str] | None = None, body: bytes = b"hello", method: str = "POST"
) -> bytes:
    """Return the bytes of a request; `headers` are those of an event if not given."""
    given = {"host": "ingress", **(EVENT if headers is None else headers)}
    given.setdefault("content-length", str(len(body)))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value != "-")]
    return "\r\n".join([*lines, "", ""]).encode() + body


def statuses(answers: bytes) -> list[int]:
    """Return the status of each answer in `answers`."""
    found = []
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        found.append(int(lines[0].split()[1]))
        lengths = [int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")]
        answers = answers[lengths[0] if lengths else 0 :]
    return found


def await_topics(ingress: Ingress) -> None:
    """Wait until an ingress has asked Kafka for its topics."""
    until(lambda: ingress.status().away != "not asked yet", 10, "the ingress knows its topics", look=0.001)


def await_in_flight(ingress: Ingress) -> None:
    """Wait until an event is in flight."""
    until(lambda: ingress.status().in_flight_events, 10, "an event is in flight", look=0.001)


def acknowledge_once(condition: Callable[[], object], producer: MemoryProducer) -> None:
    """Let Kafka acknowledge, in another thread, as soon as `condition` holds: such as that the ingress is draining."""

    def acknowledge() -> None:
        until(condition, 10, "Kafka may acknowledge", look=0.001)
        producer.held = False

    threading.Thread(target=acknowledge).start()


@contextmanager
def running(
    config: IngressConfig | None = None, *topics: str, token: str | None = None
) -> Iterator[tuple[Ingress, MemoryProducer]]:
    """Serve on a free port of this machine, without brokers."""
    producer = MemoryProducer(*(topics or ("orders",)))
    settings = (config or IngressConfig()).model_copy(update={"listen": "127.0.0.1:0"})
    ingress = Ingress(settings, {}, producer=producer, token=(lambda: token) if token is not None else None)
    ingress.start()
    try:
        await_topics(ingress)
        yield ingress, producer
    finally:
        ingress.stop(1.0)


def ask(
    ingress: Ingress, *, tls: Any = None, body: bytes = b"hello", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """Post an event to a running ingress. Returns the status and the body of the answer."""
    answer = send(ingress.url, "/topics/orders", "POST", headers or EVENT, body, tls)
    return answer.code, answer.text.strip()


def ask_in_flight(ingress: Ingress, producer: MemoryProducer, **given: Any) -> Future[tuple[int, str]]:
    """Post an event that Kafka does not acknowledge yet. Returns the answer to come, once the event is in flight."""
    producer.held = True
    answer = ThreadPoolExecutor(1).submit(ask, ingress, **given)
    await_in_flight(ingress)
    return answer

"""The course of the demo: when processes start, die, stop and join."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

from inbound.demo import subscriber
from inbound.demo.accounting import JournalEntry, Journals, Kill, OpenBatches, RunAccount, SeenOffsets, account
from inbound.demo.consumers import GROUP, ConsumerProcess, DemoError, DemoGroup, configuration, kill_when
from inbound.demo.flights import CarrierSums, Flight, Sums, encoded
from inbound.publishing import log_ends, prepare_topic, publisher_to

TOPIC = "flights"
PARTITIONS = 8
#: The moments of events, as parts of the time that publishing takes.
KILL_AT, JOIN_AT, LEAVE_AT = 0.2, 0.5, 0.7

_START_LIMIT = 60.0
_KILL_LIMIT = 20.0
_STOP_LIMIT = 40.0
_TICK = 0.1


class Teller(Protocol):
    """Shows the progress of the demo."""

    def say(self, line: str) -> None:
        """Print a line."""

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` flights have been counted."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The settings of one demo."""

    folder: Path
    plugin: Path  # delays.py
    archive: Path  # the data set
    seconds: float  # that publishing takes
    flights: int  # how many of the data set are published, from its beginning
    member: str  # the consumer ids' beginning; no other live process may use it
    read: Callable[[Path], Iterator[Flight]]


@dataclass
class DemoResult:
    """The results of one demo."""

    account: RunAccount
    problems: list[str]
    expected: dict[str, Sums]
    dispatched: subscriber.Dispatched
    #: The processes by consumer id, as they are called in the tables, and how each ended.
    processes: dict[str, tuple[str, str]] = field(default_factory=dict)


class Publishing:
    """Publishes flights at a steady pace in a thread of its own."""

    def __init__(self, plan: DemoPlan, kafka: str) -> None:
        self._plan = plan
        self._publisher = publisher_to({"bootstrap.servers": kafka}, TOPIC)
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._sums = CarrierSums()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publishing", daemon=True)
        self.began: float | None = None  # by time.monotonic
        self.published = 0

    def start(self) -> None:
        self.began = time.monotonic()
        self._thread.start()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return 0.0 if self.began is None else time.monotonic() - self.began

    @property
    def delivered(self) -> int:
        """How many flights are acknowledged."""
        return self._publisher.delivered

    @property
    def expected(self) -> dict[str, Sums]:
        """The CSV's sums by carrier, complete once all is published."""
        return self._sums.by_carrier()

    def check(self) -> bool:
        """Return whether all is published. Raises the thread's error."""
        if not self._done.is_set():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def close(self) -> None:
        """Stop publishing."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._publisher.close()

    def _run(self) -> None:
        try:
            published = self._publisher.publish(
                encoded(self._counted()), rate=self._plan.flights / self._plan.seconds, stop=self._stop
            )
            self.published = published.count
        except Exception as error:  # raised again in the main thread, by check()
            self._failure = error
        finally:
            self._done.set()

    def _counted(self) -> Iterator[Flight]:
        for flight in islice(self._plan.read(self._plan.archive), self._plan.flights):
            self._sums.add(flight.carrier, flight.delay)
            yield flight


class Scenario:
    """Runs the demo; all that it starts ends with `run`."""

    def __init__(self, plan: DemoPlan, *, zookeeper: str, kafka: str, teller: Teller) -> None:
        self._plan = plan
        self._zookeeper = zookeeper
        self._kafka = kafka
        self._teller = teller
        self._config = plan.folder / "inbound.yaml"
        self._journals = Journals(plan.folder / "journal")
        self._entries: list[JournalEntry] = []
        self._open = OpenBatches()
        self._seen = SeenOffsets()
        self._consumers: list[ConsumerProcess] = []
        self._ends: dict[int, int] = {}

    def run(self) -> DemoResult:
        """Run the whole demo, and return the figures.

        Raises DemoError if the demo takes another course, such as after an unexpected end of a process.
        """
        plan = self._plan
        (plan.folder / "delays.py").write_bytes(plan.plugin.read_bytes())
        kafka = {"bootstrap.servers": self._kafka}
        prepare_topic(kafka, TOPIC, create=True, partitions=PARTITIONS)
        prepare_topic(kafka, subscriber.TOPIC, create=True, partitions=subscriber.PARTITIONS)
        with ExitStack() as owned:
            self._subscriber = subscriber.CountingSubscriber()
            owned.callback(self._subscriber.close)
            self._config.write_text(
                configuration(
                    plan.folder,
                    topic=TOPIC,
                    zookeeper=self._zookeeper,
                    kafka=self._kafka,
                    member=plan.member,
                    flights=plan.flights,
                    more=subscriber.channel(self._subscriber.url),
                )
            )
            owned.callback(self._close_consumers)
            ingress = subscriber.make_ingress(self._kafka)
            ingress.start()
            owned.callback(ingress.stop, _STOP_LIMIT)
            self._announcements = subscriber.Announcements(ingress)
            owned.callback(self._announcements.finish)
            self._view = DemoGroup(self._zookeeper, GROUP, TOPIC, PARTITIONS)
            owned.callback(self._view.close)
            self._publishing = Publishing(plan, self._kafka)
            owned.callback(self._publishing.close)
            return self._course()

    def _course(self) -> DemoResult:
        first, victim, leaver = (self._add() for _ in range(3))
        self._wait(lambda: self._shared_by(first, victim, leaver), _START_LIMIT, "3 processes share 8 partitions")
        self._tell(f"3 processes share the {PARTITIONS} partitions; {self._plan.flights:,} departures are published")
        self._publishing.start()
        self._announcements.start()
        self._tell(
            "announcements are posted to an ingress, and dispatched from Kafka to a subscriber by the same processes"
        )

        self._wait_until(KILL_AT)
        kill = self._kill(victim)

        self._wait_until(JOIN_AT)
        joiner = self._add()
        self._tell(f"{joiner.name} joins")

        self._wait_until(LEAVE_AT)
        # On a slow machine it may still be starting: asked to stop before it listens, it would not stop gracefully.
        self._wait(lambda: self._takes_part(joiner), _START_LIMIT, f"{joiner.name} gets its share", joiner)
        self._tell(f"{leaver.name} is asked to stop (SIGTERM)")
        leaver.request_stop()
        self._wait(leaver.stopped, _STOP_LIMIT, f"{leaver.name} stops gracefully", leaver)
        self._tell(f"{leaver.name} has finished its batches, committed, and ended with exit code 0")

        self._wait(self._publishing.check, self._plan.seconds * 3 + 60, "all is published")
        published = self._publishing.published
        self._ends = log_ends({"bootstrap.servers": self._kafka}, TOPIC, PARTITIONS)
        self._tell(f"all {published:,} are published")
        self._wait(self._all_counted, 60 + self._plan.seconds, "all is counted and committed")
        accepted = self._announcements.finish()
        self._wait(lambda: len(self._subscriber.counts) >= accepted, 60, "all announcements came to the subscriber")

        for consumer in (first, joiner):
            consumer.request_stop()
        for consumer in (first, joiner):
            self._wait(consumer.stopped, _STOP_LIMIT, f"{consumer.name} stops gracefully", consumer)
        self._take_in()
        figures = account(self._entries, published=published, ends=self._ends, kill=kill)
        dispatched = self._subscriber.dispatched(accepted)
        self._tell(f"{accepted:,} announcements were accepted, and {dispatched.received:,} came to the subscriber")
        expected = self._publishing.expected
        endings = {victim: "killed (SIGKILL)", leaver: "stopped early", joiner: "joined late", first: "the whole time"}
        names = {c.consumer_id: (c.name, endings[c]) for c in sorted(endings, key=lambda c: c.number)}
        return DemoResult(figures, figures.problems(expected) + dispatched.problems(), expected, dispatched, names)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _add(self) -> ConsumerProcess:
        consumer = ConsumerProcess(len(self._consumers) + 1, self._config, self._plan.member)
        self._consumers.append(consumer)
        return consumer

    def _kill(self, victim: ConsumerProcess) -> Kill:
        def inside() -> bool:
            self._take_in()
            return self._open.halfway(victim.consumer_id)

        at = kill_when(victim, inside, within=_KILL_LIMIT)
        # Its nodes stay until its session ends, and no other process can commit for its partitions before that.
        owned = [partition for partition, owner in self._view.owners().items() if owner == victim.consumer_id]
        commits = self._view.commits()
        self._take_in()
        batches = self._open.of(victim.consumer_id)
        inside_of = "; ".join(
            f"partition {begun.partition}: {counted} of {begun.next - begun.first} flights counted"
            for begun, counted in batches
        )
        which = "a batch" if len(batches) == 1 else f"{len(batches)} batches"
        self._tell(f"{victim.name} is killed (SIGKILL) inside {which} ({inside_of})")
        if not owned:
            raise DemoError(f"{victim.name} owned no partition when it was killed\n{victim.tail()}")
        return Kill(victim.consumer_id, at, {partition: commits.get(partition, 0) for partition in owned})

    def _shared_by(self, *consumers: ConsumerProcess) -> bool:
        owners = self._view.owners()
        return len(owners) == PARTITIONS and set(owners.values()) == {c.consumer_id for c in consumers}

    def _takes_part(self, consumer: ConsumerProcess) -> bool:
        return consumer.consumer_id in self._view.owners().values()

    def _all_counted(self) -> bool:
        return self._seen.distinct >= sum(self._ends.values()) and self._view.commits() == self._ends

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait_until(self, part: float) -> None:
        """Wait until a part of the time for publishing has passed."""
        while (left := part * self._plan.seconds - self._publishing.elapsed) > 0:
            self._look()
            time.sleep(min(_TICK, left))

    def _wait(
        self, reached: Callable[[], bool], limit: float, what: str, consumer: ConsumerProcess | None = None
    ) -> None:
        """Wait until `reached`. Raises DemoError: it took more than `limit` seconds."""
        deadline = time.monotonic() + limit
        while not reached():
            self._look()
            if time.monotonic() > deadline:
                asked = [consumer] if consumer is not None else [c for c in self._consumers if c.running]
                tails = "\n".join(c.tail() for c in asked)
                raise DemoError(f"not reached within {limit:.0f} s: {what} ({self._where()})\n{tails}")
            time.sleep(_TICK)

    def _look(self) -> None:
        """Read new entries, show the state, and raise errors."""
        for consumer in self._consumers:
            consumer.check()
        self._publishing.check()
        self._take_in()
        self._teller.update(self._seen.distinct, self._where())

    def _take_in(self) -> None:
        for entry in self._journals.new_entries():
            self._entries.append(entry)
            self._open.add(entry)
            for offset, _, _ in entry.flights:
                self._seen.add(entry.partition, offset)

    def _where(self) -> str:
        running = sum(consumer.running for consumer in self._consumers)
        return f"published {self._publishing.delivered:,}, counted {self._seen.distinct:,}, {running} processes"

    def _tell(self, line: str) -> None:
        self._teller.say(f"{self._publishing.elapsed:5.1f} s  {line}")

    def _close_consumers(self) -> None:
        for consumer in self._consumers:
            consumer.close()

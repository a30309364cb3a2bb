"""Who takes part in `benchmarks.dispatch`: how each is started, and what its run is measured by."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.configuration import SERVERS
from benchmarks.processes import MeasuredProgram
from benchmarks.sinks import Sink

PARTITIONS = 8
#: Of the topics with events for all; in MARKED those of partition 0 carry the extension `slow`.
EVENTS, MARKED = "events", "marked"
HEADERS = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"b46cf653-d48a-4b90-8dfa-355c01061361"),
    ("ce_source", b"/benchmarks/dispatch"),
    ("ce_type", b"org.example.order.placed"),
    ("ce_time", b"2026-11-21T12:00:00.000000Z"),
    ("ce_subject", b"orders"),
    ("content-type", b"application/octet-stream"),
    ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"),
]
SLOW = [*HEADERS, ("ce_slow", b"1s")]
BATCH = 100
SUBSCRIPTIONS = 50
#: How long a dispatcher may take to begin, and one run with all its events, in seconds.
BEGIN, LIMIT = 90.0, 180.0
#: When so many seconds bring no request more, all events were delivered.
QUIET = 1.5
#: The processor that is measured.
PROCESSOR = "dispatch"
CHANNEL = """\
  {name}:
    topics: [{topic}]
    group: {group}
    reader: {{client: {client}}}
    processor: {{type: "{processor}", options: {{subscriberUri: "{url}"{options}}}}}
"""

#: What one run measured: events, seconds, cpu (seconds), rss_mib, starved (subscriptions).
Found = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a benchmark happens."""

    bootstrap: str
    zookeeper: str
    #: Of this benchmark alone; removed at its end.
    work: Path
    #: The peer's program, and what a topic holds.
    peer: Path | None
    events: int


@dataclass(frozen=True, slots=True)
class Run:
    """A dispatcher that begins at the topic's first event.

    Measured are `events` events after the first `warm`, or those of `seconds`; with `batch` all of the topic.
    """

    name: str
    label: str
    #: None: the peer, which has neither options nor more than one subscription.
    client: str | None = None
    topic: str = EVENTS
    #: Delays of benchmarks/peers/sink; None: nginx.
    query: str | None = None
    options: str = ""
    batch: int = 0
    subscriptions: int = 1
    warm: int = 2000
    events: int = 100_000
    seconds: float = 8.0

    def measure(self, place: Place, sink: Sink, number: int) -> Found:
        """Start it, and end it once that is measured. `number` tells its group from those of other rounds."""
        group = f"{self.name}-{number}"
        before = sink.counts()
        with MeasuredProgram(place.work / f"{group}.log", self.command(place, sink, group)) as process:
            watch = _Watch(process, sink, before)
            return self._whole(watch, place.events) if self.batch else self._window(watch)

    def _window(self, watch: _Watch) -> Found:
        watch.until("the first events came", lambda: watch.events >= self.warm, BEGIN)
        began, cpu, first = watch.at, watch.process.tree_cpu_seconds(), watch.counts

        def enough() -> bool:
            return watch.events - _events(first) >= self.events or watch.at - began >= self.seconds

        watch.until("the events came", enough, LIMIT)
        each = [watch.counts.get(path, 0) - first.get(path, 0) for path in self._paths()]
        events = watch.events - _events(first)
        return {
            "events": events,
            "seconds": watch.at - began,
            "cpu": watch.process.tree_cpu_seconds() - cpu,
            "rss_mib": watch.process.peak_mib(),
            "starved": starved(each),
        }

    def _whole(self, watch: _Watch, total: int) -> Found:
        watch.until("the first requests came", lambda: watch.events >= self.warm // self.batch, BEGIN)
        began, cpu, first = watch.at, watch.process.tree_cpu_seconds(), watch.events
        last = (began, first)

        def still() -> bool:
            nonlocal last
            if watch.events != last[1]:
                last = (watch.at, watch.events)
            return watch.events * self.batch >= total and watch.at - last[0] >= QUIET

        watch.until("all events came", still, LIMIT)
        each = total / last[1]  # events in a request: all carry the same, so the first ones count as the others do
        return {
            "events": total - first * each,
            "seconds": last[0] - began,
            "cpu": watch.process.tree_cpu_seconds() - cpu,
            "rss_mib": watch.process.peak_mib(),
            "starved": 0,
        }

    def _paths(self) -> Sequence[str]:
        return [f"/{number}" for number in range(self.subscriptions)]

    def command(self, place: Place, sink: Sink, group: str) -> list[str]:
        """Return what to start; the last argument of a channel's is the configuration, which this writes."""
        urls = [sink.url(path + (f"?{self.query}" if self.query else "")) for path in self._paths()]
        if self.client is None:
            return [str(place.peer), place.bootstrap, self.topic, group, urls[0]]
        text = SERVERS.format(zookeeper=place.zookeeper, bootstrap=place.bootstrap, ledger=place.work / "ledger")
        text += "channels:\n"
        options = f", {self.options}" if self.options else ""
        if self.batch:
            options += f", batch: {{max_events: {self.batch}}}"
        for number, url in enumerate(urls):
            text += CHANNEL.format(
                name=f"subscription-{number}",
                topic=self.topic,
                group=f"{group}-{number}",
                client=self.client,
                processor=PROCESSOR,
                url=url,
                options=options,
            )
        config = place.work / f"{group}.yaml"
        config.write_text(text)
        return [sys.executable, "-m", "inbound", "run", "-c", str(config)]


@dataclass(slots=True)
class _Watch:
    """What a sink has counted since `before`, at one moment."""

    process: MeasuredProgram
    sink: Sink
    before: Mapping[str, int]
    at: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def events(self) -> int:
        return _events(self.counts)

    def until(self, what: str, done: Callable[[], bool], seconds: float) -> None:
        """Look again and again, until `done()`; the benchmark ends if that takes longer than `seconds`."""

        def looked() -> bool:
            now = self.sink.counts()
            self.at = time.monotonic()
            self.counts = {path: count - self.before.get(path, 0) for path, count in now.items()}
            return done()

        self.process.wait_for(what, looked, seconds)


def starved(events: Sequence[int]) -> int:
    """Return how many got less than a tenth of an even share."""
    return sum(10 * len(events) * one < sum(events) for one in events)


def _events(counts: Mapping[str, int]) -> int:
    """Return how many requests there were, those of the slow partition aside."""
    return sum(count for path, count in counts.items() if not path.endswith(" slow"))


_SLOW_SINK = "delay=5ms"
RUNS = (
    Run("binary_kafka_python", "kafka-python", "kafka-python"),
    Run("binary_confluent", "confluent-kafka", "confluent-kafka"),
    Run("peer", "eventing-kafka (Go)"),
    Run("batched_kafka_python", "kafka-python, 100 in a request", "kafka-python", batch=BATCH),
    Run("batched_confluent", "confluent-kafka, 100 in a request", "confluent-kafka", batch=BATCH),
    Run("slow_sink_key", "5 ms sink, ordering key", "kafka-python", query=_SLOW_SINK, options="ordering: key"),
    Run("slow_sink_partition", "5 ms sink, ordering partition", "kafka-python", query=_SLOW_SINK),
    Run("slow_sink_peer", "5 ms sink, eventing-kafka (Go)", query=_SLOW_SINK),
    Run("seven_partitions", "7 of 8 partitions", "kafka-python", topic=MARKED, query="slow="),
    Run("seven_beside_slow", "7 beside a slow partition", "kafka-python", topic=MARKED, query="slow=1"),
    Run("one_subscription", "1 subscription", "kafka-python", query="slow="),
    Run(
        "subscriptions",
        f"{SUBSCRIPTIONS} subscriptions",
        "kafka-python",
        query="slow=",
        subscriptions=SUBSCRIPTIONS,
        warm=400 * SUBSCRIPTIONS,
        events=10**9,
        seconds=15.0,
    ),
)

"""The files that `inbound new processor` writes, with $name, $cls and $topic to be filled in."""

from __future__ import annotations

from string import Template

MODULE = Template('''\
"""The `$name` processor: counts the events of each type.

From this folder:

    python -m pytest                # test_$name.py, on fakes: needs no servers
    inbound check                   # inbound.yaml and this file
    inbound cluster up --detach     # a real Kafka and ZooKeeper, if you have none; put their addresses into inbound.yaml
    inbound publish $topic --create --partitions 4 --generate 100
    inbound run                     # until Ctrl-C

What to know when you change it:

- Delivery is at least once. After a crash the batch in hand comes again, so let its effect be the same the second time;
  or write the offset together with the effect.
- `on_next_batch` is called in `workers` threads at once, for different partitions: lock what they share. For one
  partition it is called for one batch after the other, in offset order.
- `BatchResponse.advance()` commits; `.advance(offset)` commits what is before it; `.revert(wait=5)` reads the batch
  again after 5 s. An error does that too, and waits longer each time; see `on_error` in the configuration.
- In long work look at `batch.lost` (another has the partition now) and `context.stopping` (finish soon).
- `open`, `close`, `on_idle` and more: see the base class, inbound.BatchEventProcessor.

To use it by name from anywhere, make it a distribution; then `type: $name` is enough. In its pyproject.toml:

    [project.entry-points."inbound.processors"]
    $name = "$name:$cls"
"""

from __future__ import annotations

import threading
from collections import Counter

from inbound import Batch, BatchEventProcessor, BatchResponse, Context
from pydantic import BaseModel, ConfigDict, Field


class ${cls}Options(BaseModel):
    """What `processor.options` may hold; checked before anything starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ignore: tuple[str, ...] = Field(default=(), description="Types of events that are not counted.")


class $cls(BatchEventProcessor):
    """Counts the events of each type, and logs the sums after each commit."""

    Options = ${cls}Options

    def open(self, context: Context) -> None:
        self.options: ${cls}Options = context.options
        self.log = context.log
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        for record, reason in batch.undecodable:
            self.log.warning("%s/%d@%d is no event: %s", batch.topic, batch.partition, record.offset, reason)
        types = [event.get_type() for event in batch.events]
        with self.lock:
            self.counts.update(found for found in types if found not in self.options.ignore)
        return BatchResponse.advance()

    def on_batch_processed(self, batch: Batch) -> None:
        with self.lock:
            self.log.info("counted so far: %s", dict(self.counts))
''')

TEST = Template('''\
"""The `$name` processor on a Kafka and a ZooKeeper in memory; time is virtual, so nothing here waits."""

from __future__ import annotations

import json

from inbound.testing import World

from $name import $cls

HEADERS = [("content-type", b"application/cloudevents+json")]


def event(number: int, kind: str) -> bytes:
    """Return a CloudEvent as JSON."""
    return json.dumps({"specversion": "1.0", "id": str(number), "source": "/test", "type": kind}).encode()


def test_every_event_is_counted_and_committed() -> None:
    """What the options name is passed over, and committed all the same."""
    world = World()
    world.kafka.create_topic("$topic", 2)
    world.kafka.publish("$topic", 0, [event(1, "made"), event(2, "paid"), event(3, "made")], headers=HEADERS)
    world.kafka.publish("$topic", 1, [event(4, "seen")], headers=HEADERS)
    processor = $cls()

    world.join("one", processor, topics=["$topic"], options={"ignore": ["seen"]})
    world.run(5)  # seconds of virtual time

    assert processor.counts == {"made": 2, "paid": 1}
    assert world.commits("$topic") == {0: 3, 1: 1}


def test_what_is_no_event_is_passed_over() -> None:
    """One bad record does not hold up those behind it."""
    world = World()
    world.kafka.create_topic("$topic", 1)
    world.kafka.publish("$topic", 0, [b"{no event", event(1, "made")], headers=HEADERS)
    processor = $cls()

    world.join("one", processor, topics=["$topic"])
    world.run(5)

    assert processor.counts == {"made": 1}
    assert world.commits("$topic") == {0: 2}
''')

CONFIG = Template("""\
# Runs the `$name` processor. `inbound check --show` prints every setting, and `inbound schema` the JSON Schema for editors.
zookeeper: {hosts: "127.0.0.1:2181"}
kafka: {bootstrap.servers: "127.0.0.1:9092"}
ledger: {path: ./ledger}

channels:
  $name:
    topics: [$topic]
    group: $name
    processor:
      type: "$name:$cls"             # $name.py, beside this file
      options: {ignore: []}
""")

"""A `simple` processor in a world, and sinks that write down what they are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudevents.core.v1.event import CloudEvent
from pydantic import BaseModel

from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse
from inbound.processors.simple import SimpleProcessor
from inbound.processors.sinks.base import BatchEventSink, EventSink
from inbound.testing.world import World


@dataclass
class Journal:
    """What the sinks of one processor were sent, and how they are to fail."""

    offsets: list[int] = field(default_factory=list)  # by a batch sink
    ids: list[str] = field(default_factory=list)  # by an event sink
    times: list[float] = field(default_factory=list)  # clock time of each record
    commits: list[int | None] = field(default_factory=list)  # what stood in ZooKeeper at each send
    fails: Callable[[Any], bool] = lambda what: False  # asked with each offset, or each id
    answer: BatchResponse | None = None
    look: Callable[[], int | None] = lambda: None
    now: Callable[[], float] = lambda: 0.0


class Given(BaseModel):
    """Options of the sinks here."""

    journal: Any


class Batches(BatchEventSink):
    """Takes batches, record by record."""

    Options = Given

    def open(self, context: Context) -> None:
        self._journal: Journal = context.options.journal

    def send(self, batch: Batch) -> BatchResponse | None:
        journal = self._journal
        journal.commits.append(journal.look())
        for record in batch.records:
            if journal.fails(record.offset):
                raise OSError("no route to host")
            journal.offsets.append(record.offset)
            journal.times.append(journal.now())
        return journal.answer


class Events(EventSink):
    """Takes events."""

    Options = Given

    def open(self, context: Context) -> None:
        self._journal: Journal = context.options.journal

    def send(self, event: CloudEvent) -> None:
        if self._journal.fails(event.get_id()):
            raise OSError("no route to host")
        self._journal.ids.append(event.get_id())


def join(
    world: World,
    options: Mapping[str, Any],
    name: str = "a",
    kinds: Sequence[type[Batches] | type[Events]] = (Batches,),
    **settings: Any,
) -> Journal:
    """Start a consumer of `simple` with these options and sinks, let it come to its partitions, return the journal."""
    journal = Journal(look=lambda: world.commits().get(0), now=world.clock.now)
    sinks = [{"type": f"{__name__}:{kind.__name__}", "journal": journal} for kind in kinds]
    world.join(name, SimpleProcessor(), options={"sinks": sinks, **options}, **settings)
    world.run(4)
    return journal


EVENT = [("ce_specversion", b"1.0"), ("ce_source", b"/s"), ("ce_type", b"t")]


def publish_events(world: World, *ids: str | None) -> None:
    """Publish events with these ids at once; None is a record that is no event."""
    for name in ids:
        headers = [*EVENT, ("ce_id", name.encode())] if name is not None else []
        world.kafka.publish("orders", 0, [b""], headers=headers)

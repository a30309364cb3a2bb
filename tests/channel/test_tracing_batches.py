"""The span around a processor's `on_next_batch`."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from inbound.config.secrets import KNOWN
from inbound.observe.tracing.spans import MOST_LINKS
from inbound.processors.base import BatchEventProcessor, Context
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing.world import Recording, World
from tests.observe.tracing.tracing_stage import (
    PARENT,
    SPAN,
    TRACE,
    UNSAMPLED,
    Traced,
    facts,
    ids,
    links,
    parent,
    traced,
)

__all__ = ["traced"]  # the fixture


def traced_world(traced: Traced) -> World:
    """Return a world with one topic of one partition, whose spans go there."""
    world = World()
    world.kafka.create_topic("orders", 1)
    world.tracing = traced
    return world


@pytest.fixture
def world(traced: Traced) -> World:
    return traced_world(traced)


def current() -> tuple[str, str]:
    """Return trace and span that a processor's code finds as the current one."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def test_a_batch_has_a_span_linked_to_its_records(traced: Traced, world: World) -> None:
    """Its code finds it as the current one, and nothing is current afterwards."""
    seen: list[tuple[str, str]] = []
    processor = Recording()
    processor.on_batch = lambda batch: seen.append(current())
    world.kafka.publish("orders", 0, [b"a"], headers=[("traceparent", PARENT.encode())])
    world.kafka.publish("orders", 0, [b"b"])
    world.kafka.publish("orders", 0, [b"c"], headers=[("b3", f"{'3' * 32}-{'4' * 16}-1".encode())])
    world.join("a", processor)
    world.run(5)

    span = traced.one("process orders")
    assert (span.kind, parent(span)) == (SpanKind.CONSUMER, None)
    assert links(span) == [(TRACE, SPAN), ("3" * 32, "4" * 16)]
    assert facts(span) == {
        "messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "orders", "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "group", "messaging.client.id": "a", "messaging.kafka.offset": 0,
        "messaging.batch.message_count": 3, "inbound.response": "advance",
    }  # fmt: skip
    assert seen == [ids(span)]
    assert current() == ("0" * 32, "0" * 16)


def test_so_many_links_and_no_more(traced: Traced, world: World) -> None:
    """What is left out is counted."""
    for number in range(MOST_LINKS + 5):
        header = f"00-{TRACE}-{number + 1:016x}-01".encode()
        world.kafka.publish("orders", 0, [b"x"], headers=[("traceparent", header)])
    world.join("a")
    world.run(5)

    span = traced.one("process orders")
    assert (len(span.links), span.dropped_links, facts(span)["inbound.links_left_out"]) == (MOST_LINKS, 0, 5)


def test_what_a_processor_raises_is_in_its_span(traced: Traced, world: World) -> None:
    """With the kind of error; what is known to be secret is hidden."""
    KNOWN.remember("swordfish")

    def fail_once(batch: Batch) -> BatchResponse:
        if not traced.ended:
            raise LookupError("no customer swordfish")
        return BatchResponse.advance()

    world.kafka.publish("orders", 0, [b"a"])
    world.join("a", Recording(fail_once))
    world.run(10)
    KNOWN._forms.clear()
    KNOWN._pattern = None

    failed, well = traced.ended
    assert (facts(failed)["error.type"], "error.type" in facts(well)) == ("LookupError", False)
    assert failed.status.description is not None
    assert failed.status.description.startswith("no customer ")
    assert "swordfish" not in failed.status.description


def test_an_answer_that_is_none_is_an_error(traced: Traced, world: World) -> None:
    """The channel says the same of it."""
    world.kafka.publish("orders", 0, [b"a"])
    world.join("a", Recording(lambda batch: "done"))
    world.run(5)

    assert facts(traced.ended[0])["error.type"] == "BadResponseError"


class Waiting(BatchEventProcessor):
    """Notes the current span before and after it waits."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, tuple[str, str]]] = []

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.seen.append((batch.partition, current()))
        await self.context.sleep(1.0)
        self.seen.append((batch.partition, current()))
        if batch.partition == 1:
            raise ValueError("no")
        return BatchResponse.advance()

    def open(self, context: Context) -> None:
        self.context = context


def test_a_coroutine_has_its_span_across_what_it_awaits(traced: Traced) -> None:
    """Others run meanwhile, each with its own."""
    world = World()
    world.kafka.create_topic("orders", 2)
    world.tracing = traced
    processor = Waiting()
    for partition in (0, 1):
        world.kafka.publish("orders", partition, [b"a"])
    world.join("a", processor)
    world.run_until(lambda: len(traced.ended) >= 2, within=30)

    spans = {facts(span)["messaging.destination.partition.id"]: span for span in traced.ended[:2]}
    assert facts(spans["1"])["error.type"] == "ValueError"
    assert "error.type" not in facts(spans["0"])
    assert sorted(processor.seen[:4]) == sorted((p, ids(spans[str(p)])) for p in (0, 0, 1, 1))


@pytest.mark.parametrize(("rate", "header", "recorded"), [
    (0.0, None, 0), (1.0, None, 1), (0.0, PARENT, 1), (1.0, UNSAMPLED, 0),
])  # fmt: skip
def test_a_batch_goes_by_its_first_record(rate: float, header: str | None, recorded: int) -> None:
    """The beginner of that trace has decided; without one, the rate does."""
    traced = Traced(rate)
    world = traced_world(traced)
    headers = [("traceparent", header.encode())] if header else []
    world.kafka.publish("orders", 0, [b"a"], headers=headers)
    world.join("a")
    world.run(5)

    assert len(traced.ended) == recorded
    assert world.commits() == {0: 1}

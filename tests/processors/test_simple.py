"""The simple processor: which part of a batch is committed, for every answer of its sinks."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from cloudevents.core.v1.event import CloudEvent
from pydantic import BaseModel

from inbound.errors import BadResponseError, UndecodableError
from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, PlainRecord
from inbound.processors.simple import SimpleProcessor
from inbound.processors.sinks.base import BatchEventSink, EventSink
from tests.waiting import patient

HERE = __name__
advance, revert, next_ = BatchResponse.advance, BatchResponse.revert, BatchResponse.next


class Plan(BaseModel):
    """What a sink of these tests is to do."""

    name: str = "sink"
    fails_at: str | None = None
    then: Any = None
    journal: Any = None
    open_fails: bool = False


class Watched:
    """Writes what happens to it into its journal."""

    def open(self, context: Context) -> None:
        self.plan: Plan = context.options
        self.stopping = context.stopping
        self.note("open")
        if self.plan.open_fails:
            raise OSError("no such place")

    def close(self) -> None:
        self.note("close")

    def note(self, what: Any) -> None:
        if self.plan.journal:
            self.plan.journal(self.plan.name, what)


class OneByOne(Watched, EventSink):
    """Takes events until the one that it fails at."""

    Options = Plan

    def send(self, event: CloudEvent) -> None:
        if event.get_id() == self.plan.fails_at:
            raise OSError("disk full")
        self.note(event.get_id())


class Whole(Watched, BatchEventSink):
    """Takes batches, and answers as planned."""

    Options = Plan

    def send(self, batch: Batch) -> BatchResponse | None:
        self.note([record.offset for record in batch.records])
        return self.plan.then  # type: ignore[no-any-return]


class StopsWhileSending(OneByOne):
    """The channel begins to stop while this sink sends event 11."""

    def send(self, event: CloudEvent) -> None:
        super().send(event)
        if event.get_id() == "11":
            self.stopping.set()


class World:
    """A simple processor with its sinks, and what they saw."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Any]] = {}
        self.order: list[str] = []

    def started(self, *sinks: dict[str, Any], **options: Any) -> SimpleProcessor:
        """Start a processor with `sinks` (`kind` is the class above)."""
        specs = []
        for number, sink in enumerate(sinks):
            kind = sink.pop("kind", OneByOne).__name__
            specs.append({"type": f"{HERE}:{kind}", "name": "abcd"[number], "journal": self._journal, **sink})
        processor = SimpleProcessor()
        filled = SimpleProcessor.Options.model_validate({"sinks": specs, **options})
        processor.open(Context("c", "g", "me", options=filled))
        return processor

    def _journal(self, name: str, what: Any) -> None:
        if isinstance(what, str) and what in {"open", "close"}:
            self.order.append(f"{what} {name}")
        else:
            self.seen.setdefault(name, []).append(what)


@pytest.fixture
def world() -> World:
    return World()


def record(offset: int, event: bool = True) -> PlainRecord:
    headers = {"ce_specversion": b"1.0", "ce_id": b"%d" % offset, "ce_source": b"/s", "ce_type": b"t"}
    return PlainRecord(offset, headers=list(headers.items()) if event else [])


def batch(bad: frozenset[int] | set[int] = frozenset()) -> Batch:
    """Offsets 10 to 13, those in `bad` no events; the next offset is 15, as after a transaction marker."""
    return Batch("orders", 3, 10, 15, [record(offset, offset not in bad) for offset in range(10, 14)], epoch=4)


def test_every_sink_gets_every_event_and_then_the_batch_is_committed(world: World) -> None:
    """The usual case; sinks are opened in order, and closed in reverse."""
    processor = world.started({}, {"kind": Whole}, {})
    assert processor.on_next_batch(batch()) == advance()
    processor.close()
    assert world.order == [f"open {name}" for name in "abc"] + [f"close {name}" for name in "cba"]
    assert world.seen == {"a": ["10", "11", "12", "13"], "b": [[10, 11, 12, 13]], "c": ["10", "11", "12", "13"]}


def test_a_sink_that_fails_in_the_middle_commits_what_is_before(world: World, caplog: Any) -> None:
    """The next read starts at the failed event, a second later; the log says where and which."""
    processor = world.started({"fails_at": "12"})
    assert processor.on_next_batch(batch()) == advance(12, wait=1.0)
    assert world.seen == {"a": ["10", "11"]}
    assert caplog.messages == [
        f"orders/3@12: sink {HERE}:OneByOne did not take event 12: OSError: disk full; what is before it is done, "
        "the next read starts at it in 1 s"
    ]


@pytest.mark.parametrize("sinks", [[{"fails_at": "10"}], [{}, {"fails_at": "10"}]], ids=["first", "later"])
def test_a_sink_that_fails_at_the_first_event_raises(world: World, sinks: list[dict[str, Any]]) -> None:
    """Nothing was done by all of them: the channel's on_error counts and backs off."""
    processor = world.started(*map(dict, sinks))
    with pytest.raises(OSError, match="disk full"):
        processor.on_next_batch(batch())


def test_an_event_is_done_when_all_sinks_took_it(world: World) -> None:
    """The shortest part counts, and later sinks are sent no more than will be committed."""
    processor = world.started({}, {"fails_at": "12"}, {}, {"kind": Whole})
    assert processor.on_next_batch(batch()) == advance(12, wait=1.0)
    assert world.seen["a"] == ["10", "11", "12", "13"]
    assert world.seen["c"] == ["10", "11"]
    assert world.seen["d"] == [[10, 11]]


def test_the_part_for_later_sinks_is_a_batch_of_its_own(world: World) -> None:
    """It keeps the batch's place, epoch and warning of loss, and ends where it is cut."""
    seen: list[Batch] = []

    class Keeps(Whole):
        def send(self, batch: Batch) -> None:
            seen.append(batch)

    processor = world.started({"fails_at": "12"}, {"kind": Whole})
    processor._sinks[1] = ("keeps", Keeps())
    whole = batch()
    processor.on_next_batch(whole)
    part = seen[0]
    assert (part.topic, part.partition, part.first_offset, part.next_offset, part.epoch) == ("orders", 3, 10, 12, 4)
    assert part.lost is whole.lost


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([None], advance()),
        ([advance()], advance()),
        ([advance(12, wait=3)], advance(12, wait=3)),
        ([advance(15)], advance()),
        ([advance(40, skip=True)], advance(40, skip=True)),
        ([advance(40)], advance(40)),  # the channel refuses it, by its name
        ([advance(40, skip=True), None], advance()),
        ([advance(wait=3, max_bytes=10), advance(wait=2, max_bytes=20)], advance(wait=3, max_bytes=10)),
        ([advance(13), advance(12)], advance(12)),
        ([advance(12), advance(13)], advance(12)),
        ([revert(wait=5), None], revert(wait=5)),
        ([None, revert(11)], revert(11)),
        ([next_(wait=1), None], next_(wait=1)),
        ([next_(), advance(12)], next_(12)),
        ([advance(12), next_(11)], next_(11)),
    ],
)
def test_the_answers_of_batch_sinks_become_one(
    world: World, answers: list[BatchResponse | None], expected: BatchResponse
) -> None:
    """The smallest offset, the longest wait, the smallest read; a revert is final, and `next` withholds the commit."""
    processor = world.started(*({"kind": Whole, "then": answer} for answer in answers))
    assert processor.on_next_batch(batch()) == expected


def test_an_answer_that_is_no_response_is_refused_by_the_sinks_name(world: World) -> None:
    """A common slip is to return True."""
    processor = world.started({"kind": Whole, "then": True})
    with pytest.raises(BadResponseError, match=f"sink {HERE}:Whole: send must return a BatchResponse or None, got Tru"):
        processor.on_next_batch(batch())


@pytest.mark.parametrize(
    ("answer", "expected"), [(revert(), revert()), (advance(10), advance(10))], ids=["a revert", "no event taken"]
)
def test_later_sinks_are_not_asked_for_nothing(world: World, answer: BatchResponse, expected: BatchResponse) -> None:
    """After a revert the whole batch comes again; when the first sink took no event, there is none to pass on."""
    processor = world.started({"kind": Whole, "then": answer}, {"kind": Whole}, {})
    assert processor.on_next_batch(batch()) == expected
    assert set(world.seen) == {"a"}


@pytest.mark.parametrize(
    ("kind", "bad", "undecodable", "expected", "seen", "warned"),
    [
        (OneByOne, {12}, "fail", advance(12), ["10", "11"], []),  # the next read starts at it
        (OneByOne, {10, 12}, "skip", advance(), ["11", "13"], ["orders/3@10", "orders/3@12"]),
        (Whole, {10, 12}, "fail", advance(), [[10, 11, 12, 13]], []),  # a batch sink decides on its own
    ],
    ids=["fail", "skip", "batch sinks"],
)
def test_an_undecodable_record_is_never_passed_over_silently(
    world: World, caplog: Any, kind: type[Watched], bad: set[int], undecodable: str, expected: BatchResponse, seen: list[Any],
    warned: list[str],
) -> None:  # fmt: skip
    """Events before it are sent and committed; skipped ones are warned of once each, however many sinks there are."""
    processor = world.started({"kind": kind}, {"kind": kind}, undecodable=undecodable)
    assert processor.on_next_batch(batch(bad=bad)) == expected
    assert world.seen == {"a": seen, "b": seen}
    assert [message.split(" ")[0] for message in caplog.messages] == warned


def test_an_undecodable_record_at_the_beginning_raises(world: World) -> None:
    """So that on_error can hold, skip or dead-letter it; the error names it and the reason."""
    processor = world.started({})
    with pytest.raises(UndecodableError, match=r"orders/3: the record at offset 10 is no event: no CloudEvent: no ce_"):
        processor.on_next_batch(batch(bad={10, 12}))
    assert world.seen == {}


def test_on_stop_the_first_sink_finishes_its_event_and_the_others_catch_up(world: World) -> None:
    """What was sent is committed, so a slow sink repeats nothing after a restart."""
    processor = world.started({"kind": StopsWhileSending}, {})
    assert processor.on_next_batch(batch()) == advance(12)
    assert world.seen == {"a": ["10", "11"], "b": ["10", "11"]}


def test_nothing_is_sent_once_the_partition_is_lost(world: World) -> None:
    """Another consumer has the same events, and our answer does not count any more."""
    processor = world.started({}, {})
    lost = batch()
    lost.lost.set()
    processor.on_next_batch(lost)
    assert world.seen == {}


def test_when_a_sink_cannot_be_opened_those_before_it_are_closed(world: World) -> None:
    """The error ends the process; nothing is left open."""
    with pytest.raises(OSError, match="no such place"):
        world.started({}, {"open_fails": True}, {})
    assert world.order == ["open a", "open b", "close a"]


def test_partitions_are_sent_at_the_same_time(world: World) -> None:
    """Nothing in the processor waits for another partition."""
    both = threading.Barrier(2, timeout=patient(5))

    def meet(name: str, what: Any) -> None:
        if what == "10":
            both.wait()

    processor = world.started({"journal": meet})
    answers: list[BatchResponse] = []
    threads = [threading.Thread(target=lambda: answers.append(processor.on_next_batch(batch()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [advance(), advance()]


class NoOptions(EventSink):
    """A sink without options."""

    def send(self, event: CloudEvent) -> None:
        raise AssertionError


def test_a_sink_may_be_named_alone_or_with_options() -> None:
    """A name where there is nothing to set, else a mapping."""
    entries = ["log", {"type": "jsonl", "path": "out.jsonl"}, f"{HERE}:NoOptions"]
    options = SimpleProcessor.Options.model_validate({"sinks": entries})
    assert [choice.type for choice in options.sinks] == ["log", "jsonl", f"{HERE}:NoOptions"]
    assert options.sinks[1].options.path.name == "out.jsonl"
    assert options.sinks[2].options == {}


def test_the_shipped_processor_runs_with_the_log_sink(caplog: Any) -> None:
    """From configuration to lines, with nothing of these tests in between."""
    processor = SimpleProcessor()
    options = SimpleProcessor.Options.model_validate({"sinks": ["log"]})
    processor.open(Context("c", "g", "me", options=options))
    with caplog.at_level(logging.INFO):
        assert processor.on_next_batch(batch(bad={12})) == advance()
    processor.close()
    assert caplog.messages[0] == "orders/3@10 id=10 type=t source=/s"
    assert len(caplog.messages) == 4

"""What becomes of a processor's errors and wrong answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from inbound import Batch, BatchResponse, Context, TopicPartition
from inbound.errors import BadResponseError
from inbound.ledger.memory import Note
from inbound.processors.batch import Record
from inbound.runtime.text import describe
from inbound.testing.world import Recording, World
from tests.channel.one_partition import Awaited, answers, both_kinds, offsets, publish, start, world

__all__ = ["world"]  # the fixture


# -- errors ----------------------------------------------------------------------------------------------------------


class Broken(Exception):
    """A badly broken exception class."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@both_kinds
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "on_next_batch returned None; return BatchResponse.advance(), .revert() or .next()"),
        ("ok", "on_next_batch returned 'ok'; return BatchResponse.advance(), .revert() or .next()"),
        (
            BatchResponse.advance(99),
            "advance(99) is past the batch, which ends before 3; use skip=True to skip records",
        ),
        (RuntimeError("database away"), "RuntimeError: database away (at "),
        (SystemExit(3), "SystemExit: 3 (at "),  # sys.exit() ends no worker
        (asyncio.CancelledError(), "CancelledError (at "),
        (Broken(), "Broken"),
    ],
)
def test_a_wrong_answer_and_an_exception_lose_nothing(
    world: World, answer: object, message: str, kind: type[Recording], caplog: pytest.LogCaptureFixture
) -> None:
    """The batch is read again after a second, and the log names partition, offsets, reason and what follows."""
    publish(world, 3)
    processor = start(world, answers(answer), kind)
    world.run(1.5)
    assert (offsets(processor), world.commits()) == ([0, 1, 2, 0, 1, 2], {0: 3})
    assert [call[0] for call in processor.calls] == ["exception", "processed"]
    told = [record.getMessage() for record in caplog.records if "on_next_batch failed" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("group orders/0: on_next_batch failed on offsets 0 to 2, attempt 1 of 10: ")
    assert message in told[0]
    assert told[0].endswith("not committed, tried again in 1 s")
    assert not any(record.exc_info for record in caplog.records if record.levelname != "DEBUG")


@both_kinds
@pytest.mark.parametrize("name", ["wait", "commit_within"])
def test_seconds_that_no_clock_can_count_are_the_processors_error(
    world: World, name: str, kind: type[Recording], caplog: pytest.LogCaptureFixture
) -> None:
    """The turn failed as a defect of inbound, once a second."""
    publish(world, 3)
    start(world, lambda batch: BatchResponse.next(**{name: 10**400}), kind)
    told = [record.getMessage() for record in caplog.records]
    assert any(
        f"ValueError: BatchResponse.next: {name} must be seconds of at least 0, got 1000" in text for text in told
    )


@both_kinds
def test_a_coroutine_that_is_returned_is_to_be_awaited(world: World, kind: type[Recording]) -> None:
    """By a decorator that is no coroutine function, say."""

    async def later() -> BatchResponse:
        return BatchResponse.advance()

    publish(world, 3)
    coroutine = later()
    start(world, answers(coroutine), kind)
    coroutine.close()
    told = world.consumers["a"].channel.parts.journal.last(TopicPartition("orders", 0), "failed")
    assert told is not None
    assert "; await it in `async def on_next_batch`; return BatchResponse.advance(), " in told.text


def pops(batch: Batch) -> BatchResponse:
    """Work through a batch as if its records were a list of the processor's own; the second record fails."""
    records: list[Record] = batch.records  # type: ignore[assignment]
    while records:
        if records.pop(0).offset == 1:
            raise ValueError("bad record")
    return BatchResponse.advance()


@both_kinds
def test_a_processor_that_takes_records_out_of_its_batch_gets_an_error_and_loses_none(
    world: World, kind: type[Recording]
) -> None:
    """They were missing when the batch was read again, and the commit went past them."""
    publish(world, 3)
    start(world, pops, kind)
    world.run(5)
    partition = world.consumers["a"].channel.status().partitions[0]
    assert world.commits() == {0: 0}
    assert str(partition.last_error).startswith("AttributeError: 'tuple' object has no attribute 'pop' (at ")


@both_kinds
@pytest.mark.parametrize("left", [0, 1], ids=["none", "one"])
def test_a_processor_that_puts_other_records_into_its_batch_fails_on_what_it_was_handed(
    world: World, left: int, kind: type[Recording]
) -> None:
    """With none left the turn failed as a defect of inbound; with one, that was given up for all of the batch."""

    def filters(batch: Batch) -> BatchResponse:
        batch.records = batch.records[:left]
        raise ValueError("bad records")

    publish(world, 3)
    processor = start(world, filters, kind, on_error={"max_attempts": 2, "then": "skip"})
    world.run(20)
    skips = [e for e in world.consumers["a"].ledger.entries if isinstance(e, Note) and e.kind == "skip"]
    assert world.commits() == {0: 3}
    assert offsets(processor)[-1:] == [2]
    assert [(n.facts["from"], n.facts["to"]) for n in skips] == [(0, 1), (1, 2), (2, 3)]


def bad(value: bytes) -> Callable[[Batch], BatchResponse]:
    """Return an answer that fails on every batch with a record of this value."""

    def answer(batch: Batch) -> BatchResponse:
        if any(record.value == value for record in batch.records):
            raise ValueError("bad record")
        return BatchResponse.advance()

    return answer


def test_a_failing_record_is_found_and_only_it_is_held(world: World) -> None:
    """After max_attempts the batch is delivered record by record; what is good is committed."""
    publish(world, 5)
    start(world, bad(b"3"), on_error={"max_attempts": 2})
    world.run(10)
    partition = world.consumers["a"].channel.status().partitions[0]
    assert world.commits() == {0: 3}
    assert str(partition.held).startswith("on_next_batch fails on the record at offset 3: ValueError: bad record (at ")


def test_a_failing_record_is_skipped_where_the_configuration_says_so(world: World) -> None:
    """And the ledger names it."""
    publish(world, 5)
    processor = start(world, bad(b"3"), on_error={"max_attempts": 2, "then": "skip"})
    world.run(10)
    skips = [e for e in world.consumers["a"].ledger.entries if isinstance(e, Note) and e.kind == "skip"]
    assert (world.commits(), offsets(processor)[-1]) == ({0: 5}, 4)
    assert [(n.facts["from"], n.facts["to"]) for n in skips] == [(3, 4)]


def collects_twenty(then: list[BatchResponse]) -> Callable[[Batch], BatchResponse]:
    """Collect what comes with `next`; fail on offset 20; give the answers of `then` for what comes behind it."""

    def answer(batch: Batch) -> BatchResponse:
        if batch.first_offset == 20:
            raise ValueError("bad record")
        return BatchResponse.next() if batch.first_offset < 20 else then.pop(0)

    return answer


GIVE_UP = [
    {"max_attempts": 1, "then": "skip"},
    {"max_attempts": 1, "then": "dead-letter", "dead_letter_topic": "dead"},
]
give_up = pytest.mark.parametrize("on_error", GIVE_UP, ids=["skip", "dead-letter"])


@give_up
def test_a_record_that_is_given_up_commits_nothing_of_what_was_collected_before_it(
    world: World, on_error: dict[str, object]
) -> None:
    """The processor has it in memory and has not said that it may be committed; after a crash it comes again."""
    publish(world, 21)
    processor = Recording(collects_twenty([]))
    world.join("a", processor, dead_letters=lambda *_: None, on_error=on_error, reader={"max_batch_records": 20})
    world.run(4)
    assert (offsets(processor), world.commits()) == ([*range(21)], {0: 0})
    world.kill("a")
    successor = Recording()
    world.join("b", successor)
    world.run(20)
    assert (offsets(successor), world.commits()) == ([*range(21)], {0: 21})


@give_up
def test_the_next_commit_covers_the_record_that_was_given_up(world: World, on_error: dict[str, object]) -> None:
    """Reading goes on behind it all the while."""
    publish(world, 21)
    processor = Recording(collects_twenty([BatchResponse.next(), BatchResponse.advance()]))
    world.join("a", processor, dead_letters=lambda *_: None, on_error=on_error, reader={"max_batch_records": 20})
    world.run(4)
    for commits in ({0: 0}, {0: 23}):
        publish(world, 1)
        world.run(1)
        assert world.commits() == commits
    assert offsets(processor) == [*range(23)]


def test_a_record_that_is_given_up_below_the_commit_does_not_set_it_back(world: World) -> None:
    """The processor went back to read again what it had advanced over, and fails now."""
    publish(world, 5)
    told = [*[BatchResponse.advance()] * 4, BatchResponse.revert(1)]

    def answer(batch: Batch) -> BatchResponse:
        if told:
            return told.pop(0)
        if batch.first_offset == 2:
            raise ValueError("bad record")
        return BatchResponse.next()

    processor = start(world, answer, on_error={"max_attempts": 1, "then": "skip"}, reader={"max_batch_records": 1})
    assert (offsets(processor), world.commits()) == ([0, 1, 2, 3, 4, 1, 2, 3, 4], {0: 4})


def test_what_was_to_be_committed_later_is_committed_with_the_record_that_is_given_up(world: World) -> None:
    """`next(commit_within=...)` has said that it may be."""
    publish(world, 21)

    def answer(batch: Batch) -> BatchResponse:
        if batch.first_offset == 20:
            raise ValueError("bad record")
        return BatchResponse.next(commit_within=3600.0)

    start(world, answer, on_error={"max_attempts": 1, "then": "skip"}, reader={"max_batch_records": 20})
    assert world.commits() == {0: 21}


@both_kinds
def test_a_failing_record_goes_to_the_dead_letter_topic(world: World, kind: type[Recording]) -> None:
    """Tried again for as long as that does not take it."""
    publish(world, 3)
    sent: list[tuple[str, int, list[int]]] = []
    failures = [ConnectionError("no broker")]

    def dead_letters(topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        if failures:
            raise failures.pop()
        sent.append((topic, partition, [r.offset for r in records]))

    processor = kind(bad(b"1"))
    on_error = {"max_attempts": 1, "then": "dead-letter", "dead_letter_topic": "dead"}
    world.join("a", processor, dead_letters=dead_letters, on_error=on_error)
    world.run(20)
    assert (sent, world.commits()) == ([("orders", 0, [1])], {0: 3})


def test_on_exception_decides_where_it_answers(world: World) -> None:
    """Here: commit what was good, go on after the bad record."""
    publish(world, 4)

    class Deciding(Recording):
        def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
            return BatchResponse.advance(4)

    world.join("a", Deciding(answers(ValueError("bad"))))
    world.run(4)
    assert world.commits() == {0: 4}


CALLBACKS = ["on_batch_processed", "on_exception", "on_stream_termination", "on_idle", "on_next_batch"]


@both_kinds
@pytest.mark.parametrize("name", CALLBACKS)
def test_an_exception_in_any_callback_loses_and_repeats_no_commit(
    world: World, name: str, kind: type[Recording], caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its name and place, and the partition goes on to its release."""
    failed: list[str] = []

    def fail(self: object, *arguments: object) -> None:
        if name != "on_next_batch" or not failed:
            failed.append(name)
            raise RuntimeError(f"from {name}")
        return BatchResponse.advance()  # type: ignore[return-value]

    async def fail_later(self: object, *arguments: object) -> None:
        await asyncio.sleep(0.01)
        return fail(self, *arguments)

    cls = type("Failing", (kind,), {name: fail_later if kind is Awaited else fail})
    publish(world, 3)
    first = answers(ValueError("to call on_exception")) if name == "on_exception" else None
    world.join("a", cls(first), idle_time=5.0)
    world.run(12)
    world.leave("a")
    assert (world.commits(), bool(failed)) == ({0: 3}, True)
    (said, *_) = [r.getMessage() for r in caplog.records if name in r.getMessage() and f"from {name}" in r.getMessage()]
    assert name in ("on_next_batch", "on_exception") or "the partition goes on" in said


def test_an_outage_of_what_the_processor_needs_gives_nothing_up(world: World) -> None:
    """Each record has attempts of its own once the batch has used up its own: time passes, and the database comes back."""
    publish(world, 20)
    back_at = world.clock.now() + 12

    def answer(batch: Batch) -> BatchResponse:
        if world.clock.now() < back_at:
            raise ConnectionError("database away")
        return BatchResponse.advance()

    start(world, answer, on_error={"max_attempts": 3, "then": "skip"})
    world.run(30)
    skips = [e for e in world.consumers["a"].ledger.entries if isinstance(e, Note) and e.kind == "skip"]
    assert (len(skips) <= 1, world.commits()) == (True, {0: 20})


def test_an_exception_in_close_is_logged_and_closes_the_rest(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The reader's client and the ledger are closed all the same; no traceback."""

    class Clinging(Recording):
        def close(self) -> None:
            raise RuntimeError("still busy")

    world.join("a", Clinging())
    world.run(4)
    world.leave("a")
    a = world.consumers["a"]
    a.channel.close()
    assert a.ledger.closed
    told = [record for record in caplog.records if "close failed" in record.getMessage()]
    assert len(told) == 1
    assert "channel orders: the processor's close failed: RuntimeError: still busy (at " in told[0].getMessage()
    assert told[0].exc_info is None


def test_the_log_names_on_batch_processed_where_that_raises(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It called it `callback`, as if there were only one."""

    class Raises(Recording):
        def on_batch_processed(self, batch: Batch) -> None:
            raise RuntimeError("no place for it")

    publish(world, 3)
    start(world, None, Raises)
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [text.partition(" (at ")[0] for text in told] == [
        "group orders/0: on_batch_processed failed: RuntimeError: no place for it"
    ]
    assert world.commits() == {0: 3}


@pytest.mark.parametrize("name", ["next_offset", "first_offset", "partition"])
def test_what_a_batch_is_committed_by_cannot_be_set(world: World, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """An offset that was put there was committed as it stood, also beyond the end of the log."""

    def moves(batch: Batch) -> BatchResponse:
        setattr(batch, name, 100)
        return BatchResponse.advance()

    publish(world, 3)
    start(world, moves, Recording, on_error={"max_attempts": 1, "then": "hold"})
    world.run(5)
    told = f"AttributeError: orders/0: {name} of a batch cannot be set; the answer decides what is committed"
    assert (world.commits(), told in caplog.text) == ({0: 0}, True)


def test_what_was_never_delivered_is_not_finished_by_anybody(world: World) -> None:
    """It would stand for what is: of two offsets that are finished the higher one counts."""

    class Finishes(Recording):
        def open(self, context: Context) -> None:
            self.context = context

        def on_next_batch(self, batch: Batch) -> BatchResponse:
            super().on_next_batch(batch)
            self.context.advance(batch, 10**9)
            self.context.advance(batch, 2)
            return BatchResponse.next()

    publish(world, 3)
    start(world, None, Finishes)
    world.run(5)
    assert world.commits() == {0: 2}


@pytest.mark.parametrize("offset", [True, 2.0, "2", None, -1])
def test_what_is_no_offset_is_not_taken_for_one(world: World, offset: object) -> None:
    """True was committed as 1, and 2.0 stood as such in the ledger."""

    class Finishes(Recording):
        def open(self, context: Context) -> None:
            self.context = context

        def on_next_batch(self, batch: Batch) -> BatchResponse:
            super().on_next_batch(batch)
            self.context.advance(batch, offset)  # type: ignore[arg-type]
            return BatchResponse.advance()

    publish(world, 3)
    start(world, None, Finishes, on_error={"max_attempts": 1, "then": "hold"})
    partition = world.consumers["a"].channel.status().partitions[0]
    told = f"BadResponseError: orders/0: Context.advance got {offset!r}; pass the next offset to read"
    assert (world.commits(), str(partition.last_error).startswith(told)) == ({0: 0}, True)


def test_the_place_of_an_error_is_in_the_processor_and_not_in_the_library_that_it_called(world: World) -> None:
    """`json/decoder.py:355` says nothing of which of a processor's lines gave it what is no JSON."""
    world.kafka.publish("orders", 0, [b"{"])
    start(world, lambda batch: json.loads(batch.records[0].value or b""))
    error = str(world.consumers["a"].channel.status().partitions[0].last_error)
    assert re.fullmatch(rf"JSONDecodeError: .* \(at {re.escape(__file__)}:\d+\)", error)


def test_an_error_that_is_from_a_library_alone_is_placed_there() -> None:
    """A processor that is an installed package, say."""
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    caught.value.__traceback__ = caught.tb.tb_next
    assert re.fullmatch(r"JSONDecodeError: .* \(at .*/json/decoder\.py:\d+\)", describe(caught.value))


def test_generator_exit_of_a_plain_processor_is_a_failure_like_any_other(world: World) -> None:
    """It was taken for the end of an event loop, and raised again each second: no attempt was counted."""
    publish(world, 1)
    processor = start(world, answers(*[GeneratorExit()] * 3), on_error={"max_attempts": 3, "then": "hold"})
    world.run(10)
    partition = world.consumers["a"].channel.status().partitions[0]
    held = "on_next_batch fails on the record at offset 0: GeneratorExit (at "
    assert (offsets(processor), str(partition.held).startswith(held)) == ([0, 0, 0], True)


@pytest.mark.parametrize("name", ["on_claim", "on_batch_processed", "on_exception", "room"])
def test_generator_exit_of_another_callback_is_one_too(world: World, name: str) -> None:
    """The batch is redelivered, or nothing changes, as with any other exception of the callback."""
    raised: list[str] = []

    def fails_once(self: Recording, *arguments: object) -> None:
        if not raised:
            raised.append(name)
            raise GeneratorExit

    publish(world, 1)
    kind = type("Exits", (Recording,), {name: fails_once})
    start(world, answers(RuntimeError("away")) if name == "on_exception" else None, kind)
    world.run(5)
    assert (raised, world.commits()) == ([name], {0: 1})


@pytest.mark.parametrize("batch", [None, "orders"])
def test_what_is_no_batch_is_not_taken_for_one(batch: object) -> None:
    """It was an AttributeError about `claim`, which nobody outside knows."""
    told = f"channel orders: Context.advance got {batch!r}; pass a batch that on_next_batch received"
    with pytest.raises(BadResponseError, match=f"^{re.escape(told)}$"):
        Context("orders", "g", "a").advance(batch, 1)  # type: ignore[arg-type]


def test_attempts_are_not_those_of_a_record_that_was_cut_off(world: World) -> None:
    """The first failure where it reads on gave that record up."""

    def fails(batch: Batch) -> BatchResponse:
        value = batch.records[0].value
        if value == b"old" or (value == b"new" and next(failures) < 4):
            raise ConnectionError("away")
        return BatchResponse.advance()

    failures = count(1)
    publish(world, 2)
    world.kafka.publish("orders", 0, [b"old"])
    processor = start(
        world, fails, Recording, reader={"max_batch_records": 1}, on_error={"max_attempts": 5, "then": "skip"}
    )
    world.run(8)  # four attempts
    world.kafka.truncate("orders", 0, 2)
    world.kafka.publish("orders", 0, [b"new"])
    world.run(60)
    assert (next(failures), offsets(processor)[-1], world.commits()) == (5, 2, {0: 3})

"""The decision table of `explain`: a row for each cause, the order of precedence, and what holds for all facts."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.observe.explain.facts import (
    BENIGN,
    Cause,
    ChannelFacts,
    Explanation,
    PartitionFacts,
    SessionFacts,
    duration,
)
from inbound.observe.explain.rules import explain
from inbound.processors.dispatch.options import DeliverySpec, DispatchOptions

WAITS = ["subscriber", "dead-letters", "retry-topic", "undecodable", "window", "limit", "delayed", "rate"]
PATIENCE = 1.5
P = {"topic": "orders", "position": 100, "committed": 100, "end": 500}
Facts = tuple[PartitionFacts, ChannelFacts, SessionFacts]


def facts(channel: dict[str, Any] | None = None, session: dict[str, Any] | None = None, **partition: Any) -> Facts:
    return (
        PartitionFacts(**{**P, "still_for": 10.0, **partition}),
        ChannelFacts(**(channel or {})),
        SessionFacts(**(session or {})),
    )


def test_records_that_wait_for_a_blocked_event_loop_are_not_said_to_wait_for_workers() -> None:
    """To raise `workers` does nothing there."""
    waits: dict[str, Any] = {"place": "scheduled", "buffered": 7, "still_for": 9.0}
    found = of(facts({"event_loop": True, "busy": (("orders/1", 30.0),)}, **waits))
    assert found.cause is Cause.WORKERS_BUSY
    assert found.text == "7 records are read ahead and a callback does not let go of the event loop (orders/1 for 30 s)"
    assert "workers" not in found.todo


def of(given: Facts) -> Explanation:
    return explain(*given, PATIENCE)


#: A cause for each set of facts.
TABLE: list[tuple[Cause, Facts]] = [
    (Cause.IDLE, facts(end=100)),
    (Cause.HEALTHY, facts(still_for=0.0, rate=100.0, end=130)),
    (Cause.HEALTHY, facts(callback_for=0.1, batch=(100, 110))),
    (Cause.CATCHING_UP, facts(still_for=0.5, rate=10.0, end=5000)),
    (Cause.STARTING, facts(place="starting", held_for=0.2)),
    (Cause.BROKER_AWAY, facts(place="starting", held_for=9.0)),
    (Cause.RELEASING, facts(fate="release")),
    (Cause.SLOW_PROCESSOR, facts(fate="release", callback_for=9.0, batch=(100, 110))),
    (Cause.PAUSED, facts({"pauses": ("paused since 12:00 by ann",)})),
    (Cause.WAITING, facts(rest_for=30.0, buffered=10)),
    (Cause.RATE, facts(rest_for=2.0, waits=("rate", "max_read_rate (5 events/s) is reached"), buffered=10)),
    (Cause.RESET, facts({"resets": (("orders", "x", "stopping", 3.0),)}, fate="release")),
    (Cause.SLOW_PROCESSOR, facts(callback_for=9.0, batch=(100, 110), place="running", stack="here")),
    (Cause.SLOW_PROCESSOR, facts(callback_for=9.0, callback="on_batch_processed", place="running", end=100)),
    (Cause.SLOW_PROCESSOR, facts(callback_for=9.0, callback="on_stream_termination", fate="release")),
    (Cause.IDLE, facts(callback_for=0.1, callback="on_idle", place="running", end=100)),
    (Cause.SLOW_PROCESSOR, facts(no_room=True, buffered=7)),
    (Cause.PROCESSOR_FAILS, facts(attempts=2, last_error="ValueError: room", rest_for=1.0)),
    (Cause.REVERT_LOOP, facts(reverts=3, reverted_to=100, buffered=10)),
    (Cause.PROCESSOR_FAILS, facts(attempts=2, failing=(100, 110), last_error="OSError: down", rest_for=1.0)),
    (Cause.POISON_EVENT, facts(attempts=2, failing=(104, 105), last_error="ValueError: bad", rest_for=1.0)),
    (Cause.POISON_EVENT, facts(held="it fails on the record at offset 104", held_cause="poison-event", attempts=10)),
    (Cause.OUT_OF_RANGE, facts(held="the commit 100 is beyond the log's end", held_cause="out-of-range")),
    (Cause.PROCESSOR_FAILS, facts(held="on_claim failed 10 times", held_cause="processor-fails", attempts=10)),
    (Cause.POISON_EVENT, facts(waits=("undecodable", "offset 100: the record is no event"))),
    (Cause.SUBSCRIBER_DOWN, facts(waits=("subscriber", "offset 100: no answer"))),
    (Cause.SUBSCRIBER_SLOW, facts(waits=("window", "500 events are sent and not finished"), buffered=10)),
    (Cause.DEAD_LETTERS, facts(waits=("dead-letters", "offset 100: the sink does not answer"))),
    (Cause.DEAD_LETTERS, facts(waits=("retry-topic", "offset 100: the retry topic orders.retry.5m does not take it"))),
    (Cause.SUBSCRIBER_LIMIT, facts(waits=("limit", "9 requests wait for limits.rate (5/s)"), buffered=10)),
    (Cause.DELAYED_RETRY, facts(waits=("delayed", "offset 100 is sent again at 2026-01-01T00:05:00Z"), buffered=10)),
    (Cause.DEAD_LETTERS, facts(attempts=3, dead_letter_problem="offset 100 could not be sent", rest_for=4.0)),
    (Cause.SESSION_SUSPENDED, facts(session={"connected": False})),
    (Cause.SESSION_SUSPENDED, facts(session={"known_pauses": False}, buffered=10)),
    (Cause.IN_DOUBT, facts(session={"connected": False, "certain": False})),
    (Cause.COMMIT_WAITS, facts(place="settling", settling_for=3.0)),
    (Cause.COMMIT_WAITS, facts(place="settling", commit_problem="/offsets/orders/3: not allowed", fate="release")),
    (Cause.BROKER_AWAY, facts({"kafka_problem": "no broker answers"})),
    (Cause.BROKER_AWAY, facts(led=False)),
    (Cause.NOT_ALLOWED, facts({"kafka_problem": "SaslAuthenticationFailedError", "kafka_refused": True})),
    (Cause.NOT_ALLOWED, facts(read_error="TopicAuthorizationFailedError", refused=True)),
    (Cause.TOPIC_MISSING, facts({"topic_exists": False})),
    (Cause.OUT_OF_RANGE, facts(out_of_range="offset 100 is outside the log, which holds 200 to 500")),
    (Cause.READ_FAILS, facts(read_error="CorruptRecordError")),
    (Cause.NOT_FETCHING, facts(unread=400)),
    (Cause.BUFFER_FULL, facts({"prefetch": (60, 64), "fullest": (("orders/1", 50),)}, reader_paused=True)),
    (Cause.WORKERS_BUSY, facts({"busy": (("orders/1", 9.0),)}, buffered=10)),
    (Cause.LEDGER, facts({"ledger_problem": "No space left on device"}, buffered=10)),
    (Cause.INTERNAL, facts({"silent": ("orders-reader has been stuck for 60 s",)})),
    (Cause.LOST, facts(fate="drop")),
    (Cause.ABANDONED, facts(place="abandoned", callback_for=60.0)),
]


@pytest.mark.parametrize(
    ("cause", "given_facts"), TABLE, ids=[f"{n}-{cause.value}" for n, (cause, _) in enumerate(TABLE)]
)
def test_the_cause(cause: Cause, given_facts: Facts) -> None:
    assert of(given_facts).cause is cause


def test_every_cause_that_a_holder_can_name_has_a_row() -> None:
    """The others are told by who does not hold the partition: see test_explain_outside."""
    outside = {Cause.OWNER_SILENT, Cause.BEING_CLAIMED, Cause.NONE_ALLOWED, Cause.NO_MEMBER, Cause.NO_PARTITION}
    outside.add(Cause.BAD_NODE)
    assert set(Cause) - {cause for cause, _ in TABLE} == outside


def test_each_cause_says_what_an_operator_can_do() -> None:
    for cause, given_facts in TABLE:
        found = of(given_facts)
        assert found.text
        assert "\n" not in found.text
        assert found.todo or cause in BENIGN, cause


@pytest.mark.parametrize("kind", [kind for kind in WAITS if kind != "rate"])
def test_advice_on_a_dispatcher_names_keys_that_it_has(kind: str) -> None:
    """An operator copies them into the configuration."""
    todo = of(facts(waits=(kind, "why"), buffered=10)).todo
    keys = re.findall(r"`(\w+)`", todo)
    assert set(keys) <= DispatchOptions.model_fields.keys()
    assert set(re.findall(r"\bdelivery\.(\w+)", todo)) <= DeliverySpec.model_fields.keys()
    assert keys == {"window": ["max_in_flight"], "limit": ["limits"], "delayed": ["delayed_retry"]}.get(kind, [])


def test_the_stack_is_the_evidence_against_a_slow_processor() -> None:
    found = of(facts(callback_for=125.0, batch=(100, 110), stack="File pay.py, line 7, in pay"))
    assert found == Explanation(
        Cause.SLOW_PROCESSOR,
        "the processor has had offsets 100 to 109 for 2 min 5 s",
        found.todo,
        125.0,
        ("File pay.py, line 7, in pay",),
    )


FULL = {"prefetch": (60_000_000, 67_108_864), "fullest": (("orders/1", 50_000_000), ("orders/2", 9_000_000))}


@pytest.mark.parametrize(
    ("given_facts", "said"),
    [
        (
            facts(still_for=0.1, rate=100.0, committed=100, end=60_100),
            "it moves, 100 records/s, 60,000 records behind the end of the log; at this rate, and with nothing new, at the "
            "end in 10 min 0 s",
        ),
        (facts(FULL, reader_paused=True), "orders/1 (50,000,000 bytes), orders/2 (9,000,000 bytes)"),
        # Brokers that are away stop nothing that still has records.
        (facts({"kafka_problem": "away"}, still_for=0.1, rate=50.0, buffered=100), "it moves"),
    ],
)
def test_the_text_has_the_figures(given_facts: Facts, said: str) -> None:
    assert said in of(given_facts).text


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ({"session": {"connected": False, "certain": False}}, {"attempts": 3, "failing": (1, 2)}),
        ({"session": {"connected": False}}, {"callback_for": 60.0}),
        ({"channel": {"pauses": ("paused",)}}, {"callback_for": 60.0}),
        ({"held": "held", "held_cause": "poison-event"}, {"rest_for": 60.0}),
        ({"channel": {"ledger_problem": "full"}}, {"rest_for": 60.0}),
        ({"attempts": 3, "failing": (100, 101)}, {"rest_for": 60.0}),
        ({"callback_for": 60.0}, {"channel": {"kafka_problem": "away"}}),
    ],
)
def test_what_stops_it_comes_before_what_it_would_wait_for_next(
    stronger: dict[str, Any], weaker: dict[str, Any]
) -> None:
    assert of(facts(**{**weaker, **stronger})).cause is of(facts(**stronger)).cause is not of(facts(**weaker)).cause


text = st.text(max_size=5)
few = st.integers(0, 4)
seconds = st.floats(0.0, 100.0)
maybe_seconds = st.none() | seconds
partitions = st.builds(
    PartitionFacts,
    topic=st.just("orders"),
    place=st.sampled_from(["starting", "scheduled", "running", "settling", "leaving", "abandoned", "gone"]),
    fate=st.sampled_from(["keep", "release", "drop"]),
    position=few,
    committed=st.none() | few,
    end=st.none() | few,
    buffered=few,
    still_for=seconds,
    rate=st.floats(0.0, 1e6),
    held_for=seconds,
    advanced_for=seconds,
    settling_for=maybe_seconds,
    callback_for=maybe_seconds,
    batch=st.none() | st.tuples(few, few),
    rest_for=seconds,
    waits=st.none() | st.tuples(st.sampled_from(WAITS), text),
    attempts=few,
    failing=st.none() | st.tuples(few, few),
    held=st.none() | text,
    held_cause=st.none() | st.sampled_from([cause.value for cause in Cause]),
    dead_letter_problem=st.none() | text,
    read_error=st.none() | text,
    refused=st.booleans(),
    out_of_range=st.none() | text,
    reverts=few,
    reverted_to=st.none() | few,
    reader_paused=st.booleans(),
    led=st.booleans(),
    unread=few,
)
channels = st.builds(
    ChannelFacts,
    pauses=st.lists(text, max_size=1).map(tuple),
    resets=st.lists(st.just(("orders", "x", "", None)), max_size=1).map(tuple),
    kafka_problem=st.none() | text,
    kafka_refused=st.booleans(),
    ledger_problem=st.none() | text,
    degrade=st.booleans(),
    topic_exists=st.booleans(),
    silent=st.lists(st.just("a thread"), max_size=1).map(tuple),
    prefetch=st.tuples(few, few),
)
sessions = st.builds(SessionFacts, connected=st.booleans(), certain=st.booleans(), known_pauses=st.booleans())
anything = st.tuples(partitions, channels, sessions)


@given(anything)
def test_there_is_always_exactly_one_cause(given_facts: Facts) -> None:
    found = of(given_facts)
    assert found.cause in set(Cause)
    assert found == of(given_facts)


@given(anything)
def test_a_partition_that_moves_undisturbed_is_never_called_stalled(given_facts: Facts) -> None:
    """With any other facts: a partition that has just advanced, and is not stopped, moves or rests."""
    partition, channel, _ = given_facts
    p = replace(
        partition,
        still_for=0.0,
        advanced_for=0.0,
        settling_for=None,
        rate=10.0,
        fate="keep",
        held=None,
        attempts=0,
        dead_letter_problem=None,
        callback_for=None,
        place="scheduled",
    )
    found = explain(p, replace(channel, ledger_problem=None), SessionFacts(), PATIENCE)
    assert found.cause in BENIGN


@given(st.floats(0, 1e7))
def test_time_spans_are_short(seconds_passed: float) -> None:
    assert 3 <= len(duration(seconds_passed)) <= 14

"""Both clients on a real broker: all of the conformance suite, what only real brokers can show, and what resets ask."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest
from kafka import KafkaProducer

from inbound.controller.reset_offset.model import TopicLog
from inbound.embedded import EmbeddedCluster
from inbound.kafka.base import LogClient
from inbound.kafka.clients.topic_logs import KafkaTopicLogs
from inbound.kafka.confluent import figures as confluent_figures
from inbound.kafka.confluent.client import ConfluentClient
from inbound.kafka.python.client import PATIENT_WAIT
from inbound.processors.batch import record_size
from inbound.processors.cloudevents_values import UnreadableHeadersError
from integration.kafka_stage import CLIENTS, Publisher, RealStage
from tests.kafka.log_client_conformance import LogClientConformance
from tests.kafka.log_client_stage import Reading, values
from tests.waiting import patient, until, wait_for

#: Only kafka-python's fetches can wait so long that something else may have to wait behind them.
kafka_python_alone = pytest.mark.parametrize("stage", ["kafka-python"], indirect=True)


@pytest.fixture(scope="module")
def publisher(embedded_cluster: EmbeddedCluster) -> Publisher:
    """What publishes to the shared broker."""
    return Publisher(embedded_cluster)


@pytest.fixture(params=CLIENTS)
def stage(
    request: pytest.FixtureRequest, embedded_cluster: EmbeddedCluster, publisher: Publisher
) -> Iterator[RealStage]:
    """A stage on the shared broker, which answers again after any test."""
    stage = RealStage(embedded_cluster, publisher, CLIENTS[request.param])
    yield stage
    stage.close()


class TestClients(LogClientConformance):
    """The suite. `make test` has these of the real brokers; the fake cluster passes all of them there."""

    slice = frozenset(
        (
            "test_a_deleted_topic_is_left_out_and_recreated_it_has_another_id",
            "test_a_log_reaches_from_its_first_offset_up_to_the_one_that_comes_next",
            "test_a_time_begins_with_the_first_record_of_it_or_later",
            "test_a_record_comes_with_all_its_fields",
            "test_reading_goes_on_past_offsets_without_a_record",
            "test_read_from_another_position_discards_what_was_prefetched",
            "test_a_paused_partition_brings_nothing_and_goes_on_exactly_there",
            "test_one_poll_brings_no_more_of_a_partition_than_the_limit",
            "test_a_position_that_is_not_in_the_log_is_reported_again_and_again",
            "test_a_position_behind_the_end_is_reported_also_when_the_log_has_grown_to_it",
            "test_who_reads_on_can_have_the_log_compared_with_what_was_read",
            "test_a_log_that_knows_nothing_of_a_leader_is_not_read_on",
            "test_an_outage_is_reported_and_reading_goes_on_after_it",
        )
    )


# -- topics ------------------------------------------------------------------------------------------------------------


@kafka_python_alone
def test_both_clients_name_a_topic_by_the_same_id(stage: RealStage) -> None:
    """librdkafka writes it as base64, kafka-python as a UUID: a member with one takes over from a member with the other."""
    name = stage.topic()[0].topic
    clients = [make(stage.cluster.bootstrap_servers, 100) for make in CLIENTS.values()]
    stage.clients += clients
    assert len({stage.topics(client, [name], None)[name].topic_id for client in clients}) == 1


# -- records -----------------------------------------------------------------------------------------------------------


def test_records_of_an_open_transaction_wait_for_its_end(stage: RealStage) -> None:
    """Also what others published behind them; and who begins at the end begins before them."""
    (tp,) = stage.topic()
    stage.publish(tp, values(1))
    reading = Reading(stage, stage.client())
    reading.client.read({tp: 0})
    transactions = stage.publisher.transactions
    transactions.begin_transaction()
    transactions.produce(tp.topic, b"in", partition=tp.partition)
    assert transactions.flush(30) == 0
    stage.publish(tp, [b"behind"])
    reading.until((tp, 1))
    reading.rest()
    limits = stage.ranges(reading.client, [tp])[tp]
    open_, end = reading.offsets(tp), limits.end
    transactions.commit_transaction(30)
    reading.until((tp, 3))
    assert (open_, end, reading.offsets(tp)) == ([0], 1, [0, 1, 2])


@pytest.mark.thorough("test_records.py has a large record")
def test_a_record_larger_than_every_fetch_is_read(stage: RealStage) -> None:
    """And what is before and behind it."""
    (tp,) = stage.topic()
    large = os.urandom(950_000)
    stage.publish(tp, [b"before", large, b"behind"], batched=False)
    client = stage.client()
    client.limit_fetches(16 * 1024)
    reading = Reading(stage, client)
    client.read({tp: 0})
    reading.until((tp, 3))
    assert [record.value for record in reading.records(tp)] == [b"before", large, b"behind"]


@pytest.mark.parametrize("paused", ["before", "as it comes"])
def test_what_is_put_aside_stays_within_a_bound_and_nothing_of_it_is_lost(
    embedded_cluster: EmbeddedCluster, publisher: Publisher, paused: str
) -> None:
    """Paused partitions whose batches are much larger than a fetch's limit: beyond the bound they are fetched again.

    Also where nothing comes behind a batch of which a part was handed on before its partition was paused.
    """
    bound = 512 * 1024
    make = partial(ConfluentClient, client_id="aside", fetch_wait=0.05, prefetch_bytes=bound)
    stage = RealStage(embedded_cluster, publisher, lambda servers, _: make({"bootstrap.servers": servers}))
    partitions = stage.topic(4)
    for tp in partitions:
        stage.publish(tp, [bytes(10_000)] * 30)
    client = stage.client()
    client.limit_fetches(16 * 1024)
    reading = Reading(stage, client)
    client.read(dict.fromkeys(partitions, 0))
    client.pause(partitions if paused == "before" else [])
    largest = 0
    for _ in stage.turns(1.0):
        reading.poll()
        client.pause([tp for tp in partitions if reading.offsets(tp)])
        largest = max(largest, client.aside_bytes)
    client.resume(partitions)
    reading.until(*((tp, 30) for tp in partitions))
    stage.close()
    assert 0 < largest <= bound  # all four are more than twice the bound
    assert [reading.offsets(tp) for tp in partitions] == [list(range(30))] * 4


class _NotUtf8(str):
    """A name that a producer writes as it stands, as those do that do not look at it."""

    def encode(self, *_: object, **__: object) -> bytes:
        return b"\xff\xfe"


@pytest.mark.parametrize("stage", ["confluent-kafka"], indirect=True)
def test_a_header_s_name_that_is_not_utf_8_is_one_record_s_trouble(stage: RealStage) -> None:
    """librdkafka's binding leaves a list with a hole in it: the second look at it ended the process."""
    (tp,) = stage.topic()
    with closing(KafkaProducer(bootstrap_servers=stage.cluster.bootstrap_servers)) as producer:
        for name in ("fine", _NotUtf8("bad"), "fine"):
            producer.send(tp.topic, b"value", partition=tp.partition, headers=[(name, b"1")])
    reading = Reading(stage, stage.client())
    reading.client.read({tp: 0})
    reading.until((tp, 3))
    told: list[object] = []
    for record in reading.records(tp) * 3:
        try:
            told.append(list(record.headers))
        except UnreadableHeadersError as error:
            told.append((record.value, record_size(record), "is not UTF-8" in str(error)))
    assert told == [[("fine", b"1")], (b"value", 5, True), [("fine", b"1")]] * 3


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough("measures times; records that come too late fail other tests' deadlines")
def test_a_poll_returns_when_something_arrives_or_when_its_time_is_up(stage: RealStage) -> None:
    """Not before, and not much later; and a partition that is claimed then does not wait for the others' fetch."""
    idle, claimed = stage.topic(2)
    stage.publish(claimed, values(1))
    reading = Reading(stage, stage.client())
    reading.client.read({idle: 0})
    reading.rest()
    began = time.monotonic()
    assert not reading.client.poll(0.3).fetched
    nothing = time.monotonic() - began
    took = []
    for _ in range(7):
        began = time.monotonic()
        reading.client.read({claimed: 0})
        reading.until_some()
        took.append(time.monotonic() - began)
        reading.client.forget([claimed])
    stage.publish(idle, values(1))
    began = time.monotonic()
    assert reading.client.poll(patient(5.0)).fetched
    something = time.monotonic() - began
    assert 0.3 <= nothing < patient(0.6)
    assert something < patient(1.0)
    assert sorted(took)[3] < patient(0.1)


@pytest.mark.thorough("`make test` closes clients after each test, and warns of sockets that are left")
@pytest.mark.parametrize("gone", [False, True], ids=["with a broker", "with a broker that does not answer"])
def test_a_closed_client_leaves_nothing_behind(stage: RealStage, gone: bool) -> None:
    """No thread and no socket; and it takes a few seconds at most."""
    (tp,) = stage.topic()
    stage.publish(tp, values(3))
    before = _open()
    client = stage.client()
    reading = Reading(stage, client)
    client.read({tp: 0})
    reading.until((tp, 3))
    stage.topics(client, [tp.topic], None)
    stage.ranges(client, [tp])
    its = _open() - before
    if gone:
        stage.outage()
    began = time.monotonic()
    client.close()
    took = time.monotonic() - began
    stage.clients.remove(client)
    del client, reading
    if gone:
        stage.outage_over()  # what publishes has lost connections of its own
    stage.until(lambda: not its & _open())
    assert {name.partition(":")[0] for name in its} == {"socket", "thread"}
    assert took < patient(5)


def _open() -> set[str]:
    """Return the sockets and threads that this process has, by names that no two share."""
    found = {f"thread:{number}" for number in os.listdir("/proc/self/task")}
    for entry in os.scandir("/proc/self/fd"):
        try:
            name = os.readlink(entry.path)
        except FileNotFoundError:  # closed since it was listed
            continue
        if name.startswith("socket:"):
            found.add(name)
    return found


# -- fetches that may wait long ----------------------------------------------------------------------------------------


@pytest.fixture
def woken() -> threading.Event:
    """What the client sets when there is something to poll for."""
    return threading.Event()


def leave_alone(client: LogClient, woken: threading.Event) -> None:
    """Poll until a fetch is under way that may wait long, and nothing has come."""

    def waits() -> bool:
        woken.clear()
        polled = client.poll(0.0, woken.set)
        assert not polled.fetched
        if not polled.will_wake:
            client.poll(0.05)  # not connected yet
            return False
        return not woken.wait(0.4)

    until(waits, 60, "a fetch waits for long")  # a broker takes its time for a connection


def until_something(client: LogClient, woken: threading.Event) -> None:
    """Poll when woken, as the reader does, until something has come."""

    def came() -> bool:
        polled = client.poll(0.0, woken.set)
        if not polled.fetched:
            if polled.will_wake:
                wait_for(woken, PATIENT_WAIT * 10, "it wakes who waits")
            else:
                woken.wait(0.01)  # no fetch is under way: the connection is being made
            woken.clear()
        return bool(polled.fetched)

    until(came, PATIENT_WAIT * 10, "something comes", look=0.0)


@kafka_python_alone
@pytest.mark.parametrize(
    "ask",
    [pytest.param(False, id="a partition is claimed"), pytest.param(True, id="a log's limits are asked for")],
)
def test_nothing_waits_behind_a_fetch_that_may_wait_long(stage: RealStage, woken: threading.Event, ask: bool) -> None:
    """The broker answers one request after the other; what is published wakes the reader at once, too."""
    idle, *others = stage.topic(4)
    for tp in others:
        stage.publish(tp, values(1))
    client = stage.client()
    client.read({idle: 0})
    took = []
    for tp in others:
        leave_alone(client, woken)
        began = time.monotonic()
        if ask:
            stage.ranges(client, [tp])
        else:
            client.read({tp: 0})
            until_something(client, woken)
        took.append(time.monotonic() - began)
    leave_alone(client, woken)
    stage.publish(idle, values(1))
    began = time.monotonic()
    until_something(client, woken)
    assert sorted(took)[1] < patient(PATIENT_WAIT / 4)  # the broker may be held up once, while this process is not
    assert time.monotonic() - began < patient(PATIENT_WAIT / 2)


@kafka_python_alone
@pytest.mark.thorough("freezes the broker; the suite's outage does so in `make test`")
def test_a_broker_that_is_frozen_meanwhile_costs_nothing(stage: RealStage, woken: threading.Event) -> None:
    """What is published as soon as it answers again comes, with the fetch that was under way or the next one."""
    (tp,) = stage.topic()
    client = stage.client()
    client.read({tp: 0})
    leave_alone(client, woken)
    stage.outage()
    time.sleep(PATIENT_WAIT)
    stage.outage_over()
    stage.publish(tp, values(3))
    came: list[int] = []

    def three() -> bool:
        woken.wait(0.1)
        woken.clear()
        for fetched in client.poll(0.0, woken.set).fetched.values():
            came.extend(record.offset for record in fetched.records)
        return len(came) >= 3

    stage.until(three)
    assert came == [0, 1, 2]


# -- what a reset asks -------------------------------------------------------------------------------------------------


@pytest.fixture
def logs(stage: RealStage) -> Iterator[Callable[..., TopicLog | None]]:
    """Ask as resets do, and wait for the answer: `logs(topic, time)`."""
    logs = KafkaTopicLogs(stage.client)

    def answer(topic: str, time: float | None = None) -> TopicLog | None:
        call, done = logs.ask(topic, time), threading.Event()
        call.when_done(done.set)
        wait_for(done, 30, "the brokers say where the logs begin and end")
        return call.result()

    yield answer
    logs.close()


def test_a_whole_topic_is_reported(stage: RealStage, logs: Callable[..., TopicLog | None]) -> None:
    """Ranges, where a time between two records begins, where one behind the last, the id; no end behind an open transaction."""
    empty, filled, trimmed, open_ = partitions = stage.topic(4)
    for tp in (filled, trimmed):
        for at in (1000, 2000, 3000):
            stage.publish(tp, values(2), timestamp=at)
    stage.trim(trimmed, 5)
    stage.publish(open_, values(2), timestamp=1000)
    transactions = stage.publisher.transactions
    transactions.begin_transaction()
    transactions.produce(open_.topic, b"in", partition=open_.partition, timestamp=2000)
    assert transactions.flush(30) == 0
    log, late = logs(filled.topic, 1.5), logs(empty.topic, 3.001)
    transactions.abort_transaction(30)
    assert log is not None
    assert log.topic_id is not None
    assert (log.ranges, log.at_time) == ({0: (0, 0), 1: (0, 6), 2: (5, 6), 3: (0, 2)}, {0: 0, 1: 2, 2: 5, 3: 2})
    assert late is not None
    assert late.at_time == {tp.partition: late.ranges[tp.partition][1] for tp in partitions}


@pytest.mark.thorough("the suite's slice has a recreated topic")
def test_a_recreated_topic_is_another_one(stage: RealStage, logs: Callable[..., TopicLog | None]) -> None:
    """Nothing is remembered from one question to the next."""
    (tp,) = stage.topic()
    before = logs(tp.topic)
    stage.delete_topic(tp.topic)
    gone = logs(tp.topic)
    stage.create_topic(tp.topic, 2)
    after = logs(tp.topic)
    assert before is not None
    assert after is not None
    assert (gone, len(before.ranges), len(after.ranges)) == (None, 1, 2)
    assert before.topic_id != after.topic_id


# -- what they measure -------------------------------------------------------------------------------------------------


def test_a_client_tells_of_the_broker_that_it_reads_from(stage: RealStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much came from it and how long it took, while it is read from."""
    monkeypatch.setattr(confluent_figures, "INTERVAL", 0.2)
    (tp,) = stage.topic()
    stage.publish(tp, [b"x" * 1000] * 100)
    reading = Reading(stage, stage.client())
    reading.client.read({tp: 0})
    reading.until((tp, 100))

    def told() -> bool:
        reading.poll()
        return any(one.request_seconds and one.received_bytes_per_second for one in reading.client.figures())

    stage.until(told)

    (one,) = reading.client.figures()
    assert one.broker == stage.cluster.brokers[0].node_id
    assert 0 < one.request_seconds["mean"] <= one.request_seconds["max"] < 60
    assert one.requests_per_second > 0


@pytest.mark.parametrize("stage", ["confluent-kafka"], indirect=True)
def test_figures_do_not_pile_up_while_nobody_polls(stage: RealStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all partitions are paused; they are taken up with the next look at the topics, and no record is lost by it."""
    monkeypatch.setattr(confluent_figures, "INTERVAL", 0.1)
    monkeypatch.setattr(confluent_figures, "OVERDUE", 0.2)
    (tp,) = stage.topic()
    client = stage.client()
    client.read({tp: 0})
    client.pause([tp])
    stage.publish(tp, values(50))

    def renewed() -> bool:
        client.topics([tp.topic], None)
        return bool(client.figures())

    stage.until(renewed)
    before = client.figures()
    stage.until(lambda: renewed() and client.figures() is not before)
    client.resume([tp])
    reading = Reading(stage, client)
    reading.until((tp, 50))

    assert [record.value for record in reading.records(tp)] == values(50)


@pytest.mark.parametrize("stage", ["confluent-kafka"], indirect=True)
def test_a_fetch_that_fails_as_another_position_is_read_says_nothing_of_that_one(stage: RealStage) -> None:
    """The two cross when the long poll before ends; believed, the error would hold a partition whose log is whole."""
    (tp,) = stage.topic()
    stage.publish(tp, values(4))
    client = stage.client()
    reading = Reading(stage, client)
    told = []
    for turn in range(60):
        client.read({tp: 9})
        time.sleep(0.08 + turn % 30 / 750)
        client.read({tp: 2})
        before = len(reading.polls)
        reading.until((tp, 2 * (turn + 1)))
        told += [poll.out_of_range for poll in reading.polls[before:] if poll.out_of_range]
    assert told == []

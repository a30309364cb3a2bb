"""How much a subscriber is sent at a time, and in a second, by all partitions of a process together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.processors.batch import Batch, BatchResponse
from inbound.processors.dispatch.jobs import Job, PartitionClaim
from inbound.processors.dispatch.limits import BURST, Bucket, RequestLimits, Timer
from inbound.processors.dispatch.options import LimitOptions
from inbound.processors.dispatch.transport import Answer
from inbound.processors.dispatch.window import SendWindow
from inbound.topic_partition import TopicPartition
from tests.processors.dispatch.dispatch_stage import OK, SUBSCRIBER, Stage
from tests.processors.dispatch.test_dispatch import FAST, names


@pytest.mark.parametrize(("rate", "at_once"), [(1.0, 1), (10.0, 1), (50.0, 5), (500.0, 50)])
def test_after_a_pause_a_tenth_of_a_second_may_begin_at_once(rate: float, at_once: int) -> None:
    """Or one request, where that is less."""
    bucket, taken = Bucket(rate), 0
    while bucket.wait(1000.0) <= 0:
        bucket.take(1000.0)
        taken += 1
    assert taken == at_once


@given(st.floats(0.5, 2000), st.lists(st.floats(0, 0.5), min_size=1, max_size=60))
def test_in_no_time_more_is_taken_than_the_rate_and_the_burst(rate: float, pauses: list[float]) -> None:
    """At any time."""
    bucket, now, taken = Bucket(rate), 1000.0, []
    for pause in pauses:
        now += pause
        if bucket.wait(now) <= 0:
            bucket.take(now)
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            most = max(1.0, rate * BURST) + rate * (taken[last] - taken[first])
            assert last - first + 1 <= most + 1e-6


class Nowhere:
    """The step of jobs of which nothing is sent."""

    kind = "subscriber"

    def send(self, job: Job) -> None:
        pass

    def answered(self, job: Job, answer: Answer) -> None:
        pass


class _NoTimer:
    def cancel(self) -> None:
        pass


def never(seconds: float, act: Callable[[], None]) -> Timer:
    return _NoTimer()


def claim(number: int) -> PartitionClaim:
    return PartitionClaim(TopicPartition("orders", number), SendWindow(8, "none"), Batch("orders", number, 0, 1, []))


def test_partitions_take_turns_however_much_one_of_them_has() -> None:
    """One comes with ten requests, the other two with one each, behind them."""
    went: list[int] = []
    limits = RequestLimits(lambda: 0.0, never, lambda job: went.append(job.claim.tp.partition))
    limits.set(LimitOptions(in_flight=1))
    a, b, c = claim(0), claim(1), claim(2)
    jobs = [Job(one, [], Nowhere()) for one in [*[a] * 10, b, c]]
    assert [limits.enter(job) for job in jobs] == [True] + [False] * 11
    for _ in range(4):
        limits.leave(next(job for job in jobs if job.admitted))
    assert went == [0, 1, 2, 0]


def test_who_is_given_up_takes_no_turn_any_more() -> None:
    """Its requests in flight count until they end."""
    went: list[int] = []
    limits = RequestLimits(lambda: 0.0, never, lambda job: went.append(job.claim.tp.partition))
    limits.set(LimitOptions(in_flight=1))
    a, b = claim(0), claim(1)
    first, *_ = jobs = [Job(one, [], Nowhere()) for one in (a, a, b)]
    for job in jobs:
        limits.enter(job)
    limits.forget(a)
    before = (list(went), limits.waiting)
    limits.leave(first)
    assert (before, went, limits.waiting) == (([], 1), [1], 0)


# -- of a subscription ------------------------------------------------------------------------------------------------


def spread(stage: Stage, count: int, partitions: int) -> None:
    for partition in range(partitions):
        stage.publish(*names(count, f"p{partition}-"), partition=partition)


def test_no_more_requests_than_that_are_under_way_over_all_partitions() -> None:
    """And each of them goes on."""
    stage = Stage(partitions=4, ordering="none", limits={"in_flight": 3})
    stage.seconds = lambda request: 0.5
    spread(stage, 10, 4)
    stage.start()
    stage.run(1)
    early = {one.split("-")[0] for one in stage.got()}
    stage.run(8)
    assert (stage.most(), early, stage.commits()) == (3, {"p0", "p1", "p2", "p3"}, dict.fromkeys(range(4), 10))


def test_no_more_requests_than_that_begin_in_a_second() -> None:
    """Retries among them."""
    stage = Stage(partitions=2, ordering="none", limits={"rate": "10/s"}, delivery=FAST)
    failing = list(range(5))
    stage.behaviour = lambda request: Answer(500) if failing and failing.pop() is not None else OK
    spread(stage, 20, 2)
    stage.start()
    stage.run(6)
    at = [request.at for request in stage.requests]
    gaps = [b - a for a, b in pairwise(at)]
    assert (len(at), min(gaps) >= 0.1 - 1e-6, stage.commits()) == (45, True, {0: 20, 1: 20})


def test_the_order_of_a_key_stays_while_its_events_wait_for_a_limit() -> None:
    """Also where one of them is sent again."""
    stage = Stage(ordering="key", limits={"in_flight": 2, "rate": "20/s"}, delivery={**FAST, "retry": 9})
    failing = [True]
    stage.behaviour = lambda request: Answer(500) if request.ids == ("e3",) and failing and failing.pop() else OK
    stage.dispatch(*names(30), keys=["a", "b", "c"] * 10, seconds=5)
    a = [one for one in stage.got() if int(one[1:]) % 3 == 0]
    assert (a, stage.commits()) == (["e0", "e3", "e3", *names(30)[6::3]], {0: 30})


def test_who_leaves_does_not_wait_for_a_limit() -> None:
    """Only for what is under way; the next one goes on exactly there."""
    stage = Stage(ordering="none", limits={"in_flight": 2})
    stage.seconds = lambda request: 1.0
    stage.publish(*names(30))
    stage.start()
    began = stage.world.clock.now()
    stage.world.leave("a")
    took = stage.world.clock.now() - began
    stage.start("b")
    stage.run(20)
    assert (took < 2.5, sorted(stage.got()), stage.commits()) == (True, sorted(names(30)), {0: 30})


def test_other_limits_count_at_once() -> None:
    """Also for what waits for the former ones."""
    stage = Stage(ordering="none", limits={"rate": "1/s"})
    stage.publish(*names(30))
    processor = stage.start()
    stage.run(2)
    before = len(stage.got())
    processor.reconfigure(processor.Options.model_validate({"subscriberUri": SUBSCRIBER, "ordering": "none"}), wait=0.0)
    stage.run(1)
    assert (before <= 7, stage.commits()) == (True, {0: 30})


def test_what_waits_for_a_limit_says_so() -> None:
    """In words, and it is no trouble."""
    stage = Stage(ordering="none", max_in_flight=8, limits={"rate": "0.1/s"})
    processor = stage.dispatch(*names(20), seconds=5)
    status = stage.status()
    assert (processor.waits(), status["standing"], status["waiting_for_limits"]) == (
        {TopicPartition("orders", 0): ("limit", "8 requests wait for limits.rate (0.1/s)")}, None, 8,
    )  # fmt: skip


def test_records_that_are_no_events_give_their_turn_back() -> None:
    """However many there are."""
    stage = Stage(on_undecodable="skip", ordering="none", limits={"in_flight": 1})
    for _ in range(50):
        stage.world.kafka.publish("orders", 0, [b"nonsense"])
    stage.dispatch(*names(3), seconds=4)
    assert (stage.got(), stage.commits()) == (names(3), {0: 53})


def test_what_is_taken_apart_while_its_partition_is_given_up_is_not_sent_when_its_turn_comes() -> None:
    """The next owner sends it: sent here too, much later, it would come behind what stands behind it."""
    batch = {"max_events": 4, "max_bytes": "1MiB", "max_delay": "0s"}
    stage = Stage(partitions=2, max_in_flight=8, batch=batch, limits={"in_flight": 1})
    stage.seconds = lambda request: 1.0 if request.ids[0] == "p0-0" else 9.0
    stage.behaviour = lambda request: OK if request.ids[0] == "p1-0" else Answer(400)
    processor = stage.start()
    spread(stage, 4, 2)
    stage.run(0.3)
    ending = processor._loop.create_task(processor.on_stream_termination(TopicPartition("orders", 0), 0))
    stage.run(60)
    assert (stage.got(), ending.result()) == (names(4, "p0-") + names(4, "p1-"), BatchResponse.advance(0))

"""What becomes of events: stories of one subscription on a fake clock, with a subscriber that answers as told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from inbound.partition.partition import Place
from inbound.processors.dispatch.transport import Answer
from tests.processors.dispatch.dispatch_stage import DEAD, OK, REPLIES, SUBSCRIBER, Request, Stage

FAST = {"retry": 2, "backoffDelay": "100ms", "timeout": "5s"}
NO_ANSWER = Answer(0, problem="no connection")


def to(url: str, answer: Answer) -> Callable[[Request], Answer]:
    """Answer so at one URL, and 202 elsewhere."""
    return lambda request: answer if request.url == url else OK


def refusing(*ids: str, answer: Answer) -> Callable[[Request], Answer]:
    """Answer so to the subscriber's requests that carry one of these, and 202 to others."""
    return lambda request: answer if request.url == SUBSCRIBER and set(ids) & set(request.ids) else OK


def names(count: int, prefix: str = "e") -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


@pytest.mark.parametrize(("options", "most"), [({}, 1), ({"ordering": "none", "max_in_flight": 10}, 10)])
def test_all_events_arrive_and_are_committed(options: dict[str, Any], most: int) -> None:
    """In the partition's order, one at a time; without order as many at once as the window has."""
    stage = Stage(**options)
    stage.dispatch(*names(100), seconds=4)
    got = stage.got()
    assert (got if most == 1 else sorted(got, key=names(100).index), stage.most(), stage.commits()) == (
        names(100), most, {0: 100},
    )  # fmt: skip


def test_a_request_carries_the_records_bytes_and_nothing_else() -> None:
    """Attributes as headers, the value as the body."""
    stage = Stage()
    stage.publish("one")
    stage.start()
    (request,) = stage.requests
    assert (request.headers, request.body) == (
        {
            "ce-specversion": "1.0",
            "ce-id": "one",
            "ce-source": "/tests",
            "ce-type": "order",
            "content-type": "text/plain",
        },
        b"data of one",
    )


def test_events_of_different_keys_overtake_each_other_and_those_of_one_do_not() -> None:
    """A slow event holds up its own key; the window bounds how far the others go."""
    stage = Stage(ordering="key", max_in_flight=8)
    stage.seconds = lambda request: 10.0 if request.ids == ("slow",) else 0.02
    keys = ["s", "s", *(f"k{n}" for n in range(20))]
    stage.dispatch("slow", "after", *names(20), keys=keys, seconds=4)
    behind = stage.got()
    stage.run(10)
    assert (behind, stage.got()[7:9], sorted(stage.got()[9:]), stage.commits()) == (
        ["slow", *names(6)], ["after", "e6"], sorted(names(20)[7:]), {0: 22},
    )  # fmt: skip


def test_what_is_not_taken_is_sent_again_after_a_growing_while() -> None:
    """And the partition waits for it."""
    stage = Stage(delivery={**FAST, "retry": 5, "backoffDelay": "1s"})
    answers = [Answer(503), Answer(500), NO_ANSWER]
    stage.behaviour = lambda request: answers.pop(0) if answers else OK
    stage.dispatch("one", "two", seconds=20)
    first, *again, _ = [request.at for request in stage.requests]
    waits = [round(b - a) for a, b in pairwise([first, *again])]
    assert (stage.got(), waits, stage.commits()) == (["one", "one", "one", "one", "two"], [1, 2, 4], {0: 2})


def test_the_subscriber_says_when_to_come_again() -> None:
    """Later than the back-off would."""
    stage = Stage(delivery=FAST)
    answers = [Answer(429, retry_after=7.0)]
    stage.behaviour = lambda request: answers.pop(0) if answers else OK
    stage.dispatch("one", seconds=20)
    first, second = [request.at for request in stage.requests]
    assert 7.0 <= second - first < 7.2


def test_the_subscriber_is_not_let_say_when_to_come_again() -> None:
    """With `retryAfterMax: PT0S` the back-off alone counts."""
    stage = Stage(delivery={**FAST, "retryAfterMax": "PT0S"})
    answers = [Answer(429, retry_after=7.0)]
    stage.behaviour = lambda request: answers.pop(0) if answers else OK
    stage.dispatch("one", seconds=20)
    first, second = [request.at for request in stage.requests]
    assert 0.1 <= second - first < 0.3


@pytest.mark.parametrize(("status", "attempts"), [(500, 3), (400, 1)])
def test_what_is_given_up_goes_to_the_dead_letter_sink_with_the_reason(status: int, attempts: int) -> None:
    """After the last attempt, or at once where it is refused for good; then the partition goes on."""
    stage = Stage(delivery={**FAST, "deadLetterSink": DEAD})
    stage.behaviour = refusing("bad", answer=Answer(status, body=b"no!"))
    stage.dispatch("bad", "good", seconds=5)
    (letter,) = [request for request in stage.requests if request.url == DEAD]
    assert (stage.got(), letter.ids, letter.body, stage.commits()) == (
        [*["bad"] * attempts, "good"], ("bad",), b"data of bad", {0: 2},
    )  # fmt: skip
    told = {name: value for name, value in letter.headers.items() if "knative" in name}
    assert told == {
        "ce-knativeerrordest": SUBSCRIBER, "ce-knativeerrorcode": str(status), "ce-knativeerrordata": "bm8h",
    }  # fmt: skip


def test_while_the_dead_letter_sink_is_down_the_partition_waits_and_says_so() -> None:
    """Nothing is committed that was neither delivered nor dead-lettered."""
    stage = Stage(delivery={**FAST, "deadLetterSink": DEAD})
    down = [True]
    stage.behaviour = lambda r: (Answer(400) if r.url == SUBSCRIBER and r.ids == ("bad",) else
                                 Answer(503) if r.url == DEAD and down else OK)  # fmt: skip
    stage.dispatch("good", "bad", "later", seconds=30)
    before, said = stage.commits(), stage.status()["standing"]
    down.clear()
    stage.run(10)
    assert (before, "orders/0: offset 1: the dead letter sink http://dead/ does not take" in said) == ({0: 1}, True)
    assert (stage.commits(), stage.status()["standing"], stage.got()[-1]) == ({0: 3}, None, "later")


def test_a_dead_letter_sink_that_hangs_is_reported_while_it_hangs() -> None:
    """Nearly all the time an attempt is in flight then: status must not say that all is well."""
    stage = Stage(delivery={**FAST, "deadLetterSink": DEAD})
    hangs = [True]
    stage.behaviour = lambda r: Answer(400) if r.url == SUBSCRIBER else Answer(0, problem="no answer") if hangs else OK
    stage.seconds = lambda r: 2.0 if r.url == DEAD and hangs else 0.02
    stage.dispatch("bad", seconds=5)
    told = set()
    for _ in range(40):
        stage.run(0.25)
        status = stage.status()
        told.add((status["waiting_dead_letters"], "dead letter" in str(status["standing"])))
    hangs.clear()
    stage.run(10)
    status = stage.status()
    assert (told, status["waiting_dead_letters"], status["standing"]) == ({(1, True)}, 0, None)


def test_without_a_dead_letter_sink_an_event_is_tried_until_it_is_taken() -> None:
    """Never longer than 5 s apart; nothing is given up."""
    stage = Stage(delivery=FAST)
    broken = [True]
    stage.behaviour = lambda request: Answer(400) if broken else OK
    stage.dispatch("one", seconds=60)
    before = stage.commits()
    at = [request.at for request in stage.requests]
    broken.clear()
    stage.run(6)
    assert (before, max(b - a for a, b in pairwise(at)) < 5.3, stage.commits()) == (
        {0: 0},
        True,
        {0: 1},
    )


def test_when_the_subscriber_is_back_what_waits_goes_at_once() -> None:
    """Not when the back-off of each event is over; and before that nothing was in a hurry."""
    stage = Stage(partitions=4, delivery={**FAST, "retry": 50, "backoffDelay": "3s", "backoffPolicy": "linear"})
    down = [True]
    stage.behaviour = lambda request: NO_ANSWER if down else OK
    for partition in range(4):
        stage.publish(f"e{partition}", partition=partition)
    stage.start()
    stage.run(1)
    stage.receivers[0].requests.clear()
    stage.run(100)
    tried = len(stage.got())
    down.clear()
    stage.publish("new", partition=0)
    stage.run(5)
    assert (tried <= 4 * 100 / 5, stage.commits()) == (True, {0: 2, 1: 1, 2: 1, 3: 1})


def test_a_record_that_is_no_event_holds_its_partition() -> None:
    """Others go on; status says which record, and what to do."""
    stage = Stage(partitions=2)
    stage.world.kafka.publish("orders", 0, [b"nonsense"])
    stage.publish("after", partition=0)
    stage.publish("other", partition=1)
    stage.start()
    stage.run(5)
    status = stage.status()
    assert (stage.got(), stage.commits(), status["undecodable_total"]) == (["other"], {0: 0, 1: 1}, 1)
    assert "offset 0: the record is no event: no CloudEvent" in status["partitions"]["orders/0"]


def test_records_that_are_no_events_go_to_the_dead_letter_sink() -> None:
    """As the data of an event whose id says where the record stands."""
    stage = Stage(delivery={**FAST, "deadLetterSink": DEAD})
    stage.world.kafka.publish("orders", 0, [b"nonsense"])
    stage.start()
    stage.run(2)
    (letter,) = stage.requests
    assert (letter.url, letter.ids, letter.body, stage.commits()) == (DEAD, ("orders/0/0",), b"nonsense", {0: 1})


def test_a_reply_is_posted_where_the_options_say() -> None:
    """And the event is finished when that is taken."""
    stage = Stage(replyUri=REPLIES)
    reply = Answer(
        200, [(b"ce-specversion", b"1.0"), (b"ce-id", b"r"), (b"ce-source", b"/s"), (b"ce-type", b"t")], b"x"
    )
    answers = [Answer(503), OK]
    stage.behaviour = lambda request: reply if request.url == SUBSCRIBER else answers.pop(0)
    stage.dispatch("one", seconds=5)
    assert (stage.got(), stage.got(REPLIES), stage.commits()) == (["one"], ["r", "r"], {0: 1})


def batches(stage: Stage) -> list[list[str]]:
    return [list(request.ids) for request in stage.requests if request.url == SUBSCRIBER]


def batched(**more: Any) -> Stage:
    return Stage(batch={"max_events": 8, "max_delay": "50ms"}, **more)


@pytest.mark.parametrize("options", [{}, {"batch": {"max_events": 8, "max_delay": "50ms"}}], ids=["single", "batched"])
def test_records_that_are_no_events_can_be_passed_over(options: dict[str, Any]) -> None:
    """They are counted, once; the others go as they would without them."""
    stage = Stage(on_undecodable="skip", **options)
    stage.publish("e0", "e1")
    stage.world.kafka.publish("orders", 0, [b"nonsense"])
    stage.dispatch("e2", "e3", seconds=2)
    status = stage.status()
    assert (stage.got(), stage.commits()) == (names(4), {0: 5})
    assert (status["undecodable_total"], status["skipped_total"]) == (1, 1)


def test_events_go_out_together_where_the_subscriber_asks_for_it() -> None:
    """In the partition's order, so many to a request."""
    stage = batched()
    stage.dispatch(*names(20), seconds=2)
    assert (batches(stage), stage.commits()) == ([names(20)[:8], names(20)[8:16], names(20)[16:]], {0: 20})


def test_a_refused_batch_is_halved_until_the_poison_stands_alone() -> None:
    """It is dead-lettered; no other event is refused, and each is taken once."""
    stage = batched(delivery={**FAST, "deadLetterSink": DEAD})
    stage.behaviour = refusing("e5", answer=Answer(400))
    stage.dispatch(*names(16), seconds=5)
    taken = [one for batch in batches(stage) if "e5" not in batch for one in batch]
    assert (taken, stage.got(DEAD), stage.commits()) == ([n for n in names(16) if n != "e5"], ["e5"], {0: 16})


def test_an_event_behind_a_record_that_is_none_waits_for_its_dead_letter() -> None:
    """They have a key in common; the first event of their batch has another one, and is taken at once."""
    stage = batched(ordering="key", delivery={**FAST, "deadLetterSink": DEAD})
    stage.seconds = lambda request: 3.0 if request.url == DEAD else 0.02
    stage.publish("e0", keys=["a"])
    stage.world.kafka.publish("orders", 0, [b"nonsense"], key=b"k")
    stage.dispatch("e2", keys=["k"], seconds=1)
    before = stage.got()
    stage.run(5)
    assert (before, stage.got(), stage.commits()) == (["e0"], ["e0", "e2"], {0: 3})


@pytest.mark.parametrize("status", [429, 500])
def test_the_halves_of_a_batch_come_no_sooner_than_the_subscriber_has_asked_for(status: int) -> None:
    """Also where its attempts are used up: who is busy would get all of them at once, and each would be given up."""
    stage = batched(delivery={**FAST, "retry": 1, "deadLetterSink": DEAD})
    answers = [Answer(status, retry_after=3.0)] * 2
    stage.behaviour = lambda request: answers.pop() if answers and request.url == SUBSCRIBER else OK
    stage.dispatch(*names(4), seconds=15)
    times = [request.at for request in stage.requests]
    gaps = [round(after - before) for before, after in pairwise(times)]
    assert (batches(stage), gaps, stage.got(DEAD)) == ([names(4)] * 2 + [names(2), names(4)[2:]], [3, 3, 0], [])


def test_a_batch_keeps_the_order_of_each_key_through_a_refusal() -> None:
    """The second half waits for the first."""
    stage = batched(ordering="key", delivery={**FAST, "retry": 9})
    broken = [True]
    stage.behaviour = lambda r: Answer(500) if broken and "e2" in r.ids else OK
    stage.dispatch(*names(12), keys=["k"] * 12, seconds=1)
    broken.clear()
    stage.run(20)
    taken = [one for batch in batches(stage) for one in batch]
    last = {one: n for n, one in enumerate(taken)}
    assert (sorted(last, key=lambda one: last[one]), stage.commits()) == (names(12), {0: 12})


def test_after_a_crash_no_more_is_repeated_than_the_window() -> None:
    """Counted from the commit: what was finished behind an open event is sent again, too."""
    stage = Stage(ordering="none", max_in_flight=16)
    stage.seconds = lambda request: 100.0 if request.ids == ("e40",) else 0.02
    stage.dispatch(*names(200), seconds=3)
    stage.world.kill("a")
    stage.seconds = lambda request: 0.02
    stage.start("b")
    stage.run(30)
    repeated = len(stage.got()) - len(set(stage.got()))
    assert (set(stage.got()), repeated <= 16, stage.commits()) == (set(names(200)), True, {0: 200})


def test_who_leaves_waits_for_what_is_under_way_and_repeats_nothing() -> None:
    """The next one goes on exactly there."""
    stage = Stage(ordering="none", max_in_flight=16)
    stage.seconds = lambda request: 1.0
    stage.publish(*names(60))
    stage.start()
    stage.start("b")
    stage.world.leave("a")
    stage.run(10)
    assert (sorted(stage.got()), stage.commits()) == (sorted(names(60)), {0: 60})


def test_who_leaves_does_not_wait_for_a_subscriber_that_hangs() -> None:
    """Others are to have the partition soon."""
    stage = Stage(delivery={"timeout": "10m"})
    stage.seconds = lambda request: 500.0
    stage.publish("one")
    stage.start()
    began = stage.world.clock.now()
    stage.world.leave("a")
    assert (stage.world.clock.now() - began < 12, stage.commits()) == (True, {0: 0})


def test_a_partition_that_is_lost_is_left_alone() -> None:
    """Answers that come late change nothing."""
    stage = Stage(ordering="none")
    stage.seconds = lambda request: 15.0
    stage.publish(*names(5))
    stage.start()
    stage.world.pause("a")
    stage.start("b")
    stage.run(20)
    stage.world.resume("a")
    stage.run(40)
    assert (stage.commits(), stage.status("a")["open"]) == ({0: 5}, 0)


def test_new_options_count_at_once_and_keep_what_is_open() -> None:
    """Also for an event that waits for another attempt."""
    stage = Stage(delivery=FAST)
    stage.behaviour = to(SUBSCRIBER, Answer(400))
    processor = stage.dispatch("one", "two", seconds=10)
    options = processor.Options.model_validate({"subscriberUri": "http://new/"})
    processor.reconfigure(options, 2, wait=0.0)
    stage.run(2)
    assert (stage.got("http://new/"), stage.commits(), processor.generation) == (["one", "two"], {0: 2}, 2)


def test_another_order_counts_when_what_is_open_is_finished() -> None:
    """No request mixes the two."""
    stage = Stage(ordering="none", max_in_flight=4)
    stage.seconds = lambda request: 1.0
    stage.publish(*names(12))
    processor = stage.start()
    options = processor.Options.model_validate(
        {"subscriberUri": SUBSCRIBER, "max_in_flight": 4, "ordering": "partition"}
    )
    processor.reconfigure(options, wait=0.0)
    stage.receivers[0].requests.clear()
    stage.run(20)
    rest = stage.got()
    assert (rest == sorted(rest, key=lambda one: int(one[1:])), stage.commits()) == (True, {0: 12})


def test_without_a_dead_letter_sink_one_event_that_breaks_connections_does_not_hold_up_its_batch() -> None:
    """When the attempts of the batch are used up, it stands alone soon, and the others are taken."""
    stage = batched(ordering="none", delivery={**FAST, "retry": 2})
    stage.behaviour = refusing("e3", answer=NO_ANSWER)
    stage.dispatch(*names(8), seconds=10)
    taken = {one for batch in batches(stage) if "e3" not in batch for one in batch}
    assert (taken, stage.commits(), "offset 3: " in stage.status()["standing"]) == (
        set(names(8)) - {"e3"},
        {0: 3},
        True,
    )


def test_who_ceases_to_ask_for_batches_gets_none() -> None:
    """Also not one that waits for another attempt."""
    stage = batched(delivery=FAST)
    down = [True]
    stage.behaviour = lambda request: NO_ANSWER if down else OK
    stage.publish(*names(4))
    processor = stage.start()
    down.clear()
    stage.receivers[0].requests.clear()
    processor.reconfigure(processor.Options.model_validate({"subscriberUri": SUBSCRIBER}), wait=0.0)
    stage.run(3)
    assert (batches(stage), stage.commits()) == ([[one] for one in names(4)], {0: 4})


def test_what_was_given_up_before_its_last_commit_takes_no_room_of_the_next_claim() -> None:
    """A reset did not wait for it: no callback ran, so nothing told the processor. What was under way is sent again."""
    stage = Stage(max_in_flight=4)
    stage.start()
    world, consumer = stage.world, stage.world.consumers["a"]
    world.ensemble.tree.refused[world.paths.offset("orders", 0)] = "quota exceeded"
    stage.publish(*names(6))
    stage.run(2)
    (partition,) = consumer.channel.parts.schedule.held()
    claims = consumer.channel.membership.claims
    claims.release(partition)
    stage.run(2)
    place = partition.place
    consumer.channel.parts.schedule.abandon(partition)
    consumer.tasks.spawn(claims.release_abandoned(partition), "release")
    stage.run(5)
    world.ensemble.tree.refused.clear()
    stage.run(70)
    assert (place, stage.commits(), stage.got()) == (Place.SETTLING, {0: 6}, [*names(4), *names(6)])


@pytest.mark.parametrize("at", [1, 2, 6])
def test_an_event_that_could_not_be_sent_is_sent_later(at: int) -> None:
    """A thread that cannot start, say: the event was lost from sight, and the partition stalled for good."""
    stage = Stage()
    stage.start()
    post, count = stage.receivers[0].post, [0]

    def fails_once(*args: Any, **options: Any) -> None:
        count[0] += 1
        if count[0] == at:
            raise RuntimeError("can't start new thread")
        post(*args, **options)

    stage.receivers[0].post = fails_once  # type: ignore[method-assign]
    stage.publish(*(f"e{number}" for number in range(12)))
    stage.run(30)
    assert (stage.got(), stage.commits()) == ([f"e{number}" for number in range(12)], {0: 12})


def test_a_dead_letter_that_headers_cannot_carry_is_wrapped() -> None:
    """A batch in the JSON format can carry it: refused there, it stalled its partition for good."""
    stage = Stage(batch={"max_events": 2}, delivery={"deadLetterSink": {"uri": DEAD}, "retry": 1})
    stage.behaviour = lambda request: Answer(400) if request.url == SUBSCRIBER and "bad" in request.ids else OK
    value = '{"specversion":"1.0","id":"bad","source":"/a","type":"t","datacontenttype":"%s"}' % ("a" * 5000)
    headers = [("content-type", b"application/cloudevents+json")]
    stage.publish("e0")
    stage.world.kafka.publish("orders", 0, [value.encode()], headers=headers)
    stage.publish("e2")
    stage.start()
    stage.run(30)
    assert (stage.got(DEAD), stage.commits()) == (["orders/0/1"], {0: 3})


def test_a_processor_that_is_closed_sends_nothing_any_more() -> None:
    """Its channel was given up without a word to it; the loop goes on, for others."""
    stage = Stage(ordering="none")
    stage.behaviour = lambda request: Answer(503)
    processor = stage.dispatch(*names(5), seconds=3)
    before = len(stage.requests)
    processor._loop.run_until_complete(processor.close())
    stage.run(30)
    assert before == len(stage.requests) > 5

"""Order and concurrency: what is under way at once, and what comes in which order, by what the subscriber saw."""

from __future__ import annotations

import time
from collections.abc import Callable

from integration.dispatching import Dispatching, by_partition, offset_of, partition_of, repeats
from integration.sink import OK, Answer, Request, Sink, status
from tests.waiting import until

MakeScene = Callable[..., Dispatching]

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 100, "timeout": "PT100S"}
#: How long is waited for a request more than there may be. Seconds.
A_WHILE = 0.5


def partition(request: Request) -> int:
    """Return the partition of a request's event."""
    return partition_of(request.ids[0])


def in_order(offsets: list[int]) -> bool:
    """Whether each is larger than the one before."""
    return offsets == sorted(set(offsets))


def test_by_partition_one_event_is_under_way_at_a_time_and_partitions_do_not_wait_for_each_other(
    dispatching: MakeScene, sink: Sink
) -> None:
    """Also where every seventh is refused at first."""
    s = dispatching(partitions=4)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="partition")
    sink.tell(Answer(after=0.01))
    sink.tell(status(503), OK, each=True, where=lambda request: offset_of(request.ids[0]) % 7 == 3)
    s.send(60)
    s.run()
    s.drained()
    order = by_partition(sink.taken())
    assert order == {p: list(range(60)) for p in range(4)}
    assert sink.most_at_once(partition) == dict.fromkeys(range(4), 1)
    assert sink.most_at_once(lambda request: "all")["all"] > 1


def test_by_key_a_hanging_event_is_overtaken_by_other_keys_within_the_window_only(
    dispatching: MakeScene, sink: Sink
) -> None:
    """Its own key waits for it; the others go on up to `max_in_flight`, and further when it is done."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="key", max_in_flight=16)
    sink.tell(Answer(status=503, held="first"), OK, event="0-0")
    s.send(200, key=lambda n: f"k{n % 4}")
    s.run()
    until(lambda: len(sink.taken()) >= 12, 30, "three of four keys go on within the window")
    time.sleep(A_WHILE)
    within = [offset_of(id) for id in sink.taken()]
    committed = s.committed()
    sink.let_go("first")
    s.drained()
    assert (sorted(within), committed) == ([n for n in range(16) if n % 4], {0: 0})
    keys: dict[int, list[int]] = {}
    for id in sink.taken():
        keys.setdefault(offset_of(id) % 4, []).append(offset_of(id))
    assert keys == {k: list(range(k, 200, 4)) for k in range(4)}
    assert max(sink.most_at_once(lambda request: offset_of(request.ids[0]) % 4).values()) == 1


def test_by_key_failing_events_keep_their_order_and_slow_keys_cost_the_others_nothing(
    dispatching: MakeScene, sink: Sink
) -> None:
    """One key gets no answer, one fails at first each time; the rest is through before the first goes on."""
    s = dispatching(partitions=2)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="key", max_in_flight=400)
    sink.tell(Answer(held="slow"), where=lambda request: offset_of(request.ids[0]) % 20 == 0)
    sink.tell(status(503), OK, each=True, where=lambda request: offset_of(request.ids[0]) % 20 == 1)
    s.send(400, key=lambda n: f"k{n % 20}")
    (process,) = s.run()
    quick = {id for id in s.events if offset_of(id) % 20}
    until(
        lambda: set(sink.taken()) >= quick, 60, lambda: f"others wait for the slow key: {len(sink.taken())} are through"
    )
    assert set(sink.taken()) == quick
    sink.let_go("slow")
    s.drained()
    keys: dict[tuple[int, int], list[int]] = {}
    for id in sink.taken():
        keys.setdefault((partition_of(id), offset_of(id) % 20), []).append(offset_of(id))
    assert keys == {(p, k): list(range(k, 400, 20)) for p in range(2) for k in range(20)}
    at_once = sink.most_at_once(lambda request: (partition(request), offset_of(request.ids[0]) % 20))
    assert set(at_once.values()) == {1}
    assert len(s.log(process).splitlines()) < 20, "a line for each refusal"


def test_without_order_events_overtake_each_other_within_the_window(dispatching: MakeScene, sink: Sink) -> None:
    """Even of one key; never more than `max_in_flight` at once, and the commit stays before what is not done."""
    s = dispatching()
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="none", max_in_flight=8)
    sink.tell(Answer(held="all"))
    sink.tell(Answer(status=503, held="sixth"), OK, event="0-5")
    s.send(100, key=lambda n: "one")
    s.run()
    until(lambda: len(sink.requests) >= 8, 30, "as many as may be are under way")
    time.sleep(A_WHILE)
    sink.let_go("all")
    until(lambda: len(sink.taken()) >= 12, 30, "seven go on beyond the hanging one, which is the sixth")
    time.sleep(A_WHILE)
    before = (s.committed()[0] <= 5, [offset_of(id) for id in sink.taken()])
    sink.let_go("sixth")
    s.drained()
    assert before[0]
    assert sorted(before[1]) == [n for n in range(13) if n != 5]
    assert (s.lost(sink.taken()), repeats(sink.taken())) == (set(), {})
    assert sink.most_at_once(partition) == {0: 8}


def test_one_slow_partition_does_not_hold_up_the_others(dispatching: MakeScene, sink: Sink) -> None:
    """Seven partitions are through while the eighth is at its first event."""
    s = dispatching(partitions=8)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="partition")
    sink.tell(Answer(held="slow"), where=lambda request: partition(request) == 3)
    others = s.send(200, partitions=[p for p in range(8) if p != 3])
    s.send(3, partitions=[3])
    s.run()
    until(lambda: len(sink.taken()) == len(others), 60, lambda: f"others wait for it: {len(sink.taken())} are through")
    until(lambda: "3-0" in sink.attempts(), 60, "its first event is sent, too: it may have been claimed last, and late")
    assert ([request.ids for request in sink.sent() if partition(request) == 3], s.committed()[3]) == ([["3-0"]], 0)
    sink.let_go("slow")
    s.drained()
    assert all(in_order(offsets) for offsets in by_partition(sink.taken()).values())

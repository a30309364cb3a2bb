"""Order and concurrency: what is under way at once, and what comes in which order, by what the subscriber saw."""

from __future__ import annotations

import pytest

from integration.processors.dispatch.dispatching import MakeScene, by_partition, offset_of, partition_of, repeats
from integration.processors.sink import OK, Answer, Request, Sink, status
from tests.waiting import until

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 100, "timeout": "PT100S"}


def partition(request: Request) -> int:
    """Return the partition of a request's event."""
    return partition_of(request.ids[0])


def test_by_partition_one_event_is_under_way_at_a_time_and_partitions_do_not_wait_for_each_other(
    dispatching: MakeScene, sink: Sink
) -> None:
    """Three partitions are through, every seventh event refused at first, while the fourth is at its first event."""
    s = dispatching(partitions=4)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="partition")
    sink.tell(Answer(after=0.01))
    sink.tell(status(503), OK, each=True, where=lambda request: offset_of(request.ids[0]) % 7 == 3)
    sink.tell(Answer(held="slow"), where=lambda request: partition(request) == 3)
    others = s.send(60, partitions=[0, 1, 2])
    s.send(3, partitions=[3])
    (process,) = s.run()
    until(lambda: len(sink.taken()) == len(others), 60, lambda: f"others wait for it: {len(sink.taken())} are through")
    until(lambda: "3-0" in sink.attempts(), 60, "its first event is sent, too: it may have been claimed last, and late")
    assert ([request.ids for request in sink.sent() if partition(request) == 3], s.committed()[3]) == ([["3-0"]], 0)
    sink.let_go("slow")
    s.drained()
    assert by_partition(sink.taken()) == {**{p: list(range(60)) for p in range(3)}, 3: [0, 1, 2]}
    assert sink.most_at_once(partition) == dict.fromkeys(range(4), 1)
    assert sink.most_at_once(lambda request: "all")["all"] > 1
    assert len(s.log(process).splitlines()) < 20, "a line for each refusal"


def test_by_key_an_event_is_overtaken_by_other_keys_within_the_window_only(dispatching: MakeScene, sink: Sink) -> None:
    """Its own key waits for it; the others go on up to `max_in_flight`, and further when it is done."""
    s = dispatching(partitions=2)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="key", max_in_flight=16)
    sink.tell(status(503), OK, each=True, where=lambda request: offset_of(request.ids[0]) % 4 == 1)
    sink.tell(Answer(status=503, held="first"), OK, event="0-0")
    s.send(200, key=lambda n: f"k{n % 4}")
    s.run()
    until(lambda: len(by_partition(sink.taken()).get(0, [])) >= 12, 60, "three of four keys go on within the window")
    # Who would go beyond the window had the time that all of the other partition took.
    until(lambda: s.committed() == {0: 0, 1: 200}, 60, lambda: f"the other partition is through: {s.committed()}")
    within = by_partition(sink.taken())[0]
    sink.let_go("first")
    s.drained()
    assert sorted(within) == [n for n in range(16) if n % 4]
    keys: dict[tuple[int, int], list[int]] = {}
    for id in sink.taken():
        keys.setdefault((partition_of(id), offset_of(id) % 4), []).append(offset_of(id))
    assert keys == {(p, k): list(range(k, 200, 4)) for p in range(2) for k in range(4)}
    assert max(sink.most_at_once(lambda one: (partition(one), offset_of(one.ids[0]) % 4)).values()) == 1


@pytest.mark.thorough(
    "the fast tests of the dispatcher and of its window decide it; order by key and by partition are in `make test`"
)
def test_without_order_events_overtake_each_other_within_the_window(dispatching: MakeScene, sink: Sink) -> None:
    """Even of one key; never more than `max_in_flight` at once, and the commit stays before what is not done."""
    s = dispatching(partitions=2)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="none", max_in_flight=8)
    sink.tell(Answer(held="all"), where=lambda request: partition(request) == 0)
    sink.tell(Answer(status=503, held="sixth"), OK, event="0-5")
    s.send(100, key=lambda n: "one")
    s.run()
    until(lambda: sum(partition(one) == 0 for one in sink.sent()) >= 8, 60, "as many as may be are under way")
    # Who would go beyond the window had the time that all of the other partition took.
    until(lambda: s.committed() == {0: 0, 1: 100}, 60, lambda: f"the other partition is through: {s.committed()}")
    sink.let_go("all")
    until(
        lambda: len(by_partition(sink.taken()).get(0, [])) >= 12,
        60,
        "seven go on beyond the hanging one, which is the sixth",
    )
    s.send(100, partitions=[1])
    until(lambda: s.committed()[1] == 200, 60, lambda: f"the other partition is through: {s.committed()}")
    before = (s.committed()[0] <= 5, sorted(by_partition(sink.taken())[0]))
    sink.let_go("sixth")
    s.drained()
    assert before == (True, [n for n in range(13) if n != 5])
    assert (s.lost(sink.taken()), repeats(sink.taken())) == (set(), {})
    assert sink.most_at_once(partition)[0] == 8

"""Replicas of the dispatcher that are killed, stopped and joined while they dispatch, by what the subscriber was sent."""

from __future__ import annotations

from collections import Counter

import pytest

from integration.processors.dispatch.dispatching import MakeScene, by_partition, offset_of, partition_of, repeats
from integration.processors.sink import HANG, Answer, Sink
from tests.waiting import Deadline, until

FAST = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 100, "timeout": "PT100S"}
WINDOW = 16


@pytest.mark.parametrize(
    ("client", "ordering"),
    [
        ("kafka-python", "key"),
        pytest.param("confluent-kafka", "partition", marks=pytest.mark.thorough("the same by key is in `make test`")),
    ],
)
def test_a_replica_that_is_killed_loses_nothing_and_repeats_at_most_its_window(
    dispatching: MakeScene, sink: Sink, ordering: str
) -> None:
    """SIGKILL while requests are in flight: every published id arrives; the order of repeated events is kept."""
    s = dispatching(partitions=4, session=8.0)  # if the other lost its own, too, that would repeat a window more
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering=ordering, max_in_flight=WINDOW)
    sink.tell(Answer(after=0.005))
    victim, other = s.run(2)
    s.start_load(100)
    until(lambda: len(sink.requests) > 500, 60, lambda: f"it dispatches: {s.log(victim)[-1500:]}")
    victim.kill()
    victim.wait()
    until(lambda: s.owned_by([other]), 60, "the other has taken over")
    s.drained(seconds=120)  # what came in the session of the dead one, one event after the other
    again = Counter(partition_of(id) for id, more in repeats(sink.taken()).items() for _ in range(more))
    assert (s.lost(sink.taken()), {p: n for p, n in again.items() if n > WINDOW}) == (set(), {}), again
    first_times = by_partition(list(dict.fromkeys(sink.taken())))
    if ordering == "partition":
        assert {p: offsets == sorted(offsets) for p, offsets in first_times.items()} == dict.fromkeys(range(4), True)
    keys: dict[tuple[int, int], list[int]] = {}
    for p, offsets in first_times.items():
        for offset in offsets:
            keys.setdefault((p, offset % 5), []).append(offset)
    assert {key: offsets == sorted(offsets) for key, offsets in keys.items()} == dict.fromkeys(keys, True)
    assert s.stop(other) == 0


@pytest.mark.thorough(
    "a consumer that stops or joins has its own tests in `make test`; the dispatcher's fast tests have one that leaves"
)
def test_replicas_that_join_and_leave_under_load_repeat_nothing(dispatching: MakeScene, sink: Sink) -> None:
    """SIGTERM and a rebalance while requests are under way: each event is sent once, in order."""
    s = dispatching(partitions=4)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="key", max_in_flight=WINDOW)
    sink.tell(Answer(after=0.02))
    (first,) = s.run()
    s.start_load(50)
    until(lambda: len(sink.requests) > 100, 60, "it dispatches")
    second = s.start()
    until(lambda: s.owned_by([first, second]), 60, "the joiner has its share")
    sent = len(sink.requests)
    until(lambda: len(sink.requests) > sent + 100, 60, "both dispatch")
    assert s.stop(first) == 0
    until(lambda: s.owned_by([second]), 60, "the other owns all")
    s.drained()
    assert (s.lost(sink.taken()), sink.attempts() - Counter(list(s.events))) == (set(), Counter())
    assert (s.stop(second), "abandoned" in s.log(first) + s.log(second)) == (0, False)


@pytest.mark.thorough(
    "the fast tests of the dispatcher decide it on a clock of their own: a stop waits 5 s for requests"
)
def test_a_joiner_and_a_stop_are_prompt_although_the_subscriber_hangs(dispatching: MakeScene, sink: Sink) -> None:
    """Nothing that was not answered is committed, and only that is sent again: a few seconds, of a timeout of 100."""
    s = dispatching(partitions=4)
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=FAST, ordering="none", max_in_flight=WINDOW)
    sink.tell(HANG, where=lambda request: offset_of(request.ids[0]) >= 4)
    s.send(8)
    (first,) = s.run()
    until(
        lambda: (len(sink.requests), len(sink.taken())) == (32, 16),
        60,
        lambda: f"half are answered, and all others under way: {len(sink.taken())} of {len(sink.requests)}",
    )
    second = s.start()
    members = f"/consumers/{s.group}/ids"
    until(lambda: len(s.zk.get_children(members)) == 2, 60, "it has joined")
    until(lambda: s.owned_by([first, second]), 12, "the joiner has its share")
    until(lambda: len(sink.requests) == 40, 60, "the joiner is hanging, too, in what was not answered of its share")
    # Each 5 s for its requests; the rest is for a slow disk, which the release waits for.
    time = Deadline(24)
    codes = [s.stop(first), s.stop(second)]
    assert (codes, time.passed(), s.committed()) == ([0, 0], False, dict.fromkeys(range(4), 4)), s.log(first)[-2000:]
    assert ("abandoned" in s.log(first), s.owners()) == (False, {}), s.log(first)
    sink.forget()
    s.run()
    s.drained()
    assert (sorted(sink.taken()), max(sink.attempts().values())) == (sorted(s.events), 3)

"""Limits of a subscription hold over all partitions that a process owns, by what the subscriber saw."""

from __future__ import annotations

from integration.processors.dispatch.dispatching import MakeScene, by_partition, partition_of
from integration.processors.sink import Answer, Sink


def test_limits_hold_over_two_partitions_and_starve_neither(dispatching: MakeScene, sink: Sink) -> None:
    """Three requests at a time and 40 a second, of which each partition has its half."""
    s = dispatching(partitions=2)
    limits = {"in_flight": 3, "rate": "40/s"}
    s.subscribe(subscriberUri=f"{sink.url}/", ordering="none", limits=limits)
    sink.tell(Answer(after=0.02))
    s.send(100)
    s.run()
    s.drained()
    requests = sorted(sink.sent(), key=lambda request: request.began)
    seconds = requests[-1].began - requests[0].began
    most = sink.most_at_once(lambda request: "all")["all"]
    both = requests[20:180]  # while each of them has something
    shares = {p: len(found) for p, found in by_partition([request.ids[0] for request in both]).items()}
    # As they arrive, not as they are sent: the first one needs a connection.
    assert (len(requests), most <= 3, seconds >= (200 - 4) / 40 - 0.1) == (200, True, True), (most, seconds)
    assert min(shares.values()) >= 60, shares
    assert {partition_of(request.ids[0]) for request in both} == {0, 1}

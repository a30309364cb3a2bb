"""A subscriber that is down, under load."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

from integration.heartbeat import Heartbeat
from integration.processors.dispatch.dispatching import (
    Dispatching,
    channel_status,
    cpu_seconds,
    peak_memory,
    repeats,
    reset_peak,
)
from integration.processors.sink import Sink
from tests.waiting import patient, slowness, until

#: Seconds.
OUTAGE = 10.0
#: Events of 100 KiB: several times what may wait in memory.
LARGE, LARGE_EVENTS = b"x" * 100 * 1024, 500
#: Events of a partition that are open: with as many as are by default, those of both subscriptions are half the bound.
WINDOW = 16


def test_a_subscriber_that_is_down_holds_its_own_channel_and_is_served_when_it_is_back(
    dispatching: Callable[..., Dispatching], sink: Sink
) -> None:
    """No busy loop, no growing memory, the other subscription untouched; each event arrives, and once only."""
    with closing(Sink()) as other, Heartbeat() as heart:
        s = dispatching(partitions=4, reader={"prefetch_bytes": "8MiB"})
        delivery = {"retry": 1000, "backoffPolicy": "linear", "backoffDelay": "PT0.1S", "timeout": "PT30S"}
        how: dict[str, Any] = {"delivery": delivery, "ordering": "key", "max_in_flight": WINDOW}
        s.subscribe(subscriberUri=f"{sink.url}/", **how)
        s.subscribe("others", subscriberUri=f"{other.url}/", **how)
        (process,) = s.run()
        s.send(5)
        s.drained()
        s.drained("others")
        sink.down()
        before = reset_peak(process)
        s.send(LARGE_EVENTS // 4, data=LARGE)
        s.drained("others")
        held = s.committed()
        s.start_load(20)
        began, cpu = time.monotonic(), cpu_seconds(process)
        until(lambda: time.monotonic() - began >= OUTAGE, OUTAGE + 60, "the outage is over")
        cores = (cpu_seconds(process) - cpu) / (time.monotonic() - began)
        published, looked = set(s.events), time.monotonic()
        until(lambda: published <= set(other.taken()), 60, "the other subscription gets what was published by then")
        behind = time.monotonic() - looked - heart.lost(looked)
        said = channel_status(s, process)
        grown = peak_memory(process) - before
        print(f"{cores:.3f} cores, the other subscription {behind:.2f} s behind, {grown:.0f} MiB more")
        assert (s.committed(), held) == (held, dict.fromkeys(range(4), 5)), "what was not delivered counts as done"
        sink.up()
        s.drained()
        s.drained("others")
    assert cores < 0.2 * slowness()[0], (
        f"{cores:.2f} cores to wait for a subscriber, with 80 events per second for another one"
    )
    assert grown < 100, f"{grown:.0f} MiB more, of a backlog of {len(LARGE) * LARGE_EVENTS >> 20} MiB"
    assert behind < patient(1.0), f"the other subscription is {behind:.2f} s behind"
    assert "refused" in str(said).lower() or "connect" in str(said).lower(), said
    assert [(s.lost(x.taken()), repeats(x.taken())) for x in (sink, other)] == [(set(), {})] * 2
    assert Counter(x.connection for x in other.sent()).most_common(1)[0][1] > 10, "connections are used again"

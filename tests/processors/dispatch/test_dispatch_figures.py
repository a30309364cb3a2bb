"""What a dispatcher measures: how long requests take, and how old an event is when its subscriber has it."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.processors.batch import PlainRecord
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.processors.dispatch.transport import Answer
from inbound.processors.dispatch.window import OpenEvent
from tests.processors.dispatch.dispatch_stage import OK, Stage, event_headers

NOW = 1_700_000_000.0


def entries(*timestamps: int) -> list[OpenEvent]:
    return [OpenEvent(PlainRecord(0, at, None, b"", []), None) for at in timestamps]


def seen(status: dict[str, Any], name: str) -> tuple[int, Any]:
    """Return how many values a histogram of the status has, and their sum."""
    return sum(status[name]["counts"]), status[name]["sum"]


def test_each_event_of_a_request_counts_by_its_own_record() -> None:
    """One without a timestamp is delivered and has no age; one from a clock that is ahead is as new as can be."""
    counters = DispatchCounters(wall=lambda: NOW)

    counters.took(entries(round(1000 * NOW) - 1500, round(1000 * NOW) - 500, -1, round(1000 * NOW) + 9000))

    status = counters.as_dict()
    assert status["delivered_total"] == 4
    assert seen(status, "event_seconds") == (3, pytest.approx(2.0))


@pytest.mark.parametrize("batch", [None, {"max_events": 10}])
def test_retries_and_what_the_channel_was_behind_are_in_an_events_time(batch: dict[str, Any] | None) -> None:
    """A request has the time of its answer alone. The second one is taken."""
    stage = Stage(delivery={"retry": 3, "backoffDelay": "200ms"}, batch=batch)
    answers = [Answer(503)]
    stage.behaviour = lambda request: answers.pop() if answers else OK
    stage.seconds = lambda request: 0.05
    began, written = stage.world.clock.now(), stage.world.clock.wall() - 10
    stage.world.kafka.publish("orders", 0, [b"x"], headers=event_headers("a"), timestamp=round(1000 * written))
    stage.start()
    stage.run(2)

    status = stage.status()

    assert seen(status, "request_seconds") == (2, pytest.approx(0.1, abs=0.02))
    count, age = seen(status, "event_seconds")
    assert (count, status["retries_total"]) == (1, 1)
    assert age == pytest.approx(10 + stage.requests[-1].at - began + 0.05, abs=0.02)

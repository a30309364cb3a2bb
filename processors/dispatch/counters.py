"""The counters of a dispatcher for status and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

from inbound.processors.batch import Record
from inbound.processors.dispatch.window import OpenEvent
from inbound.runtime.instruments import LONG_SECONDS, Histogram, Kinds

#: The most statuses of answers that are counted apart; a subscriber may answer with any number.
STATUSES = 40


@dataclass
class DispatchCounters:
    """Totals since the start, written by the loop's thread, read by any."""

    delivered: int = 0  # events that the subscriber took
    dead_lettered: int = 0  # events that the dead letter sink took
    delayed: int = 0  # events that a retry topic took
    passed_over: int = 0  # records in a retry topic for another subscription
    filtered: int = 0  # events that the subscription's filters left out
    skipped: int = 0  # records skipped because they are no events
    undecodable: int = 0  # records that are no events
    replied: int = 0  # events in answers that the reply's receiver took
    retries: int = 0  # requests that were sent again
    dead_letter_failures: int = 0  # failed attempts to send a dead letter
    headers_left_out: int = 0  # headers that could not be passed on: too many, too large, no HTTP
    #: Requests to the subscriber by the answer's status; 0: no whole answer.
    answers: Kinds = field(default_factory=lambda: Kinds(most=STATUSES))
    #: From a request to the subscriber until its answer.
    request_seconds: Histogram = field(default_factory=Histogram)
    #: From the timestamp of an event's (first) record until the subscriber took the event.
    event_seconds: Histogram = field(default_factory=lambda: Histogram(LONG_SECONDS))
    wall: Callable[[], float] = time.time  # Unix time

    def took(self, entries: Sequence[OpenEvent], written_at: Callable[[Record], int] = attrgetter("timestamp")) -> None:
        """Count the events of a request that the subscriber took.

        `written_at` returns when an event was written, Unix time in milliseconds; below 0: unknown. Takes a microsecond, and 0.2
        for each further event.
        """
        self.delivered += len(entries)
        now = self.wall()
        self.event_seconds.observe_all(
            [max(0.0, now - at / 1000) for entry in entries if (at := written_at(entry.record)) >= 0]
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the counters as JSON."""
        return {
            "delivered_total": self.delivered,
            "dead_lettered_total": self.dead_lettered,
            "delayed_total": self.delayed,
            "passed_over_total": self.passed_over,
            "filtered_total": self.filtered,
            "skipped_total": self.skipped,
            "undecodable_total": self.undecodable,
            "replied_total": self.replied,
            "retries_total": self.retries,
            "dead_letter_failures_total": self.dead_letter_failures,
            "headers_left_out_total": self.headers_left_out,
            "answers": dict(sorted(self.answers.counts().items())),
            "request_seconds": asdict(self.request_seconds.status()),
            "event_seconds": asdict(self.event_seconds.status()),
        }


def standing(problems: Mapping[str, str]) -> str | None:
    """Return one line for all stalled partitions; None if there is none."""
    if not problems:
        return None
    where, why = next(iter(sorted(problems.items())))
    return f"{where}: {why}" if len(problems) == 1 else f"{where}: {why} (and {len(problems) - 1} more partitions)"

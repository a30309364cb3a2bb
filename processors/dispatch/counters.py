"""What a dispatcher counts, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from inbound.instruments import Histogram, Kinds

#: How many different statuses of answers are told apart; a subscriber may answer with any number.
STATUSES = 40


@dataclass
class Counters:
    """Totals since the start. Written by the event loop's thread, read by any."""

    delivered: int = 0  # events that the subscriber took
    dead_lettered: int = 0  # events that the dead letter sink took
    skipped: int = 0  # records passed over because they are no events
    undecodable: int = 0  # records that are no events, whatever became of them
    replied: int = 0  # events in answers that the reply's receiver took
    retries: int = 0  # requests that were sent again
    dead_letter_failures: int = 0  # dead letters that their sink did not take at a try
    #: Requests to the subscriber by the answer's status; 0 where there was no whole answer.
    answers: Kinds = field(default_factory=lambda: Kinds(most=STATUSES))
    #: From a request to the subscriber until its answer.
    request_seconds: Histogram = field(default_factory=Histogram)

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON takes them."""
        return {
            "delivered_total": self.delivered,
            "dead_lettered_total": self.dead_lettered,
            "skipped_total": self.skipped,
            "undecodable_total": self.undecodable,
            "replied_total": self.replied,
            "retries_total": self.retries,
            "dead_letter_failures_total": self.dead_letter_failures,
            "answers": dict(sorted(self.answers.counts().items())),
            "request_seconds": asdict(self.request_seconds.status()),
        }


def standing(problems: Mapping[str, str]) -> str | None:
    """Return one line for all partitions that stand still; None if none does."""
    if not problems:
        return None
    where, why = next(iter(sorted(problems.items())))
    return f"{where}: {why}" if len(problems) == 1 else f"{where}: {why} (and {len(problems) - 1} more partitions)"

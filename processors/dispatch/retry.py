"""When to send again, and after how long. Pure."""

from __future__ import annotations

from enum import Enum

from inbound.processors.dispatch.options import DeliverySpec
from inbound.processors.dispatch.transport import Answer

#: What may be otherwise next time, besides 5xx and what is no answer at all; Knative's list, with 425.
PASSING = frozenset({404, 408, 409, 425, 429})
#: Of these a single event of a request is not the cause: the subscriber is busy, or somebody before it is.
BUSY = frozenset({404, 408, 425, 429, 502, 503, 504})
#: No wait is longer, whatever the policy; and where there is no end to it, none is longer than the second. Seconds.
LONGEST_WAIT, LONGEST_ENDLESS_WAIT = 60.0, 5.0
#: A subscriber can ask for no more than that, where `retryAfterMax` is not given. Seconds.
LONGEST_RETRY_AFTER = 300.0
#: Whose Retry-After counts where `retryAfterMax` is given; Knative's list.
BOUNDED = frozenset({429, 503})


class Verdict(Enum):
    """What an answer means for the events of a request."""

    TAKEN = "taken"
    AGAIN = "again"  # the same another time
    PARTS = "parts"  # another time, in halves: one of the events may be the cause
    REFUSED = "refused"  # never as it is


def judge(answer: Answer, events: int) -> Verdict:
    """Return what `answer` means for a request of so many events."""
    status = answer.status
    if 200 <= status < 300 and answer.problem is None:
        return Verdict.TAKEN
    if answer.problem is not None or status in BUSY:
        return Verdict.AGAIN
    if status >= 500 or status in PASSING:
        return Verdict.AGAIN if events == 1 else Verdict.PARTS
    return Verdict.REFUSED if events == 1 else Verdict.PARTS


def is_refusal(answer: Answer) -> bool:
    """Whether sending the same again is of no use."""
    return answer.problem is None and answer.status < 500 and answer.status not in PASSING


def wait_before(attempt: int, spec: DeliverySpec, answer: Answer, *, endless: bool) -> float:
    """Return the seconds before an event is sent again after `attempt` failures (1 or more).

    Linear is `backoffDelay` times the number of failures, exponential doubles it with each; what the receiver asks for in
    its last `answer` counts if it is longer. `endless`: there is no last attempt, so it should not grow far.
    """
    factor = attempt if spec.backoffPolicy == "linear" else 2 ** min(attempt - 1, 30)
    wait = min(spec.backoffDelay * factor, max(LONGEST_ENDLESS_WAIT if endless else LONGEST_WAIT, spec.backoffDelay))
    return max(wait, asked_for(answer, spec))


def asked_for(answer: Answer, spec: DeliverySpec) -> float:
    """Return the seconds that are waited because the receiver has asked for them."""
    longest = spec.retryAfterMax
    if longest is None:
        longest = LONGEST_RETRY_AFTER
    elif answer.status not in BOUNDED:
        return 0.0
    return min(answer.retry_after or 0.0, longest)

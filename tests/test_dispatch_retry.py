"""What an answer means, and how long to wait: tables."""

from __future__ import annotations

import pytest

from inbound.processors.dispatch.options import DeliverySpec
from inbound.processors.dispatch.retry import Verdict, is_refusal, judge, wait_before
from inbound.processors.dispatch.transport import Answer

TAKEN, AGAIN, PARTS, REFUSED = Verdict.TAKEN, Verdict.AGAIN, Verdict.PARTS, Verdict.REFUSED


@pytest.mark.parametrize(
    ("statuses", "alone", "together", "final"),
    [
        ((200, 202, 204, 299), TAKEN, TAKEN, None),
        ((404, 408, 425, 429, 502, 503, 504), AGAIN, AGAIN, False),
        ((409, 500, 501, 507, 599), AGAIN, PARTS, False),
        ((301, 302, 307, 308, 400, 401, 403, 405, 410, 413, 415, 422, 451), REFUSED, PARTS, True),
    ],
)
def test_what_a_status_means(statuses: tuple[int, ...], alone: Verdict, together: Verdict, final: bool | None) -> None:
    """For one event, and for a batch."""
    answers = [Answer(status) for status in statuses]
    assert ({judge(a, 1) for a in answers}, {judge(a, 9) for a in answers}) == ({alone}, {together})
    assert final is None or {is_refusal(a) for a in answers} == {final}


def test_no_whole_answer_is_no_answer() -> None:
    """Whatever its status said."""
    answer = Answer(202, problem="the connection broke")
    assert (judge(answer, 1), judge(answer, 9), is_refusal(answer)) == (AGAIN, AGAIN, False)


@pytest.mark.parametrize(
    ("policy", "endless", "retry_after", "waits"),
    [
        ("linear", False, None, [1, 2, 3, 4, 60]),
        ("exponential", False, None, [1, 2, 4, 8, 60]),
        ("exponential", True, None, [1, 2, 4, 5, 5]),
        ("linear", False, 2.5, [2.5, 2.5, 3, 4, 60]),
        ("linear", False, 10_000.0, [300] * 5),
    ],
)
def test_how_long_to_wait(policy: str, endless: bool, retry_after: float | None, waits: list[float]) -> None:
    """After 1, 2, 3, 4 and 1,000 failures, with a delay of one second."""
    spec = DeliverySpec.model_validate({"backoffPolicy": policy, "backoffDelay": "PT1S"})
    assert [wait_before(n, spec, retry_after, endless=endless) for n in (1, 2, 3, 4, 1000)] == waits


def test_a_long_delay_is_not_cut_short() -> None:
    """Who asks for five minutes gets them."""
    spec = DeliverySpec.model_validate({"backoffDelay": "PT5M"})
    assert wait_before(1, spec, None, endless=True) == 300

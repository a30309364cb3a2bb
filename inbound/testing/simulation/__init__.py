"""Whole groups of consumers under seeded faults, on a fake clock, judged at every step.

    from inbound.testing.simulation import check

    def test_my_processor_survives_everything() -> None:
        check(MyProcessor, seeds=range(200))

A seed that fails is cut down to a short story, and printed with the plan that plays it again. What is judged, and what
is simulated, stands in `judge.py` and `faults.py`.
"""

from inbound.testing.simulation.campaign import Report, campaign, check, story
from inbound.testing.simulation.plan import (
    BESIDE_RESETS,
    EVERYTHING,
    GENTLE,
    MOVING,
    PLANS,
    RESETS,
    ROUGH,
    Action,
    Dispatch,
    Plan,
    Setup,
    make_plan,
    make_reset_plan,
    plan_of,
)
from inbound.testing.simulation.run import Outcome, play
from inbound.testing.simulation.shrink import shrink

__all__ = [
    "BESIDE_RESETS", "EVERYTHING", "GENTLE", "MOVING", "PLANS", "RESETS", "ROUGH",
    "Action", "Dispatch", "Outcome", "Plan", "Report", "Setup",
    "campaign", "check", "make_plan", "make_reset_plan", "plan_of", "play", "shrink", "story",
]  # fmt: skip

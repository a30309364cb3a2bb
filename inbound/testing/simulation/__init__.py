"""Whole groups of consumers run under seeded faults, judged at every step.

    from inbound.testing.simulation import check

    def test_my_processor_survives_everything() -> None:
        check(MyProcessor, seeds=range(200))

A seed that fails is cut down to a short story, and printed with the plan that plays it again.

Begin with `run.py`: it carries out a plan (`plan.py`, drawn by `seeded_plans.py`) on a stage (`stage.py`), with the faults of
`faults.py`. `scheduler.py` draws the order of all events. `judge.py` and the other judges know the nodes, the logs and the
deliveries, and not how the product works inside. An observer of your own is a `Witness` (`witness.py`).
"""

from inbound.testing.simulation.campaign import Report, campaign, check, shrink, story
from inbound.testing.simulation.plan import (
    BESIDE_RESETS,
    EVERYTHING,
    GENTLE,
    MOVING,
    RESETS,
    ROUGH,
    Action,
    Dispatch,
    Plan,
    Setup,
)
from inbound.testing.simulation.run import Outcome, play
from inbound.testing.simulation.seeded_plans import PLANS, make_plan, make_reset_plan, plan_of

__all__ = [
    "BESIDE_RESETS", "EVERYTHING", "GENTLE", "MOVING", "PLANS", "RESETS", "ROUGH",
    "Action", "Dispatch", "Outcome", "Plan", "Report", "Setup",
    "campaign", "check", "make_plan", "make_reset_plan", "plan_of", "play", "shrink", "story",
]  # fmt: skip

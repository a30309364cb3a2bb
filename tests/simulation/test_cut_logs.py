"""Logs that are cut and grow again, under the storms of the simulator: what is published is read, or the partition is held."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inbound.testing.simulation.seeded_plans import make_plan
from tests.simulation.proved import play

#: What happens beside it; partitions that are deleted, and positions that are moved by hand, are other stories.
BESIDE = (
    "cut", "cut", "cut", "leader lost", "brokers down", "join", "leave", "kill", "freeze", "expire", "lose answers",
    "disconnect", "drop requests", "stuck write", "slow callback", "gap", "retain", "pause",
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("silent")]


@pytest.mark.parametrize("choice", ["hold", "earliest", "latest"])
@pytest.mark.parametrize("block", range(4))
def test_no_seed_skips_what_was_published_after_a_cut(choice: str, block: int) -> None:
    """Nor sets a commit back for another reason, nor leaves a partition unread."""
    failed = {}
    for seed in range(block * 15, block * 15 + 15):
        plan = make_plan(seed, kinds=BESIDE)
        outcome = play(replace(plan, setup=replace(plan.setup, on_truncation=choice)))
        if outcome.failed:
            failed[seed] = outcome.why
    assert failed == {}

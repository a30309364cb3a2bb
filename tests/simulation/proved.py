"""Plans played with a witness: the proof from the ledgers must say what the witness has seen."""

from __future__ import annotations

from collections.abc import Callable

from inbound import BatchEventProcessor
from inbound.testing import simulation
from tests.simulation.witness import ProofWitness


def play(plan: simulation.Plan, processor: Callable[[], BatchEventProcessor] | None = None) -> simulation.Outcome:
    """Play a plan; where proof and witness disagree, it fails."""
    return simulation.play(plan, processor, witness=ProofWitness)

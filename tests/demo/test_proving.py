"""How the tests on real servers hold a proof against what processors wrote down: it must be able to fail."""

from __future__ import annotations

from collections import Counter

import pytest

from inbound.proof.model import Finding, PartitionKey, PartitionProof, Proof, Verdict
from integration.demo.proving import disagreements

ONCE = Counter({(0, offset): 1 for offset in range(10)})
NOT_READ = ["orders/0: offset 4 is proven, and no processor was handed it"]


def finding(kind: str, first: int, following: int) -> Finding:
    return Finding(kind, first, following, "so", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "findings", "told"),
    [
        (ONCE, (), []),
        (ONCE - Counter({(0, 4): 1}), (), NOT_READ),
        (ONCE - Counter({(0, 4): 1}), (finding("lost", 3, 5),), []),
        (ONCE - Counter({(0, 4): 1}), (finding("repeated", 3, 5),), NOT_READ),
        (ONCE + Counter({(0, 4): 1}), (), ["orders/0: offset 4 was delivered 2 times, and the proof does not say so"]),
        (ONCE + Counter({(0, 4): 1}), (finding("repeated", 4, 5),), []),
        (ONCE + Counter({(0, 4): 1, (1, 0): 2, (0, 99): 1}), (finding("repeated", 4, 5),), []),
    ],
)  # fmt: skip
def test_processors_see_what_a_proof_does_not_say(
    seen: Counter[tuple[int, int]], findings: tuple[Finding, ...], told: list[str]
) -> None:
    """Each offset that it calls proven was delivered, and each that was delivered twice is named."""
    key = PartitionKey("orders-svc", "orders", 0)
    one = PartitionProof(key, Verdict.PROVEN, 0, 10, 10, 0, 10, 10, (), findings, (), ())
    assert disagreements(Proof("quick", 0.0, 0.0, (one,)), "orders", seen, seen) == told

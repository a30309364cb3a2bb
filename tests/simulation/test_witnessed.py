"""What the witness of simulated runs remembers of resets that follow each other: what no ledger can tell of them, and no more."""

from __future__ import annotations

import pytest

from inbound.proof.model import OffsetRange
from tests.simulation.witnessed import SeenPartition


@pytest.mark.parametrize(
    ("moves", "taken_back"),
    [
        ([4], []),
        ([4, 8], []),  # the ledger has that the last one began at 4
        ([4, 8, 20], [(4, 6)]),
        ([4, 8, 5], [(4, 5)]),  # from 5 on it is wanted once more
        ([4, 8, 2], []),
        ([4, 8, 20, 3, 9], []),  # the last one began at 3
        ([8, 7, 20], []),  # none wanted anything again that the group had done
    ],
)
def test_what_resets_want_again_and_jump_no_ledger_knows(moves: list[int], taken_back: list[OffsetRange]) -> None:
    seen = SeenPartition(at=6)
    for offset in moves:
        _moves(seen, offset)
    assert seen.taken_back == taken_back


def test_what_a_claim_tells_of_is_known() -> None:
    seen = SeenPartition(at=6)
    _moves(seen, 4)
    seen.moved_to = None  # a ledger says that a claim begins there
    _moves(seen, 8)
    _moves(seen, 20)
    assert seen.taken_back == []


def test_what_was_committed_between_two_resets_is_known() -> None:
    seen = SeenPartition(at=6)
    _moves(seen, 4)
    seen.moves_to(5)
    _moves(seen, 8)
    _moves(seen, 20)
    assert seen.taken_back == []


def _moves(seen: SeenPartition, offset: int) -> None:
    seen.wants_from(offset)
    seen.is_reset(offset)
    seen.moves_to(offset)

"""The ledger of those who want none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbound.ledger.base import Done, Ledger, Range, Settled, checked_facts


class NoLedger(Ledger):
    """Records nothing. What was lost or repeated can then not be proved."""

    def begun(self, entry: Range) -> None:
        pass

    def done(self, entries: Sequence[Done]) -> None:
        pass

    def settled(self, entries: Sequence[Settled]) -> None:
        pass

    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        checked_facts(kind, facts)

    def lacks(self, topic: str, partition: int, epoch: int) -> None:
        pass

    def close(self, *, clean: bool = True) -> None:
        pass

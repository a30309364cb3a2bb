"""The benchmark of what it costs to be seen takes out what there is, and reads what is exposed."""

from __future__ import annotations

from benchmarks.overhead import MANY, _all_read
from benchmarks.overhead_loop import TAKEN_OUT
from inbound.metrics import Exposition
from tests.made_status import channel, partition, process


def test_what_is_taken_out_is_there() -> None:
    """A method that was renamed would else go on costing what it costs in both runs of a pair."""
    assert [f"{cls.__name__}.{method}" for cls, method in TAKEN_OUT if method not in vars(cls)] == []


def test_partitions_are_read_when_none_has_a_lag() -> None:
    """All of them must be owned, and everything committed."""

    def read(partitions: int, lag: int) -> bool:
        held = [partition(n, lag=lag if n == 7 else 0) for n in range(partitions)]
        return _all_read(Exposition(lambda: process(channels=[channel(partitions=held)])).render()[0])

    assert (read(MANY, 0), read(MANY, 1), read(MANY - 1, 0)) == (True, False, False)

"""How long it is from one look at the threads to the next. Pure."""

from __future__ import annotations

#: The part of one processor that looking may take, unless somebody asks for a certain number of looks. The others lose more
#: by it, and the more looks the more: see `profiling_cost_ratio` in docs/benchmarks.md.
BUDGET = 0.01
#: However much a look costs, there are so many of them in a second.
FEWEST_HZ = 10


class Pace:
    """Keeps the price of looking within a budget: a look costs more the more threads have moved, and the colder the caches are.

    Fewer looks make a profile coarser, not wrong: what a thread has used since the last one is read from its clock.
    """

    def __init__(self, hz: int, budget: float | None) -> None:
        """`budget`: the part of a processor; None: `hz` looks a second, whatever they cost."""
        self._shortest = self.period = 1 / hz
        self._longest = max(self._shortest, 1 / FEWEST_HZ)
        self._budget = budget

    def weigh(self, spent: float, looks: int) -> None:
        """Set `period`, in seconds, by what so many looks have just cost, in seconds of a processor."""
        if self._budget is not None and looks:
            self.period = min(max(spent / looks / self._budget, self._shortest), self._longest)

    @property
    def slowed(self) -> bool:
        """Whether there are fewer looks than asked for."""
        return self.period > self._shortest

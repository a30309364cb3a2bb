"""How long it is from one look at the threads to the next. Pure."""

from __future__ import annotations

#: The part of one processor that looking may cost, unless somebody asks for a certain number of looks.
BUDGET = 0.02
#: What a look costs whoever computes meanwhile, in seconds, beside what it takes itself: the interpreter changes hands twice,
#: and caches grow cold. Measured, see `profiling_cost_ratio` in docs/benchmarks.md; the sampler's own clock does not show it.
DISTURBANCE = 0.001
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

    def weigh(self, spent: float, looks: int, busy: float) -> None:
        """Set `period`, in seconds, by what so many looks have just cost.

        `spent` is what they took themselves, in seconds of a processor; `busy` the processors that the others had meanwhile.
        Only one of them has the interpreter, so a second one is not disturbed.
        """
        if self._budget is not None and looks:
            cost = spent / looks + DISTURBANCE * min(max(busy, 0.0), 1.0)
            self.period = min(max(cost / self._budget, self._shortest), self._longest)

    @property
    def slowed(self) -> bool:
        """Whether there are fewer looks than asked for."""
        return self.period > self._shortest

"""No input of a stranger takes more than twice as long when it is twice as long, or longer than a heartbeat can wait."""

from __future__ import annotations

import pytest

from tests.growth import GROWING, Growing, cost

#: Below so many seconds a ratio says nothing.
FLOOR = 0.02
#: So long a thread may keep others from running; for the largest that can come. Seconds.
LONGEST = 2.0


@pytest.mark.parametrize("one", GROWING, ids=lambda one: one.name)
def test_an_input_that_grows_costs_no_more_than_its_size(one: Growing) -> None:
    """Twice the size takes less than three times as long, up to the largest that can come."""
    size = min(1024, one.most)
    before, slower = cost(one, size), []
    while size < one.most and before < LONGEST:
        size = min(2 * size, one.most)
        now = cost(one, size)
        if now > FLOOR and now > 3 * max(before, FLOOR / 2):
            slower.append(f"{size} bytes: {before:.3f} s -> {now:.3f} s")
        before = now

    assert (slower, before < LONGEST) == ([], True)

"""What publishes goes on with other settings: whoever is sending ends with the old ones, which are closed after that."""

from __future__ import annotations

from inbound.kafka.outlets import Held


class Writer:
    """Notes whether it is closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_one_that_nobody_uses_is_closed_when_another_takes_its_place() -> None:
    """At once; and whoever sends next gets the new one."""
    old, new = Writer(), Writer()
    held = Held(old)
    held.replace(new)
    assert (old.closed, held.take(), new.closed) == (1, new, 0)


def test_one_that_is_sending_is_closed_by_the_last_who_gives_it_back() -> None:
    """However many have taken its place meanwhile."""
    old, newer, newest = Writer(), Writer(), Writer()
    held = Held(old)
    first, second = held.take(), held.take()
    held.replace(newer)
    held.replace(newest)
    held.give_back(first)
    assert (old.closed, newer.closed) == (0, 1)
    held.give_back(second)
    held.close()
    assert (old.closed, newer.closed, newest.closed) == (1, 1, 1)

"""Which topics are meant by the names, or by the pattern, that a channel has."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

#: Topics of Kafka's own begin so, such as `__consumer_offsets`. No pattern means them: they are read where they are named.
INTERNAL = "__"


def chooser(names: Collection[str], pattern: str | None) -> Callable[[str], bool]:
    """Return what says of a topic's name whether it is one of `names`, or, with a pattern, is wholly matched by that."""
    if pattern is None:
        return frozenset(names).__contains__
    matches = re.compile(pattern).fullmatch
    return lambda name: not name.startswith(INTERNAL) and matches(name) is not None

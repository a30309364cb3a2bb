"""A watch on one node, or on one list of children, that is set once and again only after it has fired."""

from __future__ import annotations

from collections.abc import Callable


class Watch:
    """Set again only when it has fired: the client would else collect one for each look.

    Armed by one thread, fired by any. `_armed_in` is the connection that it was set on; watches do not outlive theirs.
    """

    __slots__ = ("__weakref__", "_armed_in", "_changed")

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._armed_in = 0

    def arm(self, generation: int) -> Callable[[], None] | None:
        """Return what to set as the watch, or None where it is set already."""
        if self._armed_in == generation:
            return None
        self._armed_in = generation
        return self.fired

    def disarm(self) -> None:
        """Nobody knows whether it was set."""
        self._armed_in = 0

    def fired(self) -> None:
        """Something has changed. Any thread."""
        self._armed_in = 0
        self._changed()

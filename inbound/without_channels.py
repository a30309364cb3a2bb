"""How a process without channels follows its configuration: the parent of `run --processes`, and an ingress alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from inbound.changes import Plan
from inbound.config import Config
from inbound.planning import PlannedChannel


class NoChannels:
    """A process without channels: see `inbound.reconfiguration.Channels`."""

    def add(self, name: str, planned: PlannedChannel) -> None:
        """Not here."""

    def edit(self, name: str, planned: PlannedChannel) -> None:
        """Not here."""

    def remove(self, name: str) -> None:
        """Not here."""

    def finish(self) -> bool:
        """Nothing leaves."""
        return False

    def staying(self) -> Mapping[str, PlannedChannel]:
        """Return nothing."""
        return {}

    def leaving(self) -> Mapping[str, PlannedChannel]:
        """Return nothing."""
        return {}

    def troubles(self, sections: Collection[str]) -> list[str]:
        """Return nothing."""
        return []


class OwnSections:
    """Applies the sections that the process has a use for: see `inbound.reconfiguration.Process`. One thread."""

    def __init__(
        self,
        apply: Mapping[str, Callable[[Config], None]],
        *,
        prepare: Callable[[Collection[str], Config], None] = lambda sections, config: None,
        tidy: Callable[[], None] = lambda: None,
    ) -> None:
        """`apply` has what to do by section, and others have no effect; it raises InboundError: it is as before.

        `prepare` is told before all that differs which sections do; it raises InboundError: they do not work. `tidy` is
        called again and again.
        """
        self._apply = apply
        self._prepare = prepare
        self._tidy = tidy

    def prepare(self, sections: Mapping[str, tuple[str, ...]], wanted: Plan) -> None:
        """Try whatever can be tried before anything is given up."""
        self._prepare(sections.keys(), wanted.config)

    def apply(self, section: str, wanted: Plan) -> None:
        """Let one section be as wanted."""
        if section in self._apply:
            self._apply[section](wanted.config)

    def tidy(self) -> None:
        """Do what is left to do."""
        self._tidy()

"""The listener of profiles of this process, if one is configured. What it is made of is imported only then."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from inbound.config import Config
from inbound.errors import InboundError

if TYPE_CHECKING:
    from inbound.profiling.listener import ProfilingListener

#: Returns the listener, not started; None: none is configured. Raises ConfigError: it cannot be made so.
MakeProfiling = Callable[[Config], "ProfilingListener | None"]


class Profiles:
    """Starts, replaces and closes it; by the owner's thread, and that of changes."""

    def __init__(self, make: MakeProfiling, config: Config) -> None:
        """Raises ConfigError: it cannot be made so."""
        self._make = make
        self.listener = make(config)

    def start(self) -> None:
        """Listen. Raises ConfigError: the address cannot be used."""
        if self.listener is not None:
            self.listener.start()

    def change(self, before: Config, config: Config) -> None:
        """Let another one take its place; a profile that is being taken ends with what there is.

        Raises:
            ConfigError: the new one cannot listen; one as before does.
        """
        new = self._make(config)
        self.close()
        self.listener = None
        try:
            if new is not None:
                new.start()
        except InboundError:
            self.listener = self._make(before)
            self.start()
            raise
        self.listener = new

    def take_names(self, before: Config, config: Config) -> None:
        """Be asked by the names of `config.admin.hosts`. Raises ConfigError as `change` does."""
        if self.listener is not None and before.admin.hosts != config.admin.hosts:
            self.change(before, before.model_copy(update={"admin": config.admin}))

    def interrupt(self) -> None:
        """End a profile that is being taken, with what there is: the process is to end."""
        if self.listener is not None:
            self.listener.interrupt()

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self.listener is not None:
            self.listener.close()

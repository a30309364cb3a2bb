"""The configuration that a channel goes by now."""

from __future__ import annotations

from dataclasses import dataclass

from inbound.config import ChannelConfig


@dataclass(eq=False, slots=True)
class Settings:
    """Replaced as a whole at a hot reload; parts that may be reloaded look at `now` each time."""

    now: ChannelConfig

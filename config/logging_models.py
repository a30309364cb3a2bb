"""What is logged, and how."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from inbound.config.units import shown
from inbound.config.values import Part, duration, text, wrong

Level = Literal["debug", "info", "warning", "error", "critical"]


def _level(value: Any) -> str:
    level = text(value).lower()
    if level not in get_args(Level):
        raise wrong(f"need one of {', '.join(get_args(Level))}, got {shown(value)}")
    return level


def _logger(value: Any) -> str:
    name = text(value)
    if not all(name.split(".")) or not name.isprintable() or " " in name:
        raise wrong(f"need the name of a logger, such as inbound or kafka.conn, got {shown(name)}")
    return name


class LoggingConfig(Part):
    """What is logged to standard error, and how."""

    format: Literal["console", "json"] = Field(
        default="console", description="console: lines for people; json: one object a line, for machines."
    )
    level: Annotated[Level, BeforeValidator(_level)] = Field(
        default="info", description="What is less grave than this is left out."
    )
    levels: dict[Annotated[str, BeforeValidator(_logger)], Annotated[Level, BeforeValidator(_level)]] = Field(
        default_factory=dict,
        description="Level of single loggers and those below them, such as {kafka: warning}. The clients' own lines (kafka, "
        "kazoo, py4j, confluent_kafka, watchfiles) are critical unless named here: what they mean for a channel is told by "
        "inbound.",
    )
    repeat_interval: Annotated[float, duration(0, 3600)] = Field(
        default=5.0,
        description="A line that repeats is written once in so long, with how many were left out; 0: each time.",
    )

"""How closely partitions are watched for standing still."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from inbound.config.values import Part, duration


class ExplainConfig(Part):
    """The stall detector."""

    interval: Annotated[float, duration(0.5, 3600.0)] = Field(
        default=2.0,
        description="How often partitions are looked at; one that has something to read and has not advanced for two of these, "
        "without anybody wanting it so, is told of as stalled.",
    )

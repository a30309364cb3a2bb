"""Where a channel's offsets go besides ZooKeeper."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from inbound.config.units import shown
from inbound.config.values import Part, text, wrong, wrong_at


def _kafka_group(value: Any) -> str:
    name = text(value)
    if not name or name != name.strip() or not name.isprintable():
        raise wrong(f"need the name of a Kafka group, without blanks around it, got {shown(name)}")
    return name


class OffsetsConfig(Part):
    """Where a channel's offsets go besides ZooKeeper, which stays the truth."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"mirror": {"const": "kafka"}}, "required": ["mirror"]},
            "else": {"properties": {"group": {"type": "null"}}},
        }
    )

    mirror: Literal["none", "kafka"] = Field(
        default="none",
        description="Whether commits also go to a Kafka group, for kafka-consumer-groups and lag exporters.",
    )
    group: Annotated[str, BeforeValidator(_kafka_group)] | None = Field(
        default=None,
        description="Name of that Kafka group; the channel's group if not given. Only with `mirror: kafka`.",
    )

    @model_validator(mode="after")
    def _check(self) -> OffsetsConfig:
        if self.group is not None and self.mirror == "none":
            problem = "is used only with mirror: kafka, but mirror is none; change one of the two"
            raise wrong_at("OffsetsConfig", [(("group",), wrong(problem), None)])
        return self

    def kafka_group(self, group: str) -> str | None:
        """Return the Kafka group that a channel of `group` mirrors its offsets to; None: it does not."""
        return (self.group or group) if self.mirror == "kafka" else None

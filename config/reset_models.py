"""Resets of offsets: how what they name becomes topic and group."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from inbound.config.values import Part, text, wrong


def _mapper(value: Any) -> str:
    name = text(value)
    if not name.strip():
        raise wrong("need module:Class, or the name of an entry point in inbound.ref_mappers, got empty text")
    return name


class ResetConfig(Part):
    """Resets of offsets."""

    ref_mapper: Annotated[str, BeforeValidator(_mapper)] | None = Field(
        default=None,
        description="What finds topic and group of a reset's reference: `module:Class`, or an entry point of the group "
        "`inbound.ref_mappers`; default: the channels and subscriptions of this configuration and its manifests.",
    )
    # Not in repr: it is the mapper's own what stands there.
    options: dict[str, Any] = Field(default_factory=dict, repr=False, description="What that mapper is given.")

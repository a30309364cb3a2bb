"""Who owns which partition: one model per coordinator, told apart by `type`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError, ValidationError

from inbound.config.units import shown
from inbound.config.values import (
    Outside,
    Part,
    Problem,
    TopicName,
    entries,
    is_module_class,
    need_text,
    whole,
    wrong,
    wrong_at,
)

SHIPPED = ("dynamic", "fixed-count", "static")
_TYPES = f"need one of {', '.join(SHIPPED)}, or module:Class"

#: Kafka counts partitions in 32 bits.
_HIGHEST = 2**31 - 1
_NUMBERS: dict[str, Any] = {
    "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": _HIGHEST}, "minItems": 1, "uniqueItems": True
}  # fmt: skip
_number: TypeAdapter[int] = TypeAdapter(Annotated[int, whole(0, _HIGHEST)])


class DynamicCoordinatorConfig(Part):
    """An even share of the partitions for each member of the group."""

    type: Literal["dynamic"] = "dynamic"


class FixedCountCoordinatorConfig(Part):
    """So many partitions of each topic, and no more."""

    type: Literal["fixed-count"] = "fixed-count"
    count: Annotated[int, whole(1)] = Field(description="Partitions of each topic that this member takes.")


def _numbers(value: Any, info: ValidationInfo) -> tuple[int, ...]:
    given = [Outside(part) for part in entries(value)] if isinstance(value, Outside) else value
    if not isinstance(given, (list, tuple)):
        raise wrong(f"need a list such as [0, 1], got {shown(value)}")
    if not given:
        raise wrong("need at least one partition such as [0, 1], got an empty list")
    seen: list[int] = []
    problems: list[Problem] = []
    for index, item in enumerate(given):
        try:
            number = _number.validate_python(item, context=info.context)
            if number in seen:
                raise wrong(f"lists {number} twice; keep one")
            seen.append(number)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"]
            problems.append(((index,), wrong(message), item))
        except PydanticCustomError as error:
            problems.append(((index,), error, item))
    if problems:
        raise wrong_at("partitions", problems)
    return tuple(seen)


def _partitions(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise wrong(f"need a mapping such as {{orders: [0, 1]}}, got {shown(value)}")
    if not value:
        raise wrong("need the partitions of at least one topic, such as {orders: [0, 1]}, got an empty mapping")
    return value


class StaticCoordinatorConfig(Part):
    """The listed partitions, and no others."""

    type: Literal["static"] = "static"
    partitions: Annotated[
        dict[TopicName, Annotated[tuple[int, ...], BeforeValidator(_numbers), WithJsonSchema(_NUMBERS)]],
        BeforeValidator(_partitions),
    ] = Field(
        description="Numbers of the partitions that this member takes, by topic.",
        json_schema_extra={"minProperties": 1},
    )


class CustomCoordinatorConfig(Part):
    """A class of one's own."""

    type: str = Field(description="module:Class of a ZkCoordinator.", pattern=r"^[^:]+:[^:]+$")
    # Not in repr: options can hold tokens.
    options: dict[str, Any] = Field(
        default_factory=dict, repr=False, description="Its own settings, checked by the class's `Options` model."
    )


def _known(value: Any) -> Any:
    """Refuse a type that is none, in words that name those there are."""
    if not isinstance(value, Mapping) or not value:
        return value  # the model says that it needs a mapping; an empty one is all defaults
    kind = value.get("type")
    if isinstance(kind, str) and (kind in SHIPPED or is_module_class(kind)):
        return value
    if "type" not in value:
        problem = wrong(f"{_TYPES}, got nothing")
    elif not isinstance(kind, str):
        problem = need_text(kind)
    else:
        near = get_close_matches(kind.lower(), SHIPPED, n=1)
        problem = wrong(f"{_TYPES}, got {shown(kind)}" + (f"; did you mean {near[0]}?" if near else ""))
    raise wrong_at("coordinator", [(("type",), problem, kind)])


def _tag(value: Any) -> str:
    kind = value.get("type", "dynamic") if isinstance(value, Mapping) else getattr(value, "type", "dynamic")
    return kind if kind in SHIPPED else "custom"


CoordinatorConfig = Annotated[
    Annotated[DynamicCoordinatorConfig, Tag("dynamic")]
    | Annotated[FixedCountCoordinatorConfig, Tag("fixed-count")]
    | Annotated[StaticCoordinatorConfig, Tag("static")]
    | Annotated[CustomCoordinatorConfig, Tag("custom")],
    Discriminator(_tag),
    BeforeValidator(_known),
]

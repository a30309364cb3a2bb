"""The kinds of value that the models are made of: text, whole numbers, durations, sizes, names, addresses.

Each says in its error what is needed and what was given, in the words of the configuration and not of pydantic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, ValidationError, core_schema

from inbound.config.units import format_duration, format_size, parse_duration, parse_size, shown

#: Validation context of values that a person wrote: durations and sizes must carry a unit. Code that builds a model
#: by hand gives plain seconds and bytes, which are what the attributes hold.
WRITTEN = {"written": True}


#: Something wrong: its place below the value under validation, the error, and the value.
Problem = tuple[tuple[str | int, ...], PydanticCustomError, Any]


class Part(BaseModel):
    """Base of all models: frozen, and no key that it doesn't know."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class Outside(str):
    """A value from the environment or a flag: always text, whatever it means (`8`, `true`, `a,b`)."""

    __slots__ = ()


def wrong(message: str, kind: str = "inbound") -> PydanticCustomError:
    """Return an error that pydantic reports with `message` as it is (braces included)."""
    return PydanticCustomError(kind, "{message}", {"message": message})


def wrong_at(title: str, problems: list[Problem]) -> ValidationError:
    """Return one error for several problems, each at its own place below the value under validation."""
    details = [InitErrorDetails(type=error, loc=place, input=value) for place, error, value in problems]
    return ValidationError.from_exception_data(title, details)


def text(value: Any) -> str:
    """Return `value` if it is text. YAML reads an unquoted `no` as false and `1` as a number: both are refused."""
    if not isinstance(value, str):
        raise need_text(value)
    return str(value)


def need_text(value: Any) -> PydanticCustomError:
    """Return the error for something that should be text; the loader adds what was really written."""
    return wrong(f"need text, got {shown(value)}", "need_text")


def _whole(value: Any) -> int:
    if isinstance(value, Outside) and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        return int(value)
    if type(value) is not int:
        raise wrong(f"need a whole number, got {shown(value)}")
    return value


@dataclass(frozen=True)
class Quantity:
    """What goes into `Annotated` to make an int or float a count, a duration or a size, with bounds."""

    parse: Callable[[Any], float]
    show: Callable[[Any], str]
    schema: JsonSchemaValue | None
    at_least: float
    at_most: float | None
    over: bool = False  # `at_least` itself is too little

    def _validate(self, value: Any, info: core_schema.ValidationInfo) -> float:
        by_hand = self.schema and type(value) in (int, float) and not (info.context or {}).get("written")
        number = value if by_hand else self._parsed(value)
        # Written so that NaN, which compares false with everything, is refused.
        if not (number > self.at_least if self.over else number >= self.at_least):
            rule = "more than" if self.over else "at least"
            raise wrong(f"need {rule} {self.show(self.at_least)}, got {self._got(value, number)}")
        if self.at_most is not None and not number <= self.at_most:
            raise wrong(f"need at most {self.show(self.at_most)}, got {self._got(value, number)}")
        return number

    def _parsed(self, value: Any) -> float:
        try:
            return self.parse(value)
        except ValueError as error:
            raise error if isinstance(error, PydanticCustomError) else wrong(str(error)) from None

    def _got(self, value: Any, number: float) -> str:
        return str(value) if isinstance(value, str) else self.show(number)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(self.show, when_used="json")
        return core_schema.with_info_before_validator_function(
            self._validate, handler(source), serialization=serialization if self.schema else None
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if self.schema:
            return dict(self.schema)
        bounds = {"minimum": self.at_least} | ({} if self.at_most is None else {"maximum": self.at_most})
        return {"type": "integer", **bounds}


def whole(at_least: int = 0, at_most: int | None = None) -> Quantity:
    """A whole number within bounds (inclusive)."""
    return Quantity(_whole, shown, None, at_least, at_most)


def duration(at_least: float = 0.0, at_most: float | None = None, *, over: bool = False) -> Quantity:
    """Seconds, written with a unit (`300ms`). `over`: more than `at_least`."""
    schema = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d)|0)$", "examples": ["10s"]}
    return Quantity(parse_duration, format_duration, schema, at_least, at_most, over)


def size(at_least: int = 0, at_most: int | None = None) -> Quantity:
    """Bytes, written with a unit (`1MiB`)."""
    schema = {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB|kB|KB|MB|GB)|0)$", "examples": ["1MiB"]}
    return Quantity(parse_size, format_size, schema, at_least, at_most)


def entries(value: Any) -> Any:
    """Return the list that was given; from the environment, `a,b` stands for `[a, b]`."""
    if isinstance(value, Outside):
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise wrong(f"need a list such as [orders], got {shown(value)}")
    return value


def is_module_class(name: str) -> bool:
    """Say whether `name` can be a class as plugins are named: `module:Class`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])


#: What ZooKeeper refuses in a path, and the slash, which would make two parts of one.
_NOT_IN_A_PATH = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def path_part(value: Any) -> str:
    """Return `value` if it can be one part of a ZooKeeper path, as groups and consumer ids must."""
    name = text(value)
    if not name.strip():
        raise wrong("need a name, got empty text")
    if name in (".", ".."):
        raise wrong(f"{name!r} cannot be part of a ZooKeeper path; choose another name")
    if name != name.strip():
        raise wrong(f"{shown(name)} has blanks at its ends; remove them")
    if bad := _NOT_IN_A_PATH.search(name):
        raise wrong(f"{shown(name)} holds {bad[0]!r}, which cannot be part of a ZooKeeper path; choose another name")
    return name


def topic_name(value: Any) -> str:
    """Return `value` if Kafka allows it as a topic's name."""
    name = text(value)
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) or name in (".", ".."):
        raise wrong(f"need a Kafka topic (1 to 249 of a-z A-Z 0-9 . _ -, not . or ..), got {shown(name)}")
    return name


def channel_name(value: Any) -> str:
    """Return `value` if it can name a channel: it appears in commands, URLs, metrics and environment variables."""
    name = text(value)
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}", name):
        raise wrong(f"need a channel name (1 to 100 of a-z A-Z 0-9 . _ -, first a letter or digit), got {shown(name)}")
    return name


def split_address(address: str) -> tuple[str, int | None] | None:
    """Return host and port of `host:port`, `[::1]:port` or `host` (port None); None if it is no address."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?", address, re.ASCII)
    if not match or (match[3] and int(match[3]) > 65535):
        return None
    return match[1] or match[2], int(match[3]) if match[3] else None


PathPart = Annotated[str, BeforeValidator(path_part)]
TopicName = Annotated[str, BeforeValidator(topic_name)]
ChannelName = Annotated[str, BeforeValidator(channel_name)]

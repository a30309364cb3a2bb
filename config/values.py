"""The kinds of values: text, numbers, durations, sizes, names, addresses.

Their errors name what is needed and what was given, in the words of the configuration instead of pydantic's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, ValidationError, core_schema

from inbound.config.units import (
    DURATION_UNITS,
    SIZE_UNITS,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_iso_duration,
    parse_rate,
    parse_size,
    shown,
)

#: Validation context of values that a person wrote: durations and sizes must have a unit. Code that makes a model gives
#: plain seconds and bytes.
WRITTEN = {"written": True}
#: The place of a problem below the validated value, the error, and the value there.
Problem = tuple[tuple[str | int, ...], PydanticCustomError, Any]


class StrictModel(BaseModel):
    """Base of all models: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class OutsideText(str):
    """A value from the environment or a flag: always text, also `8`."""

    __slots__ = ()


def wrong(message: str, kind: str = "inbound") -> PydanticCustomError:
    """Return an error that pydantic reports with `message`, braces included."""
    return PydanticCustomError(kind, "{message}", {"message": message})


def wrong_at(title: str, problems: list[Problem]) -> ValidationError:
    """Return one error for several problems, each at its place."""
    details = [InitErrorDetails(type=error, loc=place, input=value) for place, error, value in problems]
    return ValidationError.from_exception_data(title, details)


#: A rule: whether it is broken, the key (or the place below the value), and the message.
Rule = tuple[object, str | tuple[str | int, ...], str]


def refuse(title: str, *rules: Rule) -> None:
    """Raise one error for all broken rules, each at its place."""
    problems: list[Problem] = [
        ((place,) if isinstance(place, str) else place, wrong(message), None)
        for broken, place, message in rules
        if broken
    ]
    if problems:
        raise wrong_at(title, problems)


def text(value: Any) -> str:
    """Return `value` if it is text."""
    if not isinstance(value, str):  # YAML reads an unquoted `no` as false and `1` as a number
        raise need_text(value)
    return str(value)


def need_text(value: Any) -> PydanticCustomError:
    """Return the error for a value other than text; `problems` completes it."""
    return wrong(f"need text, got {shown(value)}", "need_text")


def text_that(holds: Callable[[str], object], need: str) -> BeforeValidator:
    """Text for which `holds` is true; the error asks for `need`."""

    def check(value: Any) -> str:
        given = text(value)
        if not holds(given):
            raise wrong(f"need {need}, got {shown(given)}")
        return given

    return BeforeValidator(check)


def is_label(name: str) -> bool:
    """Say whether `name` is printable text without blanks around it."""
    return bool(name) and name == name.strip() and name.isprintable()


def mapping(need: str) -> BeforeValidator:
    """A mapping; the error asks for `need`."""

    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise wrong(f"need {need}, got {shown(value)}")
        return value

    return BeforeValidator(check)


def not_empty(problem: str) -> AfterValidator:
    """A list or a mapping with entries; `problem` is the error."""

    def check(value: Any) -> Any:
        if not value:
            raise wrong(problem)
        return value

    return AfterValidator(check)


def _whole(value: Any) -> int:
    if isinstance(value, OutsideText) and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        return int(value)
    if type(value) is not int:
        raise wrong(f"need a whole number, got {shown(value)}")
    return value


@dataclass(frozen=True, eq=False)  # hashed by identity: `Annotated[...] | None` needs a hash
class Quantity:
    """A count, duration, size or rate with bounds, for `Annotated`."""

    parse: Callable[[Any], float]
    show: Callable[[Any], str]
    schema: JsonSchemaValue | None
    at_least: float
    at_most: float | None
    over: bool = False  # more than `at_least` is needed

    def _validate(self, value: Any, info: core_schema.ValidationInfo) -> float:
        by_hand = self.schema and type(value) in (int, float) and not (info.context or {}).get("written")
        number = value if by_hand else self._parsed(value)
        # NaN, which compares false with everything, must be refused.
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
        if self.schema is None:
            bounds = {"minimum": self.at_least} | ({} if self.at_most is None else {"maximum": self.at_most})
            return {"type": "integer", **bounds}
        # No pattern can hold the bounds: `schema.py` puts them into the description.
        result = {**self.schema, "$comment": self._bounds()}
        if not self.over and self.at_least <= 0:  # 0 needs no unit
            pattern = f"{self.schema['pattern']}|^0+(\\.0+)?$"
            result |= {"type": ["string", "integer"], "minimum": 0, "maximum": 0, "pattern": pattern}
        return result

    def _bounds(self) -> str:
        if self.at_most is not None and not self.over:
            return f"{self.show(self.at_least)} to {self.show(self.at_most)}"
        least = f"{'more than' if self.over else 'at least'} {self.show(self.at_least)}"
        most = "" if self.at_most is None else f", at most {self.show(self.at_most)}"
        return f"{least}{most}" if self.over or self.at_least else ""


@dataclass(frozen=True)
class Matching:
    """Text that a pattern matches whole, for `Annotated`; called, checks a value."""

    pattern: str
    need: str  # what the error asks for, such as `a Kafka topic`
    without: tuple[str, ...] = ()  # texts that are refused although the pattern matches

    def __call__(self, value: Any) -> str:
        """Return `value` if it matches."""
        given = text(value)
        if not self.matches(given):
            raise wrong(f"need {self.need}, got {shown(given)}")
        return given

    def matches(self, given: str) -> bool:
        """Say whether `given` matches."""
        return re.fullmatch(self.pattern, given) is not None and given not in self.without

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": f"^{self.pattern}$"}


def whole(at_least: int = 0, at_most: int | None = None) -> Quantity:
    """A whole number within bounds (inclusive)."""
    return Quantity(_whole, shown, None, at_least, at_most)


def duration(at_least: float = 0.0, at_most: float | None = None, *, over: bool = False) -> Quantity:
    """Seconds, written with a unit (`300ms`). `over`: more than `at_least`."""
    schema = _quantity_schema("duration", DURATION_UNITS, "10s")
    return Quantity(parse_duration, format_duration, schema, at_least, at_most, over)


def iso_duration(*, over: bool = False) -> Quantity:
    """Seconds (`over`: above 0), written as ISO 8601 or with a unit."""
    schema = {
        "title": "ISO 8601 duration",
        "type": "string",
        "pattern": r"^(P[0-9DHMSTW.,]+|[0-9]+(\.[0-9]+)?(ms|s|m|h|d))$",
        "examples": ["PT0.2S"],
    }
    return Quantity(_iso_or_unit, format_duration, schema, 0.0, None, over)


def _iso_or_unit(value: Any) -> float:
    return parse_iso_duration(value) if isinstance(value, str) and value.startswith("P") else parse_duration(value)


def size(at_least: int = 0, at_most: int | None = None) -> Quantity:
    """Bytes, written with a unit (`1MiB`)."""
    schema = _quantity_schema("size", SIZE_UNITS, "1MiB")
    return Quantity(parse_size, format_size, schema, at_least, at_most)


def rate() -> Quantity:
    """A rate per second above 0: a number, or `1000/s`."""
    text = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(/s)?$", "examples": ["1000/s"]}
    number = {"type": "number", "exclusiveMinimum": 0}
    return Quantity(parse_rate, format_rate, {"title": "rate", "anyOf": [number, text]}, 0.0, None, over=True)


def _quantity_schema(kind: str, units: Iterable[str], example: str) -> JsonSchemaValue:
    pattern = rf"^[0-9]+(\.[0-9]+)?({'|'.join(units)})$"
    return {"title": kind, "type": "string", "pattern": pattern, "examples": [example]}


def entries(value: Any) -> Any:
    """Return a list; a variable may be `a,b` or `[a, b]`."""
    if isinstance(value, OutsideText):
        if value[:1] == "[" and value[-1:] == "]":
            value = value[1:-1]
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise wrong(f"need a list such as [orders], got {shown(value)}")
    return value


_HOST = r"\[?[A-Za-z0-9._:-]+\]?"
#: For the JSON Schema; `is_module_class` is exact.
MODULE_CLASS = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*"


def is_module_class(name: str) -> bool:
    """Say whether `name` has the form of a plugin's class: `module:Class`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])


#: A topic's name, as Kafka allows it.
topic_name = Matching(
    r"[a-zA-Z0-9._-]{1,249}", "a Kafka topic (1 to 249 of a-z A-Z 0-9 . _ -, not . or ..)", without=(".", "..")
)
#: A channel's name, which appears in commands, URLs, metrics and environment variables.
channel_name = Matching(
    r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}", "a channel name (1 to 100 of a-z A-Z 0-9 . _ -, first a letter or digit)"
)
#: Characters that ZooKeeper refuses in a path, and the slash, which separates parts.
_NOT_IN_A_PATH = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def path_part(value: Any) -> str:
    """Return `value` if it can be one part of a ZooKeeper path."""
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


def split_address(address: str) -> tuple[str, int | None] | None:
    """Return host and perhaps port of `host:port`, `[::1]:port`, `host`; None: no address."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?", address, re.ASCII)
    if not match or (match[3] and int(match[3]) > 65535):
        return None
    return match[1] or match[2], int(match[3]) if match[3] else None


def host_name(value: Any) -> str:
    """Return a host name, as in the header `Host`, in lower case."""
    host = text(value).lower()
    if not re.fullmatch(_HOST, host) or has_port(host):
        raise wrong(f"need the name of a host without a port, got {shown(host)}")
    return host


def has_port(address: str) -> bool:
    """Say whether `address` has a port."""
    return (split_address(address) or ("", None))[1] is not None


def path_to(what: str, *, secret: bool = False) -> Callable[[Any], Path]:
    """Return a check for the path of `what`; errors hide a `secret`."""

    def check(value: Any) -> Path:
        given = str(value) if isinstance(value, Path) else text(value)
        if not given.strip() or not given.isprintable():  # the secret itself may have been given
            raise wrong(f"need the path of {what}" + ("" if secret else f", got {shown(given)}"))
        return Path(given)

    return check


folder = path_to("a folder")
_written = PlainSerializer(str, when_used="json")
PlainFile = Annotated[Path, BeforeValidator(path_to("a file")), _written]
Folder = Annotated[Path, BeforeValidator(folder), _written]
#: A file that holds a secret, or belongs to one that does.
SecretFile = Annotated[Path, BeforeValidator(path_to("a file", secret=True)), _written]


def flag(value: Any) -> bool:
    """Return `value` if it is true or false."""
    if isinstance(value, OutsideText) and value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise wrong(f"need true or false, got {shown(value)}")
    return value


def file_flag(files: Mapping[str, str], name: str) -> bool:
    """Return whether the file `name` is true, as in Knative. Raises ValueError."""
    given = files.get(name, "false").lower()
    if given not in ("true", "false", "1", "0", "t", "f"):
        raise ValueError(f"{name}: need true or false")
    return given in ("true", "1", "t")


def matching(pattern: str) -> WithJsonSchema:
    """The pattern of text in the JSON Schema; a validator checks it."""
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


PathPart = Annotated[str, BeforeValidator(path_part), matching(r"[^/\s]([^/]*[^/\s])?")]
HostName = Annotated[str, BeforeValidator(host_name), matching(_HOST)]
ListenAddress = Annotated[str, text_that(has_port, "host:port such as 127.0.0.1:8081")]
TopicName = Annotated[str, topic_name]
ChannelName = Annotated[str, channel_name]

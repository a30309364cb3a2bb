"""Checks the values of Kafka properties, and reads `sasl.jaas.config`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from inbound.config.kafka_properties import (
    ACCEPTED,
    DEFAULT_SERVERS,
    OWNED,
    PLACEHOLDER,
    UNSUPPORTED,
    KafkaProperty,
    Scalar,
    canonical,
)
from inbound.config.secrets import is_secret_property
from inbound.config.units import shown
from inbound.config.values import has_port, need_text, wrong

_UNITS = {"ms": "milliseconds", "bytes": "bytes"}


def check(name: str, value: Any) -> Scalar:
    """Return the value of the property with this Java name, typed.

    Raises PydanticCustomError if the property cannot be set here, or not to `value`; the error shows no secret.
    """
    entry = ACCEPTED.get(name)
    if entry is None:
        raise wrong(_refusal(name))
    got = "something else" if is_secret_property(name) else shown(value)
    if entry.kind == "whole":
        return _number(entry, value, got)
    if entry.kind == "flag":
        return _flag(value, got)
    if entry.kind == "servers":
        return _servers(value)
    if not isinstance(value, str):
        raise wrong("need text; put the value in quotes") if is_secret_property(name) else need_text(value)
    if entry.kind == "jaas" and not PLACEHOLDER.fullmatch(value.strip()):
        try:
            parse_jaas(value)
        except ValueError as error:
            raise wrong(str(error)) from None
    if entry.choices and value not in entry.choices:
        choices = ", ".join(choice or "''" for choice in entry.choices)
        raise wrong(f"need {'one of ' if len(entry.choices) > 1 else ''}{choices}, got {got}")
    return str(value)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the properties, without other spellings."""
    properties = {name: _property_schema(entry) for name, entry in ACCEPTED.items()}
    properties["bootstrap.servers"] |= {"default": DEFAULT_SERVERS}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _property_schema(entry: KafkaProperty) -> dict[str, Any]:
    if entry.kind == "whole":
        bounds = {"minimum": entry.at_least, "maximum": 2**31 - 1, "pattern": "^-?[0-9]{1,18}$"}
        unit = _UNITS.get(entry.name.rsplit(".", 1)[1])
        return {
            "type": ["integer", "string"],
            **bounds,
            **({"description": f"In {unit}, without a unit."} if unit else {}),
        }
    if entry.kind == "flag":
        return {"type": ["boolean", "string"], "pattern": "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"}
    if entry.kind == "servers":
        servers = {"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1, "minLength": 1}
        return {"description": "host:port, with commas between several.", **servers}
    return {"type": "string", "enum": list(entry.choices)} if entry.choices else {"type": "string"}


def _refusal(name: str) -> str:
    if name in OWNED:
        return f"is not set here: {OWNED[name]}"
    if name in UNSUPPORTED:
        return "has no effect with the clients that inbound reads with; remove it"
    near = get_close_matches(canonical(name), ACCEPTED, n=1) or get_close_matches(name, [*OWNED, *UNSUPPORTED], n=1)
    return "unknown Kafka property; " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(ACCEPTED)}")


def _number(entry: KafkaProperty, value: Any, got: str) -> int:
    name = _UNITS.get(entry.name.rsplit(".", 1)[1])
    unit = f" ({name})" if name else ""
    # Numbers of properties files, and of ConfigMaps made of them, are text.
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        value = int(value)
    if type(value) is not int:
        raise wrong(f"need a whole number without a unit{unit}, got {got}")
    if not entry.at_least <= value < 2**31:
        raise wrong(f"need {entry.at_least} to {2**31 - 1}{unit}, got {got}")
    return value


def _flag(value: Any, got: str) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise wrong(f"need true or false, got {got}")
    return value


def _servers(value: Any) -> str:
    """Return `host:port,host:port`, given so or as a list."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(server, str) for server in given):
        raise need_text(value)
    servers = [server.strip() for server in given]
    for server in servers:
        if not has_port(server):
            raise wrong(f"need host:port, with commas between several, got {shown(server)}")
    if not servers:
        raise wrong("need at least one host:port, got an empty list")
    return ",".join(servers)


# -- sasl.jaas.config, as in the Java client --------------------------------------------------------------------------


_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[=;])|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<word>[^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class Jaas:
    """A line of `sasl.jaas.config`: login module, `required`, options."""

    module: str  # the login module's class
    options: Mapping[str, str] = field(repr=False)  # they hold passwords

    @property
    def kind(self) -> str:
        """The class's name without its package: PlainLoginModule."""
        return self.module.rpartition(".")[2]


def parse_jaas(line: str) -> Jaas:
    """Read a line of `sasl.jaas.config`.

    Raises:
        ValueError: it is wrong. The text shows nothing of the line.
    """
    tokens = list(_tokens(line))
    if len(tokens) < 2 or "=" in (tokens[0][1], tokens[1][1]):
        raise ValueError('need a login module, `required`, and options: ...PlainLoginModule required username="...";')
    module, flag = tokens[0][1], tokens[1][1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("need the word `required` after the login module")
    options: dict[str, str] = {}
    rest = tokens[2:]
    while rest and rest[0] != ("mark", ";"):
        if len(rest) < 3 or rest[0][0] != "text" or rest[1] != ("mark", "=") or rest[2][0] != "text":
            raise ValueError('need options of the form name="value", with `;` after the last one')
        if rest[0][1] in options:
            raise ValueError("an option is given twice; keep one")
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if rest[1:]:
        raise ValueError("need one login module; a second one begins after `;`")
    return Jaas(module, options)


def jaas_line(module: str, options: Mapping[str, str]) -> str:
    """Return the line that `parse_jaas`, and Java, read back."""
    pairs = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{module} required{pairs};"


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    at = 0
    end = len(line.rstrip())
    while at < end:
        match = _TOKEN.match(line, at)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        at = match.end()
        if match["mark"]:
            yield "mark", match["mark"]
        elif match["word"] is not None:
            yield "text", match["word"]
        else:
            inside = match["double"] if match["double"] is not None else match["single"]
            yield "text", re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inside, flags=re.DOTALL)


def _quoted(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escaped)
    return f'"{value}"'

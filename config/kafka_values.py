"""Checks of single Kafka client properties against the tables in `kafka_properties.py`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from inbound.config.jaas import parse_jaas
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
from inbound.config.values import need_text, split_address, wrong

_UNITS = {"ms": "milliseconds", "bytes": "bytes"}


def check(name: str, value: Any) -> Scalar:
    """Return the value of the property `name` (a Java name) in its own type.

    Raises PydanticCustomError if the property cannot be set here, or not to this; a secret's value is not in it.
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
    """Return the JSON Schema of the properties, under their Java names; other spellings are for machines."""
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
    # Properties files, and the ConfigMaps made of them, hold numbers as text.
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
    """Return `host:port,host:port`, from such a text or from a list."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(server, str) for server in given):
        raise need_text(value)
    servers = [server.strip() for server in given]
    for server in servers:
        if (split_address(server) or ("", None))[1] is None:
            raise wrong(f"need host:port, with commas between several, got {shown(server)}")
    if not servers:
        raise wrong("need at least one host:port, got an empty list")
    return ",".join(servers)

"""Parses Jolokia's requests from a path or from JSON. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inbound.observe.jmx.model import JmxError, bad_argument
from inbound.observe.jmx.names import ObjectName

#: In place of the rest of a value.
LIMIT_REACHED = "[Object limit exceeded]"


@dataclass(frozen=True)
class ValueLimits:
    """The bounds of an answered value; 0: none."""

    depth: int = 15
    collection: int = 0
    objects: int = 0


class Bounded:
    """Cuts one value to its limits."""

    def __init__(self, bounds: ValueLimits) -> None:
        self._bounds = bounds
        self._objects = 0

    def cut(self, value: Any, depth: int = 1) -> Any:
        """Return the part of `value` within the limits.

        Below the depth it is text; beyond the sizes there is nothing.
        """
        bounds = self._bounds
        if value is None:
            return None
        if bounds.objects and self._objects > bounds.objects:
            return LIMIT_REACHED
        if bounds.depth and depth > bounds.depth:
            return as_text(value)
        most = bounds.collection or None
        if not isinstance(value, Mapping | list | tuple):
            return value
        self._objects += 1
        if isinstance(value, Mapping):
            return {key: self.cut(one, depth + 1) for key, one in list(value.items())[:most]}
        return [self.cut(one, depth + 1) for one in value[:most]]


def outlined(value: Any, depth: int) -> Any:
    """Return a description cut below `depth`, with 1 there; 0: uncut."""
    if depth == 0 or not isinstance(value, Mapping):
        return value
    return {key: 1 if depth == 1 else outlined(one, depth - 1) for key, one in value.items()}


def as_text(value: Any) -> str:
    """Return a value as Java writes it: `{a=1, b=[x, y]}`."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}={as_text(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_text, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def reached(value: Any, path: Sequence[str]) -> Any:
    """Return the value at `path` in `value`; None: there is none.

    `*` stands for every key, or index, with such a value.
    """
    if not path:
        return value
    (part, *rest), is_list = path, isinstance(value, list | tuple)
    children: Mapping[Any, Any] = dict(enumerate(value)) if is_list else value if isinstance(value, Mapping) else {}
    if part == "*":
        found = {
            key: one for key, one in ((key, reached(one, rest)) for key, one in children.items()) if one is not None
        }
        return (list(found.values()) if is_list else found) or None
    is_index = is_list and part.isascii() and part.isdigit() and len(part) < 10
    return reached(children.get(int(part) if is_index else part), rest)


#: All commands.
COMMANDS = ("read", "write", "exec", "list", "search", "version", "notification")
#: The commands that change something.
CHANGES = ("write", "exec")
#: Attributes in one request, each looked up in each bean: no bean has so many.
MOST_ATTRIBUTES = 200


@dataclass(frozen=True)
class RequestOptions:
    """The options of a request's answer."""

    bounds: ValueLimits = field(default_factory=ValueLimits)
    ignore_errors: bool = False
    include_request: bool = True
    canonical_naming: bool = False
    modified_since: int | None = None  # Unix time


@dataclass(frozen=True)
class JolokiaRequest:
    """One request; each command uses some of the fields."""

    command: str
    bean: ObjectName | None = None
    attribute: str | list[str] | None = None  # None: all
    operation: str = ""
    arguments: tuple[Any, ...] = ()
    value: Any = None
    path: tuple[str, ...] = ()
    options: RequestOptions = field(default_factory=RequestOptions)

    def echo(self) -> dict[str, Any]:
        """Return the request as its answer repeats it."""
        repeated = {
            "type": self.command,
            "mbean": None if self.bean is None else str(self.bean),
            "attribute": [] if self.command == "read" and self.attribute is None else self.attribute,
            "value": self.value,
            "operation": self.operation or None,
            "arguments": list(self.arguments) or None,
            "path": "/".join(part.replace("!", "!!").replace("/", "!/") for part in self.path) or None,
        }
        return {name: value for name, value in repeated.items() if value is not None}


def split(path: str) -> list[str]:
    """Return the parts of a path between slashes; `!` escapes a letter.

    Empty parts at the end are dropped.
    """
    parts = re.findall(r"((?:[^!/]++|!.|!$)*+)(?:/|$)", path.lstrip("/"), re.DOTALL)
    while parts and not parts[-1]:
        del parts[-1]
    return [re.sub(r"!(.)", r"\1", part, flags=re.DOTALL) for part in parts]


def of_path(path: str, parameters: Mapping[str, str]) -> JolokiaRequest:
    """Return the request of a URL's decoded path after `/jolokia/`.

    Raises:
        JmxError: it is none.
        MalformedNameError: its bean's name is none.
    """
    command, *rest = split(path) or ["version"]
    fields: dict[str, Any] = {"type": command, "config": parameters}
    names = {
        "read": ["mbean", "attribute"],
        "write": ["mbean", "attribute", "value"],
        "exec": ["mbean", "operation"],
        "search": ["mbean"],
    }.get(command.lower(), [])
    fields |= dict(zip(names, rest, strict=False))
    more = rest[len(names) :]
    if "," in fields.get("attribute", "") and command == "read":
        fields["attribute"] = fields["attribute"].split(",")
    if "value" in fields:
        fields["value"] = _marked(fields["value"])
    if command == "exec":
        return of_json(fields | {"arguments": [_marked(part) for part in more]}, {})
    return of_json(fields | {"path": more}, {})


def of_json(body: Any, parameters: Mapping[str, str]) -> JolokiaRequest:
    """Return the request of a JSON object and the URL's `parameters`.

    Raises:
        JmxError: it is none.
        MalformedNameError: its bean's name is none.
    """
    if not isinstance(body, dict):
        raise bad_argument("a request is a JSON object with a `type`")
    command = body.get("type")
    if not isinstance(command, str):
        raise bad_argument("No type given")
    command = command.lower()
    if command not in COMMANDS:
        raise bad_argument(f"No type with name '{command}' exists; there are: {', '.join(COMMANDS)}")
    if body.get("target") is not None:
        raise JmxError("`target` asks for a proxy, and this is none", 400, "java.lang.UnsupportedOperationException")
    config = body.get("config") or {}
    if not isinstance(config, dict):
        raise bad_argument("`config` is no JSON object")
    options = options_of({**parameters, **config})
    bean = _bean(body.get("mbean"), command)
    plain = JolokiaRequest(command, bean, path=_path(body.get("path")), options=options)
    if command == "read":
        return replace(plain, attribute=_attributes(body.get("attribute")))
    if command == "write":
        if "value" not in body:
            raise bad_argument("write needs a value (it may be null)")
        return replace(plain, attribute=_needed(body.get("attribute"), "write: attribute"), value=body["value"])
    if command == "exec":
        arguments = body.get("arguments")
        if not isinstance(arguments, list | None):
            raise bad_argument("exec: `arguments` is no list")
        operation = _needed(body.get("operation"), "exec: operation")
        return replace(plain, operation=operation, arguments=tuple(arguments or ()))
    return plain


def options_of(given: Mapping[str, Any]) -> RequestOptions:
    """Return the options in a URL's parameters and a request's `config`.

    Other parameters are ignored.

    Raises:
        JmxError: one of them is no number.
    """
    if "callback" in given:
        raise bad_argument("`callback` is not supported: its answer would run in any page that names it")
    modified = given.get("ifModifiedSince")
    return RequestOptions(
        ValueLimits(
            _count(given, "maxDepth", ValueLimits.depth),
            _count(given, "maxCollectionSize", ValueLimits.collection),
            _count(given, "maxObjects", ValueLimits.objects),
        ),
        ignore_errors=_flag(given, "ignoreErrors", False),
        include_request=_flag(given, "includeRequest", True),
        canonical_naming=_flag(given, "canonicalNaming", False),
        modified_since=None if modified is None else _count(given, "ifModifiedSince", 0),
    )


def _count(given: Mapping[str, Any], name: str, default: int) -> int:
    value = str(given.get(name, default))
    if not (value.isascii() and value.isdigit() and len(value) < 16):
        raise bad_argument(f"Invalid value of {name} parameter: {value[:40]!r} is no whole number from 0 on")
    return int(value)


def _flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    return str(given.get(name, default)).lower() == "true"


def _marked(part: str) -> str | None:
    """Return a URL part's value; null and empty text are marked."""
    return {"[null]": None, '""': ""}.get(part, part)


def _bean(given: Any, command: str) -> ObjectName | None:
    if command in ("list", "version", "notification"):
        return None
    if given is None and command == "search":
        return ObjectName.parse("*:*")
    return ObjectName.parse(_needed(given, f"{command}: mbean"))


def _needed(given: Any, what: str) -> str:
    if not isinstance(given, str) or not given:
        raise bad_argument(f"{what} is missing, or no text")
    return given


def _attributes(given: Any) -> str | list[str] | None:
    names: Sequence[Any] = given if isinstance(given, list) else [given]
    if given is None or given in ("", []):
        return None
    if not all(isinstance(name, str) and name for name in names):
        raise bad_argument("read: attribute is no text, and no list of texts")
    if len(names) > MOST_ATTRIBUTES:
        raise bad_argument(
            f"read: {len(names)} attributes; {MOST_ATTRIBUTES} are the most: leave them out for all that there are"
        )
    return list(names) if isinstance(given, list) else str(given)


def _path(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, list) and all(isinstance(part, str) for part in given):
        return tuple(given)
    if not isinstance(given, str):
        raise bad_argument("path is no text")
    return tuple(split(given))

"""Jolokia's requests: out of a path, or out of JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inbound.jmx.model import JmxError, bad_argument
from inbound.jmx.names import ObjectName
from inbound.jmx.values import Bounds

#: What can be asked for.
COMMANDS = ("read", "write", "exec", "list", "search", "version", "notification")
#: What changes something.
CHANGES = ("write", "exec")
_MISSING = object()
#: Attributes in one request, each of which is looked for in each bean: no bean has so many.
MOST_ATTRIBUTES = 200


@dataclass(frozen=True)
class Options:
    """How a request is to be answered."""

    bounds: Bounds = field(default_factory=Bounds)
    ignore_errors: bool = False
    include_request: bool = True
    canonical_naming: bool = False
    modified_since: int | None = None  # Unix time


@dataclass(frozen=True)
class JolokiaRequest:
    """One request. Which fields count is the command's."""

    command: str
    bean: ObjectName | None = None
    attribute: str | list[str] | None = None  # None: all
    operation: str = ""
    arguments: tuple[Any, ...] = ()
    value: Any = None
    path: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)

    def echo(self) -> dict[str, Any]:
        """Return what the answer says of the request."""
        said: dict[str, Any] = {"type": self.command}
        if self.bean is not None:
            said["mbean"] = str(self.bean)
        if self.command == "read":
            said["attribute"] = [] if self.attribute is None else self.attribute
        if self.command == "write":
            said["attribute"] = self.attribute
            if self.value is not None:
                said["value"] = self.value
        if self.command == "exec":
            said["operation"] = self.operation
            if self.arguments:
                said["arguments"] = list(self.arguments)
        if self.path:
            said["path"] = "/".join(map(escaped, self.path))
        return said


def escaped(part: str) -> str:
    """Return a part of a path as it stands in one."""
    return part.replace("!", "!!").replace("/", "!/")


def split(path: str) -> list[str]:
    """Return the parts of a path between its slashes; `!` makes the letter after it plain. Empty ones at the end count not."""
    parts = re.findall(r"((?:[^!/]++|!.|!$)*+)(?:/|$)", path.lstrip("/"), re.DOTALL)
    while parts and not parts[-1]:
        del parts[-1]
    return [re.sub(r"!(.)", r"\1", part, flags=re.DOTALL) for part in parts]


def of_path(path: str, parameters: Mapping[str, str]) -> JolokiaRequest:
    """Return the request that stands in a URL, decoded and behind `/jolokia/`.

    Raises:
        JmxError: it is none.
        MalformedNameError: what should be a bean's name is none.
    """
    parts = split(path)
    if not parts:
        return JolokiaRequest("version", options=options_of(parameters))
    command, *rest = parts
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
    """Return the request that a JSON object is; `parameters` are those of the URL.

    Raises:
        JmxError: it is none.
        MalformedNameError: what should be a bean's name is none.
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
        value = body.get("value", _MISSING)
        if value is _MISSING:
            raise bad_argument("write needs a value (it may be null)")
        return replace(plain, attribute=_needed(body.get("attribute"), "write: attribute"), value=value)
    if command == "exec":
        arguments = body.get("arguments")
        if not isinstance(arguments, list | None):
            raise bad_argument("exec: `arguments` is no list")
        operation = _needed(body.get("operation"), "exec: operation")
        return replace(plain, operation=operation, arguments=tuple(arguments or ()))
    return plain


def options_of(given: Mapping[str, Any]) -> Options:
    """Return the options among the parameters of a URL, or in a request's `config`; others are passed over.

    Raises:
        JmxError: one of them is no number.
    """
    if "callback" in given:
        raise bad_argument("`callback` is not taken: what it makes runs in any page that names it")
    modified = given.get("ifModifiedSince")
    return Options(
        Bounds(
            _count(given, "maxDepth", Bounds.depth),
            _count(given, "maxCollectionSize", Bounds.collection),
            _count(given, "maxObjects", Bounds.objects),
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
    """A URL says null, and no text at all, by marks."""
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

"""Words validation errors as `inbound.yaml:12: channels.orders.workers: need ..., got 0`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from inbound.config import schema
from inbound.config.document import dotted
from inbound.config.secrets import is_secret_option
from inbound.config.units import shown

#: What is needed, by pydantic's type of error.
_NEED = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}


def validation_problems(
    error: ValidationError,
    prefix: str,
    locate: Callable[[str], str],
    *,
    model: type[BaseModel] | None = None,
    written: Callable[[str], str | None] | None = None,
) -> list[str]:
    """Return one line per problem: place, key, need, and given value.

    `prefix` is the dotted path of the validated value (empty for the whole configuration). `locate` returns where a path
    was set, `written` the text there. With `model`, the problem of an unknown key lists the known ones.
    """
    found = problems_by_path(error, prefix, locate, model=model, written=written)
    return list(dict.fromkeys(line for _, line in found))


def problems_by_path(
    error: ValidationError,
    prefix: str,
    locate: Callable[[str], str],
    *,
    model: type[BaseModel] | None = None,
    written: Callable[[str], str | None] | None = None,
) -> list[tuple[str, str]]:
    """Return the dotted path and the line of each problem: see `validation_problems`."""
    found: list[tuple[str, str]] = []
    for details in error.errors(include_url=False):
        if _only_counts_wrong_entries(details):
            continue
        path, around = schema.walk(model, details["loc"]) if model else (list(details["loc"]), None)
        name = dotted(*path)
        name = name if not prefix else prefix + ("" if name.startswith("[") or not name else ".") + name
        hidden = any(isinstance(part, str) and is_secret_option(part) for part in path)
        message = _message(details, schema.keys(around), written(name) if written else None, hidden)
        found.append((name, f"{locate(name)}: {name}: {message}"))
    return found


def unknown_key(key: str, allowed: Iterable[str]) -> str:
    """Return the message for a key that is not among `allowed`."""
    known = sorted(allowed)
    near = get_close_matches(key.lower(), known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown key; {hint}" + (f"allowed: {', '.join(known)}" if known else "nothing is allowed here")


def _only_counts_wrong_entries(details: ErrorDetails) -> bool:
    # pydantic does not count wrong entries, each of which has its own problem already.
    given = details["input"]
    shortest = details.get("ctx", {}).get("min_length", 0)
    return details["type"] == "too_short" and isinstance(given, (list, tuple)) and len(given) >= shortest


def _message(details: ErrorDetails, allowed: list[str], written: str | None, hidden: bool) -> str:
    kind, given, context = details["type"], details["input"], details.get("ctx", {})
    got = "something else" if hidden else _got(given, written)
    if kind == "extra_forbidden":
        return unknown_key(str(details["loc"][-1]), allowed)
    if kind == "missing":
        return "missing; this key is required"
    if kind in ("literal_error", "enum"):
        return _choice(str(context.get("expected", "")), given, got)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _choice(str(context.get("expected_tags", "")), context.get("tag"), got)
    if kind in ("need_text", "string_type"):
        is_plain = isinstance(given, (bool, int, float)) and not hidden
        quoted = f'; put it in quotes: "{written or shown(given)}"' if is_plain else ""
        return f"need text, got {got}" + quoted
    if kind in _NEED:
        need = _NEED[kind].format(**context)
        if given is None and "mapping" in need:
            return f"need {need}, got nothing; write its keys below it, or remove it"
        return f"need {need}, got {got}"
    if kind == "value_error":
        return _one_line(str(context.get("error", details["msg"])))
    if kind == "too_short":
        return f"need at least {context['min_length']}, got {context['actual_length']}"
    message = _one_line(details["msg"])
    # Our own errors name the given value; pydantic's don't.
    return message if kind == "inbound" or hidden else f"{message[:1].lower()}{message[1:]}, got {got}"


def _choice(expected: str, given: Any, got: str) -> str:
    choices = re.findall(r"'([^']*)'", expected) or [expected]
    near = get_close_matches(given.lower(), choices, n=1) if isinstance(given, str) else []
    # One choice is its own hint.
    hint = f"; did you mean {near[0]}?" if near and len(choices) > 1 else ""
    return f"need {'one of ' if len(choices) > 1 else ''}{', '.join(choices)}, got {got}{hint}"


def _got(given: Any, written: str | None) -> str:
    """Return the given value; as written, where YAML read something else."""
    if isinstance(given, bool) and written and written.lower() not in ("true", "false"):
        return f"{written}, which YAML reads as {shown(given)}"
    return shown(given)


def _one_line(text: str) -> str:
    return " ".join(text.split())

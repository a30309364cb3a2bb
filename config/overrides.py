"""Lays the values of environment variables and flags over the file's.

`INBOUND__CHANNELS__ORDERS__WORKERS=8` sets `channels.orders.workers`: `__` goes one level down, case does not matter, and
`_` also stands for `.` and `-`, which the name of a variable cannot hold. A flag names the dotted path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from inbound.config import schema
from inbound.config.document import Places, dotted, resolve
from inbound.config.kafka_properties import canonical
from inbound.config.manifest_models import CAMEL_CASE
from inbound.config.models import Config
from inbound.config.problems import unknown_key
from inbound.config.units import shown
from inbound.config.values import OutsideText
from inbound.errors import ConfigError

PREFIX = "INBOUND__"
#: `INBOUND_KAFKA__...` would be ignored silently.
_SLIP = re.compile(rf"INBOUND_({'|'.join(Config.model_fields)})(?=__)", re.IGNORECASE)


class _Refused(Exception):
    """A variable or flag cannot set a value; the text says why."""


def overlay(
    tree: dict[str, Any], places: Places, environ: Mapping[str, str], overrides: Mapping[str, str]
) -> list[str]:
    """Put variables, then flags, into `tree`; return the problems' lines."""
    problems: list[str] = []
    taken: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.upper().startswith(PREFIX):
            if slip := _SLIP.match(variable):
                meant = f"{PREFIX}{variable[slip.start(1) :]}"
                problems.append(
                    f"environment {dotted(variable)}: begins with one underscore too few; did you mean {meant}?"
                )
            continue
        origin = f"environment {dotted(variable)}"
        try:
            path, setting = _find(tree, variable[len(PREFIX) :].lower(), "__", _folded), value
            if other := taken.get(dotted(*path)):
                raise _Refused(f"{dotted(*path)}: {other} sets it too; keep one")
            taken[dotted(*path)] = variable
            _set(tree, path, setting, places, origin)
        except _Refused as refusal:
            problems.append(f"{origin}: {refusal}")
    for name, value in overrides.items():
        try:
            _set(tree, _find(tree, name, ".", str), value, places, "flag")
        except _Refused as refusal:
            problems.append(f"flag {dotted(name)}: {refusal}")
    return problems


def _folded(key: str) -> str:
    return re.sub(r"[.-]", "_", key).lower()


def _find(tree: dict[str, Any], rest: str, separator: str, fold: Callable[[str], str]) -> list[str]:
    """Return the path of `rest`: keys of models, or of the file."""
    path: list[str] = []
    annotation: Any = Config
    here: Any = tree
    while rest:
        if path == ["kafka"]:
            return [*path, canonical(rest)]
        known = list(here) if isinstance(here, dict) and not schema.keys(annotation) else schema.keys(annotation)
        if schema.in_options(path) and "subscriptions" in path[:3]:
            known += [name for name in CAMEL_CASE if name not in known]  # variables have no case
        matching = [key for key in known if fold(rest) == fold(key) or fold(rest).startswith(fold(key) + separator)]
        longest = max((len(key) for key in matching), default=0)
        best = [key for key in matching if len(key) == longest]
        if len(best) > 1:
            raise _Refused(f"{dotted(*path)}: {' and '.join(best)} both match; rename one")
        if best:
            key = best[0]
            rest = rest[len(key) + len(separator) :]
        elif schema.in_options(path):
            key, _, rest = rest.partition(separator)
        else:
            name = rest.split(separator)[0]
            raise _Refused(_no_such(path, name, known, annotation))
        if not key:
            raise _Refused(f"{dotted(*path)}: the name ends in {separator}; name a value")
        path.append(key)
        annotation = schema.step(annotation, key)
        here = here.get(key) if isinstance(here, dict) else None
    if not path or (schema.is_section(annotation) and annotation is not Any):
        allowed = schema.keys(annotation or Config) or list(here or ())
        raise _Refused(f"{dotted(*path) or 'it'}: names a whole section; name one value of it: {', '.join(allowed)}")
    return path


def _no_such(path: list[str], name: str, known: list[str], annotation: Any) -> str:
    if path == ["channels"]:
        near = get_close_matches(_folded(name), map(_folded, known), n=1)
        hint = "".join(f"did you mean {key}? " for key in known if _folded(key) in near)
        return f"channels: no channel {shown(name)} in the file; {hint}it has {', '.join(known) or 'none'}"
    if not schema.is_section(annotation):
        return f"{dotted(*path)}: is one value, and has no {shown(name)} in it"
    return f"{dotted(*path, name)}: {unknown_key(name, known)}"


def _set(tree: dict[str, Any], path: list[str], value: str, places: Places, origin: str) -> None:
    here = tree
    for depth, key in enumerate(path[:-1], 1):
        below = here.get(key)
        if below is None:
            below = here[key] = {}
        if not isinstance(below, dict):
            raise _Refused(f"{dotted(*path)}: cannot be set, because {dotted(*path[:depth])} is not a mapping")
        here = below
    # Only the processor knows an option's type, so it is read as YAML; elsewhere the model decides.
    try:
        here[path[-1]] = resolve(value) if schema.in_options(path) else OutsideText(value)
    except ConfigError as error:
        raise _Refused(f"{dotted(*path)}: {error}") from None
    places.where[dotted(*path)] = origin
    places.text[dotted(*path)] = value

"""Questions about the models' annotations: what lies under a key, and which keys there are."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag

#: Where the keys are not those of a model of this package; `*` is any name.
_OPTIONS = (
    ("channels", "*", "processor", "options"),
    ("channels", "*", "coordinator", "options"),
    ("channels", "*", "subscriptions", "*"),
    ("manifests", "settings", "coordinator", "options"),
    ("manifests", "options"),
    ("reset", "options"),
)


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation alone; `Annotated` and None are taken off."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(found for part in get_args(annotation) for found in alternatives(part))
    return () if annotation is type(None) else (annotation,)


def step(annotation: Any, key: str | int) -> Any:
    """Return the annotation of what lies under `key`, or None if the key is not known there."""
    for part in alternatives(annotation):
        origin = get_origin(part) or part
        if part is Any:
            return Any
        if not isinstance(origin, type):
            continue
        if issubclass(origin, BaseModel):
            if isinstance(key, str) and key in keys(part):
                return next(f.annotation for name, f in origin.model_fields.items() if key in (name, f.alias))
        elif issubclass(origin, Mapping):
            return (get_args(part) or (str, Any))[1]
        elif issubclass(origin, Sequence) and origin is not str and isinstance(key, int):
            return (get_args(part) or (Any,))[0]
    return None


def keys(annotation: Any) -> list[str]:
    """Return the keys that the model, or any model of the union, has; none for what is no model."""
    found: dict[str, None] = {}
    for part in alternatives(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            found.update(dict.fromkeys(field.alias or name for name, field in part.model_fields.items()))
    return list(found)


def is_section(annotation: Any) -> bool:
    """Say whether something of this annotation has keys of its own, so that it cannot be set as one value."""
    return bool(keys(annotation)) or any((get_origin(part) or part) is dict for part in alternatives(annotation))


def tagged(annotation: Any, tag: str | int) -> Any:
    """Return the member of a union that has this `Tag`, or None."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return inner if Tag(str(tag)) in metadata else tagged(inner, tag)
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for part in get_args(annotation) if (found := tagged(part, tag)) is not None), None)
    return None


def in_options(path: Sequence[str]) -> bool:
    """Say whether `path` is the `options` of a plugin, a subscription, or below: keys there are the plugin's own."""
    return any(
        len(path) >= len(options) and all(part in ("*", key) for part, key in zip(options, path, strict=False))
        for options in _OPTIONS
    )


def walk(annotation: Any, place: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """Follow pydantic's `loc`. Returns it as a path of the file, and the annotation around its last part.

    What pydantic puts in besides keys is left out: the tags of unions, and `[key]` for a mapping's key.
    """
    path: list[str | int] = []
    around = here = annotation
    for part in place:
        if part == "[key]":
            continue
        below = step(here, part)
        if below is None and len(alternatives(here)) > 1:
            here = around = tagged(here, part) or here
            continue  # the name of a union's member
        path.append(part)
        around, here = here, below
    return path, around

"""Finds keys and annotations of the models, and makes the JSON Schema.

The JSON Schema has durations, sizes and defaults as they are written, with their units.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from inbound.config.units import DURATION_UNITS, SIZE_UNITS

#: Sections whose keys no model of this package knows; `*` is any name.
_OPTIONS = (
    ("channels", "*", "processor", "options"),
    ("channels", "*", "coordinator", "options"),
    ("channels", "*", "subscriptions", "*"),
    ("manifests", "settings", "coordinator", "options"),
    ("manifests", "options"),
    ("reset", "options"),
)


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return a union's members, or one annotation, without `Annotated` and None."""
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(found for part in get_args(annotation) for found in alternatives(part))
    return () if annotation is type(None) else (annotation,)


def step(annotation: Any, key: str | int) -> Any:
    """Return the annotation of the value under `key`; None: an unknown key."""
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
    """Return the keys of a model, or of a union's models."""
    found: dict[str, None] = {}
    for part in alternatives(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            found.update(dict.fromkeys(field.alias or name for name, field in part.model_fields.items()))
    return list(found)


def is_section(annotation: Any) -> bool:
    """Say whether a value has keys, so that no flag sets it."""
    return bool(keys(annotation)) or any((get_origin(part) or part) is dict for part in alternatives(annotation))


def tagged(annotation: Any, tag: str | int) -> Any:
    """Return the union's member with this `Tag`, or None."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return inner if Tag(str(tag)) in metadata else tagged(inner, tag)
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for part in get_args(annotation) if (found := tagged(part, tag)) is not None), None)
    return None


def in_options(path: Sequence[str]) -> bool:
    """Say whether `path` is in a plugin's options, or in a subscription."""
    return any(
        len(path) >= len(options) and all(part in ("*", key) for part, key in zip(options, path, strict=False))
        for options in _OPTIONS
    )


def walk(annotation: Any, place: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """Return pydantic's `loc` as a path of the file, and its model.

    The model is the annotation around the path's last part. The tags of unions and `[key]`, which pydantic adds, are left out.
    """
    path: list[str | int] = []
    around = here = annotation
    for part in place:
        if part == "[key]":
            continue
        below = step(here, part)
        if below is None and len(alternatives(here)) > 1:
            here = around = tagged(here, part) or here
            continue  # the tag of a union's member
        path.append(part)
        around, here = here, below
    return path, around


# -- the JSON Schema -----------------------------------------------------------------------------------------------


DIALECT = GenerateJsonSchema.schema_dialect
_UNITS = {
    "duration": f"A duration with its unit: {', '.join(DURATION_UNITS)}",
    "ISO 8601 duration": f"A duration as ISO 8601 has it (PT0.2S), or with its unit: {', '.join(DURATION_UNITS)}",
    "size": f"A size with its unit: {', '.join(SIZE_UNITS)}",
    "rate": "A number per second, such as 500 or 500/s",
}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema; bounds of quantities are in `$comment`: see `with_units`."""
    return model.model_json_schema(schema_generator=_Generator)


def schemas_of(models: Sequence[type[BaseModel]]) -> tuple[dict[type[BaseModel], Any], dict[str, Any]]:
    """Return a reference to each model's schema, and the shared definitions."""
    found, shared = models_json_schema([(model, "validation") for model in models], schema_generator=_Generator)
    return {model: found[model, "validation"] for model in models}, shared.get("$defs", {})


def with_units(schema: Any) -> Any:
    """Return a copy with units and bounds in descriptions of quantities."""
    if isinstance(schema, list):
        return [with_units(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: with_units(value) for key, value in schema.items() if key != "$comment"}
    for part in (schema, *schema.get("anyOf", ())):
        if "$comment" in part:
            bounds = f"; {part['$comment']}" if part["$comment"] else ""
            note = f"{_UNITS[part['title']]}{bounds}."
            result["description"] = f"{schema['description']} {note}" if "description" in schema else note
    return result


def schema_alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of which a value follows one."""
    found: list[dict[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return found


class _Generator(GenerateJsonSchema):
    """pydantic's generator, with defaults as written, and strict keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # it would repeat the key

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        written = model.model_construct().model_dump(mode="json", by_alias=True, warnings=False, fallback=str)
        for key, found in result.get("properties", {}).items():
            if "default" in found and key in written:
                found["default"] = written[key]
        return result

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        result = super().dict_schema(schema)
        return {**result, "additionalProperties": False} if "patternProperties" in result else result

"""The JSON Schema of models: what editors take to complete and check `inbound.yaml`.

Durations and sizes stand in it as they are written, with their units; defaults too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from inbound.config.units import DURATION_UNITS, SIZE_UNITS

DIALECT = GenerateJsonSchema.schema_dialect

_UNITS = {
    "duration": f"A duration with its unit: {', '.join(DURATION_UNITS)}",
    "ISO 8601 duration": f"A duration as ISO 8601 has it (PT0.2S), or with its unit: {', '.join(DURATION_UNITS)}",
    "size": f"A size with its unit: {', '.join(SIZE_UNITS)}",
    "rate": "A number per second, such as 500 or 500/s",
}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of one model; bounds of durations and sizes stand in `$comment` until `with_units`."""
    return model.model_json_schema(schema_generator=_Generator)


def schemas_of(models: Sequence[type[BaseModel]]) -> tuple[dict[type[BaseModel], Any], dict[str, Any]]:
    """Return a reference to the schema of each model, and the definitions that they refer to."""
    found, shared = models_json_schema([(model, "validation") for model in models], schema_generator=_Generator)
    return {model: found[model, "validation"] for model in models}, shared.get("$defs", {})


def with_units(schema: Any) -> Any:
    """Return a copy of `schema` in which the description of each duration and size names the units and the bounds."""
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


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas that a value may follow, one of them at a time."""
    found: list[dict[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or [schema]
    return found


class _Generator(GenerateJsonSchema):
    """pydantic's own, with defaults as a person writes them, and keys that match no pattern refused."""

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

"""The JSON Schema of the whole configuration, with the options of the processors that come with inbound."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from inbound.config import Config
from inbound.config.json_schema import DIALECT, schema_of, schemas_of
from inbound.errors import ConfigError
from inbound.plugins import BUILT_IN, find_processor
from inbound.processors.base import BatchEventProcessor
from inbound.subscriptions import SubscriptionOptions

Schema = dict[str, Any]


def configuration_schema() -> Schema:
    """Return the schema of `inbound.yaml`. Bounds of durations and sizes stand in `$comment`: see `with_units`."""
    options = {name: model for name in BUILT_IN if (model := options_model(find_processor(name).cls)) is not None}
    references, definitions = schemas_of([Config, SubscriptionOptions, *options.values()])
    subscriptions = definitions["ChannelConfig"]["properties"]["subscriptions"]
    subscriptions["patternProperties"] = dict.fromkeys(
        subscriptions["patternProperties"], references[SubscriptionOptions]
    )
    definitions["ProcessorConfig"]["allOf"] = [
        {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": {"properties": {"options": references[model]}, **_needs_options(model)},
        }
        for name, model in options.items()
    ]
    kinds = definitions["ProcessorConfig"]["properties"]["type"]
    kinds["anyOf"] = [{"enum": list(BUILT_IN)}, {"pattern": kinds.pop("pattern")}]  # the first for completion
    return {"$schema": DIALECT, "title": "inbound.yaml", **definitions.pop("Config"), "$defs": definitions}


def options_schema(cls: type[BatchEventProcessor], name: str) -> Schema:
    """Return the schema of a processor's `options`; without a model of its own it takes anything.

    Raises:
        ConfigError: a field of the model is of a type that JSON Schema knows nothing of.
    """
    head = {"$schema": DIALECT, "title": f"options of {name}"}
    model = options_model(cls)
    if model is None:
        return {**head, "type": "object", "description": f"{name} has no `Options` model, so nothing is checked."}
    try:
        return {**schema_of(model), **head}
    except PydanticUserError as error:
        reason = str(error.message).partition("\n")[0]
        raise ConfigError(
            f"{name}: {model.__name__} has no JSON Schema: {reason}; give the field pydantic's WithJsonSchema"
        ) from None


def options_model(cls: type[BatchEventProcessor]) -> type[BaseModel] | None:
    """Return the model that a processor's options are validated by, if it has one."""
    return cls.Options if isinstance(cls.Options, type) and issubclass(cls.Options, BaseModel) else None


def _needs_options(model: type[BaseModel]) -> Schema:
    needed = any(field.is_required() for field in model.model_fields.values())
    return {"required": ["options"]} if needed else {}

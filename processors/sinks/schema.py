"""The JSON Schema of one entry of `sinks`: what may stand beside each shipped sink's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import GetJsonSchemaHandler

from inbound.config.values import MODULE_CLASS
from inbound.processors.sinks.base import Sink

_OWN = {"type": "string", "pattern": f"^{MODULE_CLASS}$"}


def sink_schema(shipped: Mapping[str, type[Sink]], handler: GetJsonSchemaHandler) -> dict[str, Any]:
    """Return the schema of a name alone, or of a mapping with `type` and the sink's own options beside it."""
    entries = {name: _entry(name, sink, handler) for name, sink in shipped.items()}
    alone = [name for name, entry in entries.items() if entry["required"] == ["type"]]
    own = {
        "title": "module:Class",
        "type": "object",
        "properties": {"type": {**_OWN, "description": "module:Class of a sink of your own."}},
        "required": ["type"],
    }
    description = "The sink's name, or a mapping of its `type` and its own options."
    return {"description": description, "anyOf": [{"enum": alone}, _OWN, *entries.values(), own]}


def _entry(name: str, sink: type[Sink], handler: GetJsonSchemaHandler) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if sink.Options is not None:
        options = handler.resolve_ref_schema(handler(sink.Options.__pydantic_core_schema__))
    return {
        "title": name,
        "description": (sink.__doc__ or "").partition("\n\n")[0],
        "type": "object",
        "properties": {"type": {"const": name}, **options.get("properties", {})},
        "required": ["type", *options.get("required", ())],
        "additionalProperties": False,
    }

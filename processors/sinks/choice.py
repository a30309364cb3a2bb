"""One entry of the `simple` processor's `sinks`: class and options."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from inbound.config import schema
from inbound.config.problems import unknown_key
from inbound.config.values import MODULE_CLASS, wrong, wrong_at
from inbound.processors.sinks.base import BatchEventSink, EventSink, Sink

_OWN = {"type": "string", "pattern": f"^{MODULE_CLASS}$"}


def sink_schema(shipped: Mapping[str, type[Sink]], handler: GetJsonSchemaHandler) -> dict[str, Any]:
    """Return the schema of a name, or of `type` with options."""
    entries = {name: _entry(name, sink, handler) for name, sink in shipped.items()}
    alone = [name for name, entry in entries.items() if entry["required"] == ["type"]]
    own = {
        "title": "module:Class",
        "type": "object",
        "properties": {"type": {**_OWN, "description": "module:Class of your own sink."}},
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
        "description": inspect.getdoc(sink) or "",
        "type": "object",
        "properties": {"type": {"const": name}, **options.get("properties", {})},
        "required": ["type", *options.get("required", ())],
        "additionalProperties": False,
    }


SinkClass: TypeAlias = type[BatchEventSink] | type[EventSink]

#: The shipped sinks by name, with their classes, which are imported only when they are used.
SHIPPED = {
    "log": "inbound.processors.sinks.log:LogSink",
    "jsonl": "inbound.processors.sinks.jsonl:JsonlSink",
    "http": "inbound.processors.sinks.http:HttpSink",
}
_ALLOWED = f"{', '.join(SHIPPED)}, or module:Class for one of your own"


class SinkChoice(BaseModel):
    """A sink's name with its options: `log`, or `{type: jsonl, path: ./out.jsonl}`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str

    _made_of: SinkClass = PrivateAttr()
    _options: Any = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"type": value}
        if isinstance(value, dict) and "type" not in value:
            raise ValueError(f"a sink needs a `type`: {_ALLOWED}")
        return value

    @model_validator(mode="after")
    def _resolve(self, info: ValidationInfo) -> SinkChoice:
        try:
            sink_class = load_sink_class(self.type)
        except ValueError as error:
            raise wrong_at("SinkChoice", [(("type",), wrong(str(error)), self.type)]) from error
        self._made_of = sink_class
        self._options = _validated(self.type, sink_class, self.model_extra or {}, info.context)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return sink_schema({name: load_sink_class(name) for name in SHIPPED}, handler)

    @property
    def options(self) -> Any:
        """The sink's filled `Options` model; without a model an empty mapping."""
        return self._options

    def make(self) -> BatchEventSink | EventSink:
        """Make the sink, not yet opened."""
        made = self._made_of.made_for(self._options)
        assert isinstance(made, (BatchEventSink, EventSink)), made
        return made


def load_sink_class(name: str) -> SinkClass:
    """Import the class of a shipped sink or `module:Class`. Raises ValueError."""
    module_name, colon, class_name = SHIPPED.get(name, name).partition(":")
    if not (colon and module_name and class_name):
        raise ValueError(f"there is no sink {name!r}; allowed: {_ALLOWED}")
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except Exception as error:  # the user's module may raise anything
        raise ValueError(f"sink {name!r}: importing {module_name} failed: {type(error).__name__}: {error}") from error
    if found is None:
        raise ValueError(f"sink {name!r}: module {module_name} has no {class_name}")
    if not (isinstance(found, type) and issubclass(found, (BatchEventSink, EventSink))):
        raise ValueError(f"sink {name!r}: {class_name} must be a class made from BatchEventSink or EventSink")
    return found


def _validated(name: str, sink_class: type[Sink], options: dict[str, Any], context: Any) -> Any:
    model = sink_class.Options
    if model is None:
        if options:
            raise wrong_at("options", [((key,), wrong(f"sink {name!r} takes no options"), None) for key in options])
        return {}
    try:
        return model.model_validate(options, context=context)
    except ValidationError as error:
        details = [_problem(name, model, problem) for problem in error.errors()]
        raise ValidationError.from_exception_data("options", details) from error


def _problem(name: str, model: type[Any], problem: ErrorDetails) -> InitErrorDetails:
    """Return one problem of a sink's options; of unknown keys with hints."""
    place, kind = problem["loc"], problem["type"]
    details = InitErrorDetails(type=kind, loc=place, input=problem["input"], ctx=problem.get("ctx", {}))
    if kind == "extra_forbidden":
        _, around = schema.walk(model, place)
        details["type"] = wrong(f"sink {name!r}: {unknown_key(str(place[-1]), schema.keys(around))}")
    elif "url" not in problem:  # not one of pydantic's errors
        details["type"] = PydanticCustomError(kind, "{message}", {"message": problem["msg"]})
    return details

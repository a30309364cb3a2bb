"""One entry of the `simple` processor's `sinks`: which class, and with what options."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator

from inbound.processors.sinks.base import BatchEventSink, EventSink, Sink

SinkClass: TypeAlias = type[BatchEventSink] | type[EventSink]

#: Names for the sinks that come with inbound, and where they are: imported only when they are asked for.
SHIPPED = {
    "log": "inbound.processors.sinks.log:LogSink",
    "jsonl": "inbound.processors.sinks.jsonl:JsonlSink",
}
_ALLOWED = f"{', '.join(SHIPPED)}, or module:Class for one of your own"


class SinkChoice(BaseModel):
    """`log`, or `{type: jsonl, path: ./out.jsonl}`: the sink's name, and beside it its own options."""

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
    def _resolve(self) -> SinkChoice:
        sink_class = load_sink_class(self.type)
        self._made_of = sink_class
        self._options = _validated(self.type, sink_class, self.model_extra or {})
        return self

    @property
    def options(self) -> Any:
        """The sink's `Options` model, filled; an empty mapping for a sink that has none."""
        return self._options

    def make(self) -> BatchEventSink | EventSink:
        """Make the sink, not yet opened."""
        return self._made_of()


def load_sink_class(name: str) -> SinkClass:
    """Import the sink called `name` (a shipped one, or `module:Class`). Raises ValueError if there is none."""
    module_name, colon, class_name = SHIPPED.get(name, name).partition(":")
    if not (colon and module_name and class_name):
        raise ValueError(f"there is no sink {name!r}; allowed: {_ALLOWED}")
    try:
        found = getattr(importlib.import_module(module_name), class_name, None)
    except Exception as error:  # whatever the user's module raises while it is imported
        raise ValueError(f"sink {name!r}: importing {module_name} failed: {type(error).__name__}: {error}") from error
    if found is None:
        raise ValueError(f"sink {name!r}: module {module_name} has no {class_name}")
    if not (isinstance(found, type) and issubclass(found, (BatchEventSink, EventSink))):
        raise ValueError(f"sink {name!r}: {class_name} must be a class made from BatchEventSink or EventSink")
    return found


def _validated(name: str, sink_class: type[Sink], options: dict[str, Any]) -> Any:
    if sink_class.Options is None:
        if options:
            raise ValueError(f"sink {name!r} takes no options, but was given {', '.join(sorted(options))}")
        return {}
    try:
        return sink_class.Options.model_validate(options)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        allowed = ", ".join(sink_class.Options.model_fields)
        raise ValueError(f"sink {name!r}: {'; '.join(problems)} (its options: {allowed})") from error

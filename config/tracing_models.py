"""Tracing: where spans go, and how many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from inbound.config.http_values import HeaderFile, header_names, header_value, http_url
from inbound.config.units import shown
from inbound.config.values import Outside, Part, Problem, SecretFile, duration, folder, text, wrong, wrong_at

#: Where a collector listens that is on this machine, by backend.
PATHS = {"otlp": "/v1/traces", "zipkin": "/api/v2/spans"}
DEFAULT_ENDPOINTS = {
    "otlp": f"http://127.0.0.1:4318{PATHS['otlp']}",
    "zipkin": f"http://127.0.0.1:9411{PATHS['zipkin']}",
}
#: What a mounted folder says in place of the section.
_MOUNTED = ("backend", "endpoint", "sample_rate")


def rate(value: Any) -> float:
    """Return `value` if it is a part of all: 0 to 1."""
    number = value
    if isinstance(value, Outside):
        try:
            number = float(value)
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= 1:
        raise wrong(f"need a number from 0 (no trace) to 1 (every trace), got {shown(value)}")
    return float(number)


def _name(value: Any) -> str:
    name = text(value)
    if not name.strip() or not name.isprintable():
        raise wrong(f"need a name, got {shown(name)}")
    return name


Folder = Annotated[Path, BeforeValidator(folder), PlainSerializer(str, when_used="json")]


class TracingConfig(Part):
    """Traces of events from the ingress to the subscriber, by OpenTelemetry; needs the extra `tracing`."""

    backend: Literal["none", "otlp", "zipkin"] = Field(
        default="none", description="How spans are sent: OTLP over HTTP, or to Zipkin. With none nothing is traced."
    )
    # Not in repr: a query can hold a token.
    endpoint: Annotated[str, BeforeValidator(http_url)] | None = Field(
        default=None,
        repr=False,
        description="URL of the collector; without a path, the usual one of the backend. Default: this machine, "
        f"{DEFAULT_ENDPOINTS['otlp']} or {DEFAULT_ENDPOINTS['zipkin']}.",
    )
    sample_rate: Annotated[
        float, BeforeValidator(rate), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})
    ] = Field(
        default=0.1,
        description="Which part of the traces that begin here is recorded, from 0 to 1; of a trace that began elsewhere, "
        "whoever began it has decided.",
    )
    service_name: Annotated[str, BeforeValidator(_name)] = Field(
        default="inbound", description="What spans name as their service."
    )
    headers: Annotated[
        dict[str, Annotated[str | HeaderFile, BeforeValidator(header_value)]], AfterValidator(header_names)
    ] = Field(
        default_factory=dict,
        repr=False,
        description="Sent to the collector with every request; {file: path} for secrets.",
    )
    ca_file: SecretFile | None = Field(
        default=None, description="Who may sign the collector's certificate; default: the system's."
    )
    timeout: Annotated[float, duration(0.1, 30)] = Field(
        default=10.0, description="Time for one request to the collector."
    )
    folder: Folder | None = Field(
        default=None,
        description="A mounted `config-tracing`, with Knative's keys: it says backend, endpoint and sample_rate, and is read "
        "again when it changes.",
    )
    observability_folder: Folder | None = Field(
        default=None,
        description="A mounted `config-observability`, with Knative's keys: its `tracing-protocol`, if there is one, wins over "
        "`folder`.",
    )

    @model_validator(mode="after")
    def _check(self) -> TracingConfig:
        problems: list[Problem] = []
        by = next((name for name in ("folder", "observability_folder") if getattr(self, name) is not None), None)
        for name in _MOUNTED:
            if by is not None and name in self.model_fields_set:
                problems.append(
                    ((name,), wrong(f"is said by {by}, in what is mounted there; remove one of the two"), None)
                )
        if problems:
            raise wrong_at("TracingConfig", problems)
        return self

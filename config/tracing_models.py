"""The tracing section, and Knative's mounted ConfigMaps for it. Pure.

Keys of ConfigMaps for other things than tracing, and `_example`, are ignored. Missing keys have Knative's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from inbound.config.http_values import HeaderFile, header_names, header_value, http_url
from inbound.config.units import shown
from inbound.config.values import (
    Folder,
    OutsideText,
    SecretFile,
    StrictModel,
    duration,
    file_flag,
    refuse,
    text_that,
    wrong,
)

#: Paths of collectors, and the URL of a collector on this machine, by backend.
PATHS = {"otlp": "/v1/traces", "zipkin": "/api/v2/spans"}
DEFAULT_ENDPOINTS = {
    "otlp": f"http://127.0.0.1:4318{PATHS['otlp']}",
    "zipkin": f"http://127.0.0.1:9411{PATHS['zipkin']}",
}
#: Keys that a mounted folder sets instead of the section.
_MOUNTED = ("backend", "endpoint", "sample_rate")


def rate(value: Any) -> float:
    """Return `value` if it is a fraction, 0 to 1."""
    is_number = isinstance(value, (OutsideText, int, float)) and not isinstance(value, bool)
    try:
        number = float(value) if is_number else -1.0
    except (ValueError, OverflowError):
        number = -1.0
    if not 0 <= number <= 1:
        raise wrong(f"need a number from 0 (no trace) to 1 (every trace), got {shown(value)}")
    return number


def _is_name(name: str) -> bool:
    return bool(name.strip()) and name.isprintable()


class TracingConfig(StrictModel):
    """Traces of events from the ingress to the subscriber, by OpenTelemetry.

    Needs the extra `tracing`.
    """

    backend: Literal["none", "otlp", "zipkin"] = Field(
        default="none", description="How spans are sent: OTLP over HTTP, or to Zipkin; none: nothing is traced."
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
        description="Fraction of the traces begun here that is recorded, from 0 to 1; whether a trace begun elsewhere is recorded "
        "was decided there.",
    )
    service_name: Annotated[str, text_that(_is_name, "a name")] = Field(
        default="inbound", description="Name of the service in spans."
    )
    headers: Annotated[
        dict[str, Annotated[str | HeaderFile, BeforeValidator(header_value)]], AfterValidator(header_names)
    ] = Field(
        default_factory=dict,
        repr=False,
        description="Sent to the collector with every request; {file: path} for secrets.",
    )
    ca_file: SecretFile | None = Field(
        default=None, description="Authorities of the collector's certificate; default: the system's."
    )
    timeout: Annotated[float, duration(0.1, 30)] = Field(
        default=10.0, description="Time for one request to the collector."
    )
    folder: Folder | None = Field(
        default=None,
        description="A mounted `config-tracing`, with Knative's keys: it sets backend, endpoint and sample_rate, and is read "
        "again when it changes.",
    )
    observability_folder: Folder | None = Field(
        default=None,
        description="A mounted `config-observability`, with Knative's keys: its `tracing-protocol`, if there is one, wins over "
        "`folder`.",
    )

    @model_validator(mode="after")
    def _check(self) -> TracingConfig:
        by = next((name for name in ("folder", "observability_folder") if getattr(self, name) is not None), None)
        said = f"is set by the files in tracing.{by}; remove one of the two"
        refuse("TracingConfig", *((by and name in self.model_fields_set, name, said) for name in _MOUNTED))
        return self


# -- mounted ConfigMaps: Knative's config-tracing and config-observability -----------------------------------------


#: The keys that are read.
TRACING_KEYS = frozenset({"backend", "debug", "enable", "sample-rate", "zipkin-endpoint"})
OBSERVABILITY_KEYS = frozenset({"tracing-endpoint", "tracing-protocol", "tracing-sampling-rate"})
#: Knative's defaults: of `config-tracing`, and of `config-observability`.
_SAMPLE_RATE, _SAMPLING_RATE = "0.1", "0"


class MountedTracing(NamedTuple):
    """The settings of a mounted folder."""

    backend: str  # none, otlp, zipkin
    endpoint: str | None
    sample_rate: float


def from_config_tracing(files: Mapping[str, str]) -> MountedTracing:
    """Return the settings of a `config-tracing`, given its files by name.

    Raises:
        ValueError: a value cannot be used; the text begins with its key.
    """
    given = {name: text.strip() for name, text in files.items() if text.strip()}
    # Older versions had `enable` instead of `backend`.
    backend = given.get("backend", "zipkin" if file_flag(given, "enable") else "none")
    if backend not in ("none", "zipkin"):
        raise ValueError("backend: need none or zipkin; others are set in `tracing` of the configuration")
    rate = 1.0 if file_flag(given, "debug") else _rate(given, "sample-rate", _SAMPLE_RATE)
    if backend == "none":
        return MountedTracing("none", None, rate)
    return MountedTracing("zipkin", _endpoint(given, "zipkin-endpoint", "backend zipkin"), rate)


def from_config_observability(files: Mapping[str, str]) -> MountedTracing | None:
    """Return the settings of a `config-observability`, given its files by name.

    None: it sets nothing about tracing.

    Raises:
        ValueError: a value cannot be used; the text begins with its key.
    """
    given = {name: text.strip() for name, text in files.items() if text.strip()}
    protocol = given.get("tracing-protocol")
    if protocol is None:
        return None
    rate = _rate(given, "tracing-sampling-rate", _SAMPLING_RATE)
    if protocol == "none":
        return MountedTracing("none", None, rate)
    if protocol == "grpc":
        raise ValueError(
            "tracing-protocol: grpc is not spoken here; give http/protobuf, and in tracing-endpoint the collector's port for "
            "it, as a rule 4318"
        )
    if protocol != "http/protobuf":
        raise ValueError("tracing-protocol: need none or http/protobuf")
    return MountedTracing("otlp", _endpoint(given, "tracing-endpoint", "tracing-protocol http/protobuf"), rate)


def _endpoint(given: Mapping[str, str], key: str, wanted_by: str) -> str:
    text = given.get(key)
    if text is None:
        raise ValueError(f"{key}: is missing or empty, and {wanted_by} needs it")
    try:
        return http_url(text if "://" in text else f"http://{text}")
    except PydanticCustomError as error:
        raise ValueError(f"{key}: {error.message()}") from None


def _rate(given: Mapping[str, str], key: str, default: str) -> float:
    try:
        return rate(OutsideText(given.get(key, default)))
    except PydanticCustomError as error:
        raise ValueError(f"{key}: {error.message()}") from None

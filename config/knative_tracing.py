"""What Knative's ConfigMaps `config-tracing` and `config-observability` say about tracing, from their mounted files. Pure.

Keys that are not about tracing, and `_example`, are left alone. What is missing is as Knative has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic_core import PydanticCustomError

from inbound.config.http_values import http_url

#: The keys that are read.
TRACING_KEYS = frozenset({"backend", "debug", "enable", "sample-rate", "zipkin-endpoint"})
OBSERVABILITY_KEYS = frozenset({"tracing-endpoint", "tracing-protocol", "tracing-sampling-rate"})
#: Knative's own defaults, of the one and of the other.
_SAMPLE_RATE, _SAMPLING_RATE = "0.1", "0"


class Mounted(NamedTuple):
    """What a folder says."""

    backend: str  # none, otlp, zipkin
    endpoint: str | None
    sample_rate: float


def from_config_tracing(files: Mapping[str, str]) -> Mounted:
    """Return what the files of a `config-tracing` say, by their names.

    Raises:
        ValueError: a value cannot be used; the text begins with its key.
    """
    given = {name: text.strip() for name, text in files.items() if text.strip()}
    # `enable` is what older versions had for `backend`.
    backend = given.get("backend", "zipkin" if _flag(given, "enable") else "none")
    if backend not in ("none", "zipkin"):
        raise ValueError("backend: need none or zipkin; others are set in `tracing` of the configuration")
    rate = 1.0 if _flag(given, "debug") else _rate(given, "sample-rate", _SAMPLE_RATE)
    if backend == "none":
        return Mounted("none", None, rate)
    return Mounted("zipkin", _endpoint(given, "zipkin-endpoint", "backend zipkin"), rate)


def from_config_observability(files: Mapping[str, str]) -> Mounted | None:
    """Return what the files of a `config-observability` say, by their names; None: it says nothing about tracing.

    Raises:
        ValueError: a value cannot be used; the text begins with its key.
    """
    given = {name: text.strip() for name, text in files.items() if text.strip()}
    protocol = given.get("tracing-protocol")
    if protocol is None:
        return None
    rate = _rate(given, "tracing-sampling-rate", _SAMPLING_RATE)
    if protocol == "none":
        return Mounted("none", None, rate)
    if protocol == "grpc":
        raise ValueError(
            "tracing-protocol: grpc is not spoken here; give http/protobuf, and in tracing-endpoint the collector's port for "
            "it, as a rule 4318"
        )
    if protocol != "http/protobuf":
        raise ValueError("tracing-protocol: need none or http/protobuf")
    return Mounted("otlp", _endpoint(given, "tracing-endpoint", "tracing-protocol http/protobuf"), rate)


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
        rate = float(given.get(key, default))
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ValueError(f"{key}: need a number from 0 to 1")
    return rate


def _flag(given: Mapping[str, str], key: str) -> bool:
    text = given.get(key, "false").lower()
    if text not in ("true", "false", "1", "0", "t", "f"):
        raise ValueError(f"{key}: need true or false")
    return text in ("true", "1", "t")

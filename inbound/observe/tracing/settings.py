"""Reads the settings of traces from the section, mounted folders and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from urllib3.util import parse_url

from inbound.config import TracingConfig
from inbound.config.tracing_models import (
    DEFAULT_ENDPOINTS,
    OBSERVABILITY_KEYS,
    PATHS,
    TRACING_KEYS,
    MountedTracing,
    from_config_observability,
    from_config_tracing,
)
from inbound.errors import ConfigError
from inbound.processors.http_headers import header_text, tls_context

#: A larger file of a mounted folder is refused. Bytes.
LARGEST = 64 * 1024
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.propagators.b3")
_ENCODERS = {
    "otlp": "opentelemetry.exporter.otlp.proto.common.trace_encoder",
    "zipkin": "opentelemetry.exporter.zipkin.json.v2",
}


@dataclass(frozen=True)
class TracingSettings:
    """The sample rate of traces, and their collector."""

    backend: str  # otlp or zipkin
    endpoint: str = field(repr=False)
    sample_rate: float
    service_name: str
    headers: Mapping[str, str] = field(repr=False)
    timeout: float  # of one request, in seconds
    ca_file: Path | None = None


def settings_of(config: TracingConfig) -> TracingSettings | None:
    """Return the settings of the configuration; None: nothing is traced.

    Raises:
        ConfigError: a mounted folder or a file cannot be used, or OpenTelemetry is not installed.
    """
    said = _said(config)
    if said.backend == "none":
        return None
    _check_installed(said.backend)
    endpoint = said.endpoint or DEFAULT_ENDPOINTS[said.backend]
    url = parse_url(endpoint)
    if url.path in (None, "", "/"):
        endpoint = url._replace(path=PATHS[said.backend]).url
    headers = {name: header_text("tracing", name, value) for name, value in config.headers.items()}
    if config.ca_file is not None:
        tls_context("tracing", config.ca_file, None, None)
    return TracingSettings(
        said.backend, endpoint, said.sample_rate, config.service_name, headers, config.timeout, config.ca_file
    )


def _said(config: TracingConfig) -> MountedTracing:
    for key, folder, keys, parse in (
        ("observability_folder", config.observability_folder, OBSERVABILITY_KEYS, from_config_observability),
        ("folder", config.folder, TRACING_KEYS, from_config_tracing),
    ):
        try:
            said = parse(_contents(key, folder, keys)) if folder is not None else None
        except ValueError as error:
            raise ConfigError(f"tracing.{key}: {folder}/{error}") from None
        if said is not None:
            return said
    # With a folder the section itself has no backend, and no other setting.
    return MountedTracing(config.backend, config.endpoint, config.sample_rate)


def _check_installed(backend: str) -> None:
    for module in (*_NEEDED, _ENCODERS[backend]):
        try:
            found = find_spec(module) is not None
        except ModuleNotFoundError:  # of a package that it is in
            found = False
        if not found:
            raise ConfigError(
                f"tracing.backend {backend}: OpenTelemetry is not installed ({module} is missing); install it with: "
                "pip install 'inbound-kafka[tracing]', or set tracing.backend to none"
            )


def _contents(key: str, folder: Path, wanted: frozenset[str]) -> dict[str, str]:
    """Return the wanted files of a mounted folder, all of one version.

    Kubernetes swaps them by one link, `..data`.
    """
    for _ in range(5):
        data = folder / "..data"
        now = Path(os.path.realpath(data if data.exists() else folder))
        try:
            names = [name for name in sorted(os.listdir(now)) if name in wanted]
            found = {name: _read(now / name) for name in names}
        except OSError as error:
            if os.path.realpath(data if data.exists() else folder) != str(now):
                continue  # it was swapped while it was read
            raise ConfigError(
                f"tracing.{key}: {folder} cannot be read: {error.strerror}; mount the ConfigMap there"
            ) from None
        return found
    raise ConfigError(f"tracing.{key}: {folder} changes faster than it can be read")


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"{path.name}: is larger than {LARGEST} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path.name}: is not UTF-8") from None

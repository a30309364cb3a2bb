"""From the section `tracing` to what is to be done: with what mounted folders say, and files that it names read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from urllib3.util import parse_url

from inbound.config import TracingConfig
from inbound.config.knative_tracing import (
    OBSERVABILITY_KEYS,
    TRACING_KEYS,
    Mounted,
    from_config_observability,
    from_config_tracing,
)
from inbound.config.tracing_models import DEFAULT_ENDPOINTS, PATHS
from inbound.errors import ConfigError
from inbound.processors.http_values import header_text, tls_context

#: A longer file of a mounted folder is none of these settings. Bytes.
LARGEST = 64 * 1024
_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.propagators.b3")
_ENCODERS = {
    "otlp": "opentelemetry.exporter.otlp.proto.common.trace_encoder",
    "zipkin": "opentelemetry.exporter.zipkin.json.v2",
}


@dataclass(frozen=True)
class Settings:
    """What is traced, and where it goes."""

    backend: str  # otlp or zipkin
    endpoint: str = field(repr=False)
    sample_rate: float
    service_name: str
    headers: Mapping[str, str] = field(repr=False)
    timeout: float  # of one request, in seconds
    ca_file: Path | None = None

    @property
    def shown(self) -> str:
        """How messages name the collector: a query can hold a token."""
        url = parse_url(self.endpoint)
        return f"{url.scheme}://{url.netloc}{url.path or '/'}"


def settings_of(config: TracingConfig) -> Settings | None:
    """Return what the configuration asks for; None: nothing is traced.

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
    return Settings(
        said.backend, endpoint, said.sample_rate, config.service_name, headers, config.timeout, config.ca_file
    )


def _said(config: TracingConfig) -> Mounted:
    if config.observability_folder is not None:
        try:
            files = _contents("observability_folder", config.observability_folder, OBSERVABILITY_KEYS)
            said = from_config_observability(files)
        except ValueError as error:
            raise ConfigError(f"tracing.observability_folder: {config.observability_folder}/{error}") from None
        if said is not None:
            return said
    if config.folder is not None:
        try:
            return from_config_tracing(_contents("folder", config.folder, TRACING_KEYS))
        except ValueError as error:
            raise ConfigError(f"tracing.folder: {config.folder}/{error}") from None
    # With a folder the section itself says none, and cannot say anything else.
    return Mounted(config.backend, config.endpoint, config.sample_rate)


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
    """Return those files of a mounted folder, all of one moment: Kubernetes swaps them by one link, `..data`."""
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

"""Which files a configuration depends on beside its own: credentials and certificates, by who uses them.

What they hold is part of what is configured: when it changes, what uses them starts anew, as if a key had changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from inbound.config.http_values import AUDIENCE
from inbound.config.kafka_secret import kafka_files
from inbound.config.models import Config

#: Keys that name a file to be read, wherever they stand in the options of a processor, a sink or a subscriber.
READ_FROM = frozenset(
    {
        "ca_file",
        "cert_file",
        "client_ca_file",
        "client_cert",
        "client_key",
        "credentials_file",
        "key_file",
        "key_password_file",
        "password_file",
        "token_file",
    }
)


def depends_on(config: Config) -> dict[str, tuple[Path, ...]]:
    """Return files, and folders for all files in them, by who uses them.

    Keys are `kafka`, `zookeeper`, `ingress`, `manifests`, `tracing`, and `channels.<name>`; relative paths are relative to the
    working directory. Files that are read anew at each use, as tokens of listeners are, are not among them.
    """
    found = {
        "kafka": list(kafka_files(config.kafka)),
        "zookeeper": list(config.zookeeper.files),
        "ingress": _of_ingress(config),
        "manifests": list(_named(config.manifests.options)),
        "tracing": _of_tracing(config),
    }
    for name, channel in config.channels.items():
        found[f"channels.{name}"] = [*_named(channel.processor.options), *_named(channel.subscriptions)]
    return {user: tuple(sorted(set(paths))) for user, paths in found.items() if paths}


def _of_ingress(config: Config) -> list[Path]:
    tls = config.ingress.tls if config.ingress is not None else None
    return [path for path in (tls.cert, tls.key, tls.client_ca) if path is not None] if tls is not None else []


def _of_tracing(config: Config) -> list[Path]:
    tracing = config.tracing
    folders = [path for path in (tracing.folder, tracing.observability_folder) if path is not None]
    return [*folders, *_named(tracing)]


def _named(value: Any) -> Iterator[Path]:
    """Yield what `READ_FROM` names in models, mappings and lists, however deep."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key in READ_FROM and isinstance(below, (str, Path)):
                yield Path(below).parent if Path(below).name == AUDIENCE else Path(below)
            elif key == "headers" and isinstance(below, Mapping):
                yield from _in_headers(below)
            else:
                yield from _named(below)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for below in value:
            yield from _named(below)


def _in_headers(headers: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files that hold headers' values: see `inbound.processors.http_values.HeaderFile`."""
    for value in headers.values():
        file = value.get("file") if isinstance(value, Mapping) else getattr(value, "file", None)
        if isinstance(file, (str, Path)):
            yield Path(file)

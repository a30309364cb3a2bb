"""Loads a configuration, and finds the files that it depends on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from inbound.config.document import Places, dotted, parse
from inbound.config.http_values import AUDIENCE
from inbound.config.kafka_secret import kafka_files
from inbound.config.listener_models import PolicyConfig
from inbound.config.manifest_models import ChannelManifest, RefusedManifest, ResetManifest, SubscriptionManifest
from inbound.config.models import Config
from inbound.config.overrides import overlay
from inbound.config.problems import validation_problems
from inbound.config.values import WRITTEN
from inbound.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
#: Keys that name a file to be read, at any depth in the options of a processor, a sink or a subscriber.
READ_FROM = frozenset(
    {
        "ca_file", "cert_file", "client_ca_file", "client_cert", "client_key", "credentials_file", "key_file",
        "key_password_file", "password_file", "token_file",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """A configuration and the origin of each of its values."""

    config: Config
    #: Dotted path of each value -> `inbound.yaml:12`, `environment INBOUND__...`, `flag` or `default`.
    origins: Mapping[str, str]
    places: Places
    #: The channels of `config.manifests`, once the files are read: see `parse_manifests`.
    manifests: tuple[ChannelManifest, ...] = ()
    #: Knative's subscriptions in the manifests, which resets may name, and the resets.
    subscriptions: tuple[SubscriptionManifest, ...] = ()
    resets: tuple[ResetManifest, ...] = ()
    #: Unusable objects of the manifests, except resets.
    refused: tuple[RefusedManifest, ...] = ()
    #: A digest of the content of the files that `depends_on` names, by their users, once the files are read.
    contents: Mapping[str, str] = field(default_factory=dict)
    #: A digest of everything that the configuration was read from, in twelve hexadecimal digits.
    digest: str = ""

    def locate(self, path: str) -> str:
        """Return where `path` was set, or else the section around it."""
        return self.places.locate(path)

    def validate(self, model: type[M], path: str, value: Mapping[str, Any]) -> M:
        """Return a plugin's options, `value` at `path`, as a `model`. Raises ConfigError."""
        return validated(model, path, value, self.places)


def validated(model: type[M], path: str, value: Mapping[str, Any], places: Places) -> M:
    """Return `value`, which is at `path` of a file, as a `model`.

    Raises:
        ConfigError: a line per problem, with its place in the file.
    """
    try:
        return model.model_validate(value, context=WRITTEN)
    except ValidationError as error:
        lines = validation_problems(error, path, places.locate, model=model, written=places.text.get)
    raise ConfigError("\n".join(sorted(lines, key=_by_line)))


def read_text(path: Path, key: str | None = None) -> str:
    """Return the text of a file.

    `key` is the option or key that names it; None: it is the configuration.

    Raises ConfigError if it is missing, unreadable or not UTF-8.
    """
    subject, advice = (
        (f"{path}", "name the configuration with -c") if key is None else (f"{key}: {path}", "name another")
    )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{subject}: no such file; {advice}") from None
    except IsADirectoryError:
        raise ConfigError(f"{subject}: is a folder; name the file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{subject}: cannot be read: {reason}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{data[error.start]:02x}" if key is None else "a byte"  # the file may hold a token
        raise ConfigError(f"{subject}:{line}: {byte} is not UTF-8; save the file as UTF-8") from None


def load(
    text: str, *, filename: str, environ: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> Loaded:
    """Return the configuration of `text`, overridden by `environ` and flags.

    A flag wins over the environment, and the environment over the file. Of `environ` the variables `INBOUND__...` count;
    `overrides` maps dotted paths to the values of flags. Raises ConfigError, which lists every problem, one per line.
    """
    document = parse(text, filename)
    places = document.places
    problems = document.problems + overlay(document.tree, places, environ or {}, overrides or {})
    config: Config | None = None
    try:
        config = Config.model_validate(document.tree, context=WRITTEN)
    except ValidationError as error:
        found = validation_problems(error, "", places.locate, model=Config, written=places.text.get)
        # Unreadable values were left empty: their problem is reported already.
        problems += [line for line in found if not any(f": {path}: " in line for path in document.bad)]
    if problems or config is None:
        raise ConfigError("\n".join(sorted(dict.fromkeys(problems), key=_by_line)))
    origins = {path: places.where.get(path, "default") for path in _leaves(config)}
    return Loaded(config, origins, places)


def load_policy(content: str, filename: str) -> PolicyConfig:
    """Return the policy of a file.

    Raises:
        ConfigError: every problem, one a line, with file and line.
    """
    if not content.strip():
        raise ConfigError(f"{filename}: is empty; a policy that allows everything is `deny: []`")
    document = parse(content, filename)
    if document.problems:
        raise ConfigError("\n".join(document.problems))
    return validated(PolicyConfig, "", document.tree, document.places)


def _by_line(problem: str) -> tuple[bool, int]:
    """Order problems by line; those without one, as the environment's, come last."""
    line = re.match(r"[^\n]*?:([0-9]+): ", problem)
    return line is None, int(line[1]) if line else 0


def _leaves(value: Any, *path: str) -> Iterator[str]:
    """Yield the dotted path of each value; a list is one value."""
    below = {name: getattr(value, name) for name in type(value).model_fields} if isinstance(value, BaseModel) else value
    if not isinstance(below, Mapping) or (not below and path):
        yield dotted(*path)
        return
    for key, part in below.items():
        yield from _leaves(part, *path, key)


# -- files that a configuration depends on -------------------------------------------------------------------------


def depends_on(config: Config) -> dict[str, tuple[Path, ...]]:
    """Return the files of a configuration, by the part that uses them.

    Parts are `kafka`, `zookeeper`, `ingress`, `manifests`, `tracing`, and `channels.<name>`. A folder means its files; paths may
    be relative to the working directory. Files that are read at each use, as tokens of listeners are, are not among them.
    """
    tls, tracing = config.ingress.tls if config.ingress is not None else None, config.tracing
    of_ingress = (tls.cert, tls.key, tls.client_ca) if tls is not None else ()
    folders = (tracing.folder, tracing.observability_folder)
    found = {
        "kafka": list(kafka_files(config.kafka)),
        "zookeeper": list(config.zookeeper.files),
        "ingress": [path for path in of_ingress if path is not None],
        "manifests": list(_named(config.manifests.options)),
        "tracing": [*(path for path in folders if path is not None), *_named(tracing)],
    }
    for name, channel in config.channels.items():
        found[f"channels.{name}"] = [*_named(channel.processor.options), *_named(channel.subscriptions)]
    return {user: tuple(sorted(set(paths))) for user, paths in found.items() if paths}


def _named(value: Any) -> Iterator[Path]:
    """Yield the values of `READ_FROM` in models, mappings and lists, deeply."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key in READ_FROM and isinstance(below, (str, Path)):
                yield Path(below).parent if Path(below).name == AUDIENCE else Path(below)
            elif key == "headers" and isinstance(below, Mapping):
                for header in below.values():  # a value may be in a file: see `HeaderFile`
                    file = header.get("file") if isinstance(header, Mapping) else getattr(header, "file", None)
                    if isinstance(file, (str, Path)):
                        yield Path(file)
            else:
                yield from _named(below)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for below in value:
            yield from _named(below)

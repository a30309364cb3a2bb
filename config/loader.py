"""From text to a checked configuration, with every problem named at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from inbound.config.document import Places, dotted, parse
from inbound.config.kafka_channel import Manifest
from inbound.config.models import Config
from inbound.config.outside import overlay
from inbound.config.problems import validation_problems
from inbound.config.refused_manifest import RefusedManifest
from inbound.config.reset_offset import ResetManifest, Subscription
from inbound.config.values import WRITTEN
from inbound.errors import ConfigError

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Loaded:
    """A configuration and where each of its values comes from."""

    config: Config
    #: Dotted path of each value -> `inbound.yaml:12`, `environment INBOUND__...`, `flag` or `default`.
    origins: Mapping[str, str]
    places: Places
    #: The channels of `config.manifests`, once somebody has read the files: see `parse_manifests`.
    manifests: tuple[Manifest, ...] = ()
    #: Knative's subscriptions among them, which resets may name, and the resets themselves.
    subscriptions: tuple[Subscription, ...] = ()
    resets: tuple[ResetManifest, ...] = ()
    #: What of the manifests has no usable form.
    refused: tuple[RefusedManifest, ...] = ()
    #: What stands for the content of the files that `depends_on` names, by who uses them, once somebody has read them.
    contents: Mapping[str, str] = field(default_factory=dict)
    #: Stands for everything that it was read from, in twelve hexadecimal digits.
    digest: str = ""

    def locate(self, path: str) -> str:
        """Return where the dotted `path` was set; for a default, where the nearest thing around it was."""
        return self.places.locate(path)

    def validate(self, model: type[M], path: str, value: Mapping[str, Any]) -> M:
        """Return `value`, the mapping at `path`, as a `model`; for the options of plugins.

        Raises ConfigError with a line per problem, as `load` does.
        """
        return validated(model, path, value, self.places)


def validated(model: type[M], path: str, value: Mapping[str, Any], places: Places) -> M:
    """Return `value`, which stands at `path` of a file, as a `model`.

    Raises:
        ConfigError: a line per problem, with its place in the file.
    """
    try:
        return model.model_validate(value, context=WRITTEN)
    except ValidationError as error:
        lines = validation_problems(error, path, places.locate, model=model, written=places.written)
    raise ConfigError("\n".join(sorted(lines, key=_by_line)))


def read_text(path: Path) -> str:
    """Return the text of a configuration file. Raises ConfigError if there is none, or it is not UTF-8."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; name the configuration with -c") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name the file in it") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def load(
    text: str, *, filename: str, environ: Mapping[str, str] | None = None, overrides: Mapping[str, str] | None = None
) -> Loaded:
    """Return the configuration that `text` describes. A flag goes before the environment, that before the file.

    `environ` is looked through for `INBOUND__...`; `overrides` maps dotted paths to the values of flags. Raises
    ConfigError that lists every problem found, one per line.
    """
    document = parse(text, filename)
    places = document.places
    problems = document.problems + overlay(document.tree, places, environ or {}, overrides or {})
    config: Config | None = None
    try:
        config = Config.model_validate(document.tree, context=WRITTEN)
    except ValidationError as error:
        found = validation_problems(error, "", places.locate, model=Config, written=places.written)
        # What could not be read was left empty; that it is empty is no news.
        problems += [line for line in found if not any(f": {path}: " in line for path in document.bad)]
    if problems or config is None:
        raise ConfigError("\n".join(sorted(dict.fromkeys(problems), key=_by_line)))
    origins = {path: places.where.get(path, "default") for path in _leaves(config)}
    return Loaded(config, origins, places)


def _by_line(problem: str) -> tuple[bool, int]:
    """Order by line; what has none, such as the environment's, comes last."""
    line = re.match(r"[^\n]*?:([0-9]+): ", problem)
    return line is None, int(line[1]) if line else 0


def _leaves(value: Any, *path: str) -> Iterator[str]:
    """Yield the dotted path of every single value; a list counts as one."""
    below = {name: getattr(value, name) for name in type(value).model_fields} if isinstance(value, BaseModel) else value
    if not isinstance(below, Mapping) or (not below and path):
        yield dotted(*path)
        return
    for key, part in below.items():
        yield from _leaves(part, *path, key)

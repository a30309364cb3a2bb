"""From text to a checked configuration, and the files it depends on.

Values from the environment and from flags are laid over those of the file. `INBOUND__CHANNELS__ORDERS__WORKERS=8` sets
`channels.orders.workers`: `__` goes one level down, case doesn't matter, and `_` stands for the `.` and `-` that a variable's
name cannot hold. A flag names the dotted path itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from inbound.config import schema
from inbound.config.document import Places, dotted, parse, resolve
from inbound.config.http_values import AUDIENCE
from inbound.config.kafka_properties import canonical
from inbound.config.kafka_secret import kafka_files
from inbound.config.listener_models import PolicyConfig
from inbound.config.manifest_models import (
    CAMEL_CASE,
    ChannelManifest,
    RefusedManifest,
    ResetManifest,
    SubscriptionManifest,
)
from inbound.config.models import Config
from inbound.config.problems import unknown_key, validation_problems
from inbound.config.units import shown
from inbound.config.values import WRITTEN, OutsideText
from inbound.errors import ConfigError

M = TypeVar("M", bound=BaseModel)
PREFIX = "INBOUND__"
#: `INBOUND_KAFKA__...`: meant for us, and without this it would do nothing, silently.
_SLIP = re.compile(rf"INBOUND_({'|'.join(Config.model_fields)})(?=__)", re.IGNORECASE)
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


@dataclass(frozen=True)
class Loaded:
    """A configuration and where each of its values comes from."""

    config: Config
    #: Dotted path of each value -> `inbound.yaml:12`, `environment INBOUND__...`, `flag` or `default`.
    origins: Mapping[str, str]
    places: Places
    #: The channels of `config.manifests`, once the files are read: see `parse_manifests`.
    manifests: tuple[ChannelManifest, ...] = ()
    #: Knative's subscriptions among them, which resets may name, and the resets themselves.
    subscriptions: tuple[SubscriptionManifest, ...] = ()
    resets: tuple[ResetManifest, ...] = ()
    #: What of the manifests has no usable form.
    refused: tuple[RefusedManifest, ...] = ()
    #: What stands for the content of the files that `depends_on` names, by their users, once the files are read.
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
        lines = validation_problems(error, path, places.locate, model=model, written=places.text.get)
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
        found = validation_problems(error, "", places.locate, model=Config, written=places.text.get)
        # What could not be read was left empty; that it is empty is no news.
        problems += [line for line in found if not any(f": {path}: " in line for path in document.bad)]
    if problems or config is None:
        raise ConfigError("\n".join(sorted(dict.fromkeys(problems), key=_by_line)))
    origins = {path: places.where.get(path, "default") for path in _leaves(config)}
    return Loaded(config, origins, places)


def load_policy(content: str, filename: str) -> PolicyConfig:
    """Return the policy that a file holds.

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


# -- environment and flags -----------------------------------------------------------------------------------------


class _Refused(Exception):
    """The name leads to nothing that can be set, and why."""


def overlay(
    tree: dict[str, Any], places: Places, environ: Mapping[str, str], overrides: Mapping[str, str]
) -> list[str]:
    """Put the environment's values into `tree`, then the flags'. Returns a line per one that fits nowhere."""
    problems: list[str] = []
    taken: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.upper().startswith(PREFIX):
            if slip := _SLIP.match(variable):
                meant = f"{PREFIX}{variable[slip.start(1) :]}"
                problems.append(
                    f"environment {dotted(variable)}: begins with one underscore too few; did you mean {meant}?"
                )
            continue
        origin = f"environment {dotted(variable)}"
        try:
            path, setting = _find(tree, variable[len(PREFIX) :].lower(), "__", _folded), value
            if other := taken.get(dotted(*path)):
                raise _Refused(f"{dotted(*path)}: {other} sets it too; keep one")
            taken[dotted(*path)] = variable
            _set(tree, path, setting, places, origin)
        except _Refused as refusal:
            problems.append(f"{origin}: {refusal}")
    for name, value in overrides.items():
        try:
            _set(tree, _find(tree, name, ".", str), value, places, "flag")
        except _Refused as refusal:
            problems.append(f"flag {dotted(name)}: {refusal}")
    return problems


def _folded(key: str) -> str:
    return re.sub(r"[.-]", "_", key).lower()


def _find(tree: dict[str, Any], rest: str, separator: str, fold: Callable[[str], str]) -> list[str]:
    """Return the path that `rest` names, through the models and, where keys are free, the file's own keys."""
    path: list[str] = []
    annotation: Any = Config
    here: Any = tree
    while rest:
        if path == ["kafka"]:
            return [*path, canonical(rest)]
        known = list(here) if isinstance(here, dict) and not schema.keys(annotation) else schema.keys(annotation)
        if schema.in_options(path) and "subscriptions" in path[:3]:
            known += [name for name in CAMEL_CASE if name not in known]  # no variable could name them in their own case
        matching = [key for key in known if fold(rest) == fold(key) or fold(rest).startswith(fold(key) + separator)]
        longest = max((len(key) for key in matching), default=0)
        best = [key for key in matching if len(key) == longest]
        if len(best) > 1:
            raise _Refused(f"{dotted(*path)}: {' and '.join(best)} both match; rename one")
        if best:
            key = best[0]
            rest = rest[len(key) + len(separator) :]
        elif schema.in_options(path):
            key, _, rest = rest.partition(separator)
        else:
            name = rest.split(separator)[0]
            raise _Refused(_no_such(path, name, known, annotation))
        if not key:
            raise _Refused(f"{dotted(*path)}: the name ends in {separator}; name a value")
        path.append(key)
        annotation = schema.step(annotation, key)
        here = here.get(key) if isinstance(here, dict) else None
    if not path or (schema.is_section(annotation) and annotation is not Any):
        allowed = schema.keys(annotation or Config) or list(here or ())
        raise _Refused(f"{dotted(*path) or 'it'}: names a whole section; name one value of it: {', '.join(allowed)}")
    return path


def _no_such(path: list[str], name: str, known: list[str], annotation: Any) -> str:
    if path == ["channels"]:
        near = get_close_matches(_folded(name), map(_folded, known), n=1)
        hint = "".join(f"did you mean {key}? " for key in known if _folded(key) in near)
        return f"channels: no channel {shown(name)} in the file; {hint}it has {', '.join(known) or 'none'}"
    if not schema.is_section(annotation):
        return f"{dotted(*path)}: is one value, and has no {shown(name)} in it"
    return f"{dotted(*path, name)}: {unknown_key(name, known)}"


def _set(tree: dict[str, Any], path: list[str], value: str, places: Places, origin: str) -> None:
    here = tree
    for depth, key in enumerate(path[:-1], 1):
        below = here.get(key)
        if below is None:
            below = here[key] = {}
        if not isinstance(below, dict):
            raise _Refused(f"{dotted(*path)}: cannot be set, because {dotted(*path[:depth])} is not a mapping")
        here = below
    # An option's type is known to its processor alone, so it is read as YAML would; elsewhere the model decides.
    try:
        here[path[-1]] = resolve(value) if schema.in_options(path) else OutsideText(value)
    except ConfigError as error:
        raise _Refused(f"{dotted(*path)}: {error}") from None
    places.where[dotted(*path)] = origin
    places.text[dotted(*path)] = value


# -- files that a configuration depends on -------------------------------------------------------------------------


def depends_on(config: Config) -> dict[str, tuple[Path, ...]]:
    """Return files, and folders for all files in them, by who uses them.

    Keys are `kafka`, `zookeeper`, `ingress`, `manifests`, `tracing`, and `channels.<name>`; relative paths are relative to the
    working directory. Files that are read at each use, as tokens of listeners are, are not among them.
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
    """Yield what `READ_FROM` names in models, mappings and lists, however deep."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        for key, below in value.items():
            if key in READ_FROM and isinstance(below, (str, Path)):
                yield Path(below).parent if Path(below).name == AUDIENCE else Path(below)
            elif key == "headers" and isinstance(below, Mapping):
                for header in below.values():  # a value may stand in a file: see `HeaderFile`
                    file = header.get("file") if isinstance(header, Mapping) else getattr(header, "file", None)
                    if isinstance(file, (str, Path)):
                        yield Path(file)
            else:
                yield from _named(below)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        for below in value:
            yield from _named(below)

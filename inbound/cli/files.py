"""How commands get at the configuration: file, environment, flags."""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inbound.config import (
    AdminConfig,
    ChannelConfig,
    Loaded,
    RefusedManifest,
    depends_on,
    load,
    parse_manifests,
    read_text,
)
from inbound.config.known_secrets import KNOWN, remember
from inbound.errors import ConfigError
from inbound.short_files import read_short
from inbound.subscriptions import plain_channels, read_subscriptions

log = logging.getLogger(__name__)

#: What the name of a manifest in a folder ends in.
MANIFESTS = (".yaml", ".yml", ".json")
#: Of a longer file the size and the time of its last change stand for its content, and a longer manifest is not read. Bytes.
LONGEST_SECRET, LONGEST_MANIFEST = 2**20, 32 * 2**20
#: As many links as systems follow themselves.
_MOST_LINKS = 40


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add `-c` and `--set`."""
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        default=Path("inbound.yaml"),
        metavar="FILE",
        help="the configuration; default: inbound.yaml in this folder",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value of the file, such as channels.orders.workers=8; may be given several times. The environment "
        "does too: INBOUND__CHANNELS__ORDERS__WORKERS=8",
    )


def load_config(args: argparse.Namespace) -> Loaded:
    """Return the configuration that `args` name; the file's folder is put on the import path, for plugins.

    Raises:
        ConfigError: every problem, one a line, with file and line.
    """
    return ConfigFiles(args).load()


def known_channels(loaded: Loaded) -> dict[str, ChannelConfig]:
    """Return all channels as they run, and warn of each manifest that cannot be used: its channels are not among them.

    Raises:
        ConfigError: as `read_subscriptions`.
    """
    subscriptions = read_subscriptions(loaded)
    warn_of(subscriptions.refused)
    return {**plain_channels(loaded), **{name: made.config for name, made in subscriptions.found.items()}}


def warn_of(refused: Iterable[RefusedManifest]) -> None:
    """Warn of manifests that a command does without, for they cannot be used."""
    for one in refused:
        log.warning("%s cannot be used, and is left out: %s", one.subject, one.problem)


class ConfigFiles:
    """The configuration that `args` name: a file, the manifests that it names, the environment and the flags.

    See `inbound.reconfiguration.Source`.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        """Raises ConfigError if a flag cannot be read."""
        self._path: Path = args.config
        self._overrides = {}
        for item in args.set:
            key, equals, value = item.partition("=")
            if not equals:
                raise ConfigError(f"--set {item}: need KEY=VALUE")
            self._overrides[key] = value
        self._manifests: tuple[Path, ...] = ()
        self._beside: dict[str, tuple[Path, ...]] = {}
        self._current: str | None = None
        self._candidate: str | None = None

    def load(self) -> Loaded:
        """Return the configuration as it is now; the file's folder is put on the import path, for plugins.

        Raises:
            ConfigError: every problem, one a line, with file and line.
        """
        text = read_text(self._path)
        loaded = load(text, filename=str(self._path), environ=os.environ, overrides=self._overrides)
        importable(self._path.resolve().parent)
        self._manifests = loaded.config.manifests.paths
        self._beside = depends_on(loaded.config)
        files = read_manifests(self._path.parent, self._manifests)
        manifests = parse_manifests(files.texts)
        for note in manifests.notes:
            log.info("%s", note)
        remember_secrets(loaded)
        contents = {user: _content(paths) for user, paths in self._beside.items()}
        self._current = _digest({str(self._path): text, **files.texts, **files.unreadable, **contents})
        return replace(
            loaded,
            manifests=manifests.channels,
            subscriptions=manifests.subscriptions,
            resets=manifests.resets,
            refused=(*files.refused(), *manifests.refused),
            contents=contents,
            digest=self._current[:12],
        )

    def changed(self) -> Loaded | None:
        """Return the configuration if the files hold another one than when this was last asked, or loaded.

        What they hold must be the same at two looks: files are written one by one, and not in one go. Content counts, read
        through the path each time, for a mounted ConfigMap changes by a link that points elsewhere.

        Raises:
            ConfigError: what they hold now cannot be used; once.
        """
        try:
            files = read_manifests(self._path.parent, self._manifests)
            contents = {user: _content(paths) for user, paths in self._beside.items()}
            texts = {str(self._path): read_text(self._path), **files.texts, **files.unreadable}
            digest = _digest({**texts, **contents})
        except ConfigError as error:
            digest = str(error)
        if digest == self._current or digest != self._candidate:
            self._candidate = digest
            return None
        self._current = digest
        return self.load()

    def again(self) -> None:
        """Let the next look that agrees with the one before return what the files hold, or raise, although it is known."""
        self._current = self._candidate = None

    @property
    def unsettled(self) -> bool:
        """Whether the last look found something that another one has to confirm."""
        return self._candidate != self._current

    def folders(self) -> set[Path]:
        """Return the folders in which something happens when one of the files changes: those of links, too."""
        files = {self._path, *(path for paths in self._beside.values() for path in paths)}
        files |= {self._path.parent / path for path in self._manifests}
        return {folder for path in files for folder in folders_of(path)}


def folders_of(path: Path) -> set[Path]:
    """Return the folders that say when what is at `path` changes: its own, those of all links on the way, and itself."""
    found: set[Path] = set()
    todo = Path(os.path.abspath(path))
    for _ in range(_MOST_LINKS):
        link = next((part for part in (*reversed(todo.parents), todo) if os.path.islink(part)), None)
        if link is None:
            break
        found.add(link.parent)
        try:
            target = link.parent / link.readlink()
        except OSError:  # it has changed meanwhile
            break
        todo = Path(os.path.abspath(target / todo.relative_to(link)))
    found |= {todo, todo.parent}
    return {folder for folder in found if os.path.isdir(folder)}


def _content(paths: Iterable[Path]) -> str:
    """Return what stands for the content of files, and of all files in the folders among them; it does not tell it."""
    hashed = hashlib.sha256()
    for path in paths:
        try:
            names = sorted(name for name in os.listdir(path) if not name.startswith("..")) if path.is_dir() else [""]
        except OSError as error:
            names = [f"? {error.errno}"]
        for name in names:
            one = path / name
            try:
                data = b"" if name and one.is_dir() else _data(one)
            except OSError as error:  # who reads it says what is wrong with it
                data = f"? {error.errno}".encode()
            hashed.update(f"{len(str(one))} {len(data)} {one}".encode() + data)
    return hashed.hexdigest()


def _data(path: Path) -> bytes:
    found = path.stat()
    if found.st_size <= LONGEST_SECRET and stat.S_ISREG(found.st_mode):
        return read_short(path, LONGEST_SECRET)
    return f"{found.st_mode} {found.st_size} {found.st_mtime_ns}".encode()


def _digest(files: Mapping[str, str]) -> str:
    hashed = hashlib.sha256()
    for name, text in files.items():
        hashed.update(f"{len(name)} {len(text)} {name}{text}".encode())
    return hashed.hexdigest()


@dataclass(frozen=True)
class ManifestFiles:
    """What files of manifests hold, by name."""

    texts: dict[str, str]
    unreadable: dict[str, str]  # those that cannot be read, and why

    def refused(self) -> tuple[RefusedManifest, ...]:
        """Return those that cannot be read as what they are: each stops alone."""
        return tuple(
            RefusedManifest(kind=None, file=name, where=name, problem=problem)
            for name, problem in self.unreadable.items()
        )


def read_manifests(folder: Path, paths: Iterable[Path]) -> ManifestFiles:
    """Return what the files among `paths`, and in the folders among them, hold; relative ones are in `folder`.

    Raises:
        ConfigError: there is no such file or folder, or the folder cannot be read.
    """
    found = ManifestFiles({}, {})
    for path in paths:
        place = folder / path
        try:
            if not place.exists():
                raise ConfigError(f"manifests.paths: {place}: no such file or folder")
            names = sorted(one.name for one in place.iterdir()) if place.is_dir() else None
        except OSError as error:
            raise ConfigError(f"manifests.paths: {place}: cannot be read: {error.strerror}") from None
        inside = [place / name for name in names or () if not name.startswith(".") and name.endswith(MANIFESTS)]
        for file in [place] if names is None else [one for one in inside if not one.is_dir()]:
            try:
                _check_manifest(file)
                found.texts[str(file)] = read_text(file)
            except ConfigError as error:
                found.unreadable[str(file)] = str(error)
    return found


def _check_manifest(file: Path) -> None:
    """Raise ConfigError where reading would not end, or not soon."""
    try:
        found = file.stat()
    except OSError:
        return  # who reads it says what is wrong with it
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{file}: is no file; remove it from the manifests")
    if found.st_size > LONGEST_MANIFEST:
        raise ConfigError(f"{file}: has more than {LONGEST_MANIFEST // 2**20} MiB; split it")


def remember_secrets(loaded: Loaded) -> None:
    """Have no log show the passwords and tokens that the configuration holds itself."""
    config = loaded.config
    KNOWN.remember_in(config.kafka)
    KNOWN.remember_in(config.manifests.options)
    KNOWN.remember_in(config.reset.options)
    KNOWN.remember_in(config.tracing.headers, secret=True)
    for channel in config.channels.values():
        KNOWN.remember_in([channel.processor.options, channel.subscriptions, channel.coordinator.model_dump()])


def importable(folder: Path) -> None:
    """Put `folder` on the import path, for plugins that stand in it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def admin_token(admin: AdminConfig) -> Callable[[], str] | None:
    """Return what reads the token for operations, as `token_reader` does."""
    return token_reader(admin.token_file, "admin.token_file")


def token_reader(path: Path | None, key: str) -> Callable[[], str] | None:
    """Return what reads a token, anew each time, for a mounted secret changes; None: there is none.

    Raises:
        ConfigError: the file that `key` names cannot be used; so does the reader, if that comes later.
    """
    if path is None:
        return None

    def read() -> str:
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(f"{key}: {path} cannot be read: {reason}") from None
        if not token or len(token.split()) != 1:
            raise ConfigError(f"{key}: {path} must hold one word: the token")
        remember(token)
        return token

    read()
    return read

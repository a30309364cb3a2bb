"""The files that commands read, and the folders of inbound's own files."""

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

from inbound.cli.shared.command import key_value
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
from inbound.config.secrets import KNOWN, remember
from inbound.errors import ConfigError
from inbound.plan.subscriptions import plain_channels, read_subscriptions
from inbound.runtime.text import read_short

log = logging.getLogger(__name__)

#: Endings of a manifest's name in a folder.
MANIFESTS = (".yaml", ".yml", ".json")
#: Bytes. A longer secret is compared by size and time instead of content; a longer manifest is not read.
LONGEST_SECRET, LONGEST_MANIFEST = 2**20, 32 * 2**20
#: As many links as operating systems follow.
_MOST_LINKS = 40


def load_config(args: argparse.Namespace) -> Loaded:
    """Return the configuration that `args` name.

    Its folder goes on the import path, for plugins.

    Raises:
        ConfigError: every problem, one a line, with file and line.
    """
    return ConfigFiles(args).load()


def known_channels(loaded: Loaded) -> dict[str, ChannelConfig]:
    """Return all channels that can run; warn of unusable manifests.

    Raises:
        ConfigError: as `read_subscriptions`.
    """
    subscriptions = read_subscriptions(loaded)
    warn_of(subscriptions.refused)
    return {**plain_channels(loaded), **{name: made.config for name, made in subscriptions.found.items()}}


def warn_of(refused: Iterable[RefusedManifest]) -> None:
    """Log a warning for each manifest that is left out."""
    for one in refused:
        log.warning("%s cannot be used, and is left out: %s", one.subject, one.problem)


class ConfigFiles:
    """The configuration that `args` name, and its changes.

    It comes from a file, the manifests that the file names, the environment and the flags. It is a
    `inbound.process.reload.reconfiguration.Source`.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        """Raises ConfigError if a flag cannot be read."""
        self._path: Path = args.config
        self._overrides = dict(key_value("--set", item) for item in args.set)
        self._manifests: tuple[Path, ...] = ()
        self._beside: dict[str, tuple[Path, ...]] = {}
        self._current: str | None = None
        self._candidate: str | None = None

    def load(self) -> Loaded:
        """Return the configuration as it is now; see `load_config`."""
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
        """Return the configuration if its files have changed since the last call.

        Two looks must find the same content, because files are written one by one. The content is read through the path each
        time: a mounted ConfigMap changes by a link that points elsewhere.

        Raises:
            ConfigError: the changed files cannot be used; once.
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
        """Let `changed` load the files once more, even if unchanged."""
        self._current = self._candidate = None

    @property
    def unsettled(self) -> bool:
        """Whether the last look found a change to confirm."""
        return self._candidate != self._current

    def folders(self) -> set[Path]:
        """Return the folders to watch, also those of links."""
        files = {self._path, *(path for paths in self._beside.values() for path in paths)}
        files |= {self._path.parent / path for path in self._manifests}
        return {folder for path in files for folder in folders_of(path)}


def folders_of(path: Path) -> set[Path]:
    """Return the folders to watch at `path`, also those of links."""
    found: set[Path] = set()
    todo = Path(os.path.abspath(path))
    for _ in range(_MOST_LINKS):
        link = next((part for part in (*reversed(todo.parents), todo) if os.path.islink(part)), None)
        if link is None:
            break
        found.add(link.parent)
        try:
            target = link.parent / link.readlink()
        except OSError:  # it has just changed
            break
        todo = Path(os.path.abspath(target / todo.relative_to(link)))
    found |= {todo, todo.parent}
    return {folder for folder in found if os.path.isdir(folder)}


def _content(paths: Iterable[Path]) -> str:
    """Return a digest of files, and of the files in folders."""
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
            except OSError as error:  # its reader reports the problem
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
    """The texts of manifest files, by name."""

    texts: dict[str, str]
    unreadable: dict[str, str]  # those that cannot be read, and why

    def refused(self) -> tuple[RefusedManifest, ...]:
        """Return the unreadable files as refused manifests: each stops only itself."""
        return tuple(
            RefusedManifest(kind=None, file=name, where=name, problem=problem)
            for name, problem in self.unreadable.items()
        )


def read_manifests(folder: Path, paths: Iterable[Path]) -> ManifestFiles:
    """Return the manifests at `paths`, relative to `folder`.

    A path is a file, or a folder of files.

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
    """Raise ConfigError for a file that would take too long to read."""
    try:
        found = file.stat()
    except OSError:
        return  # its reader reports the problem
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{file}: is no file; remove it from the manifests")
    if found.st_size > LONGEST_MANIFEST:
        raise ConfigError(f"{file}: has more than {LONGEST_MANIFEST // 2**20} MiB; split it")


def remember_secrets(loaded: Loaded) -> None:
    """Hide the passwords and tokens of the configuration from all logs."""
    config = loaded.config
    KNOWN.remember_in(config.kafka)
    KNOWN.remember_in(config.manifests.options)
    KNOWN.remember_in(config.reset.options)
    KNOWN.remember_in(config.tracing.headers, secret=True)
    for channel in config.channels.values():
        KNOWN.remember_in([channel.processor.options, channel.subscriptions, channel.coordinator.model_dump()])


def importable(folder: Path) -> None:
    """Put `folder` on the import path, for plugins in it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def admin_token(admin: AdminConfig) -> Callable[[], str] | None:
    return token_reader(admin.token_file, "admin.token_file")


def token_reader(path: Path | None, key: str) -> Callable[[], str] | None:
    """Return the reader of a token; None without a file.

    It reads the file each time, because a mounted secret changes.

    Raises:
        ConfigError: the file that `key` names cannot be used. The reader raises it, too.
    """
    if path is None:
        return None

    def read() -> str:
        token = read_text(path, key).strip()
        if not token or len(token.split()) != 1:
            raise ConfigError(f"{key}: {path} must hold one word: the token")
        remember(token)
        return token

    read()
    return read


# -- inbound's own files, by the XDG base directories --------------------------------------------------------------------


def jar_cache() -> Path:
    """Return the folder of the servers' jars, `$XDG_CACHE_HOME/inbound/jars`."""
    return _base("XDG_CACHE_HOME", ".cache") / "inbound" / "jars"


def state_dir() -> Path:
    """Return the folder of files that outlive a command, `$XDG_STATE_HOME/inbound`."""
    return _base("XDG_STATE_HOME", ".local/state") / "inbound"


def java_command() -> str:
    """Return the servers' Java: `$JAVA_HOME/bin/java`, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is to be ignored.
    return Path(value) if os.path.isabs(value) else Path.home() / default

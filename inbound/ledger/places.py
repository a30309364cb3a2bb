"""Accesses a ledger's folder: local, or behind a URI that pyarrow knows.

pyarrow is imported only when a URI is used.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from inbound.errors import ConfigError, LedgerError
from inbound.ledger.disk import reason
from inbound.ledger.format import temporary_name

#: File systems that show an object only when it is complete.
_WHOLE_OBJECTS = frozenset({"s3", "gcs", "abfs"})

#: Schemes of file systems for which pyarrow may look up servers.
_NETWORK = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A file or folder below a URI; printed without the URI's options."""

    base: str
    relative: str = ""  # empty: the URI itself, which is its own parent

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.base, self.relative.rpartition("/")[0])

    def with_name(self, name: str) -> RemotePath:
        return self.parent / name

    def __truediv__(self, part: str) -> RemotePath:
        return RemotePath(self.base, f"{self.relative}/{part}" if self.relative else part)

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __str__(self) -> str:
        return "/".join(filter(None, (without_options(self.base), self.relative)))


FilePath = Path | RemotePath


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a listing has found."""

    path: FilePath
    size: int  # bytes
    modified: float  # seconds since 1970


def place_of(place: Path | str | RemotePath) -> FilePath:
    """Return a place as a path; text with `://` is a URI."""
    if isinstance(place, (Path, RemotePath)):
        return place
    return RemotePath(place) if "://" in place else Path(place)


def without_options(uri: str) -> str:
    """Return a URI without user, password and query, which may be secret."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def files_below(folder: FilePath, *, missing_ok: bool = False) -> list[FoundFile]:
    """List the files in the folders of `folder`, one level down, sorted.

    Raises:
        LedgerError: there is no such folder (unless `missing_ok`), or it can't be listed.
    """
    try:
        if isinstance(folder, Path) and missing_ok and not folder.exists():
            return []
        found = _local_files(folder) if isinstance(folder, Path) else _remote_files(folder, missing_ok)
        return sorted(found, key=lambda file: str(file.path))
    except OSError as error:
        raise LedgerError(
            f"ledger directory {folder}: it cannot be listed ({reason(error)}); check ledger.path and its rights"
        ) from error


def open_file(path: FilePath) -> BinaryIO:
    """Open a file for reading; the caller closes it. May raise OSError."""
    if isinstance(path, Path):
        return path.open("rb")
    system, root = file_system(path.base)
    # pyarrow's files yield no lines; see `split_lines`.
    return cast(BinaryIO, system.open_input_file(_below(root, path.relative)))


def put_file(source: Path, target: RemotePath) -> None:
    """Copy a local file, whole or not at all; OSError if unsure."""
    system, root = file_system(target.base)
    path = _below(root, target.relative)
    folder, _, name = path.rpartition("/")
    whole = system.type_name in _WHOLE_OBJECTS
    under = path if whole else f"{folder}/{temporary_name(name)}"
    if not whole:
        system.create_dir(folder, recursive=True)
    sent = 0
    with source.open("rb") as data, system.open_output_stream(under) as out:
        while block := data.read(1 << 20):
            out.write(block)
            sent += len(block)
    if not whole:
        system.move(under, path)
    arrived = system.get_file_info(path).size
    if arrived != sent:
        raise OSError(errno.EIO, f"{arrived} of {sent} bytes have arrived", str(target))


def remove_file(path: FilePath) -> None:
    """Delete a file, if it is there. May raise OSError."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    system, root = file_system(path.base)
    try:
        system.delete_file(_below(root, path.relative))
    except FileNotFoundError:
        pass  # another process has deleted it


def check_uri(uri: str) -> None:
    """Raise ConfigError if pyarrow is missing or does not know the URI."""
    _pyarrow(uri)
    if urlsplit(uri).scheme not in _NETWORK:
        file_system(uri)


@lru_cache(maxsize=8)
def file_system(uri: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a URI, and the path in it.

    For a bucket, pyarrow may ask for its region first.

    Raises:
        ConfigError: pyarrow is not installed, or knows no such file system.
        LedgerError: it can't be reached.
    """
    _pyarrow(uri)
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    try:
        system, root = FileSystem.from_uri(uri)
    except (ArrowException, ValueError) as error:
        raise ConfigError(
            f"ledger.path {without_options(uri)}: {reason(error)}; give a folder, or another URI"
        ) from error
    except OSError as error:
        raise LedgerError(
            f"ledger.path {without_options(uri)}: it cannot be reached ({reason(error)}); check its name and the network"
        ) from error
    return system, root


def _pyarrow(uri: str) -> None:
    try:
        import_module("pyarrow.fs")
    except ImportError as error:
        raise ConfigError(
            f"ledger.path {without_options(uri)}: a URI needs pyarrow, which is not installed; "
            "run: pip install 'inbound-kafka[ledger]'"
        ) from error


def _local_files(folder: Path) -> Iterator[FoundFile]:
    if not folder.is_dir():
        raise LedgerError(f"ledger directory {folder}: there is no such directory; check ledger.path")
    for path in folder.glob("*/*"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # just converted, shipped or deleted
        if path.is_file():
            yield FoundFile(path, status.st_size, status.st_mtime)


def _remote_files(folder: RemotePath, missing_ok: bool) -> Iterator[FoundFile]:
    from pyarrow.fs import FileSelector, FileType

    system, root = file_system(folder.base)
    if folder.relative:
        root = _below(root, folder.relative)
    for info in system.get_file_info(FileSelector(root, recursive=True, allow_not_found=missing_ok)):
        relative = info.path[len(root) :].strip("/")
        if info.type == FileType.File and relative.count("/") == 1:
            yield FoundFile(folder / relative, info.size, (info.mtime_ns or 0) / 1e9)


def _below(root: str, relative: str) -> str:
    return f"{root.rstrip('/')}/{relative}" if relative else root

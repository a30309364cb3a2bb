"""The archive's folder, on any file system of Hadoop in Spark's JVM."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JJavaError

from inbound.spark.archive.layout import ArchiveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class File(NamedTuple):
    """A file below the archive's folder."""

    path: str  # relative
    size: int


class Storage:
    """Files and folders by their paths relative to `uri`. Any thread.

    Every method raises ArchiveError if the file system refuses.
    """

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self.uri = uri.rstrip("/")
        jvm: Any = spark._jvm
        self._jvm = jvm
        with self._refusals(""):
            root = jvm.org.apache.hadoop.fs.Path(self.uri)
            self._fs = root.getFileSystem(spark._jsc.hadoopConfiguration())
            self._root: str = self._fs.makeQualified(root).toString().rstrip("/")
            #: The folder on this machine; None where it is on no local disk.
            self.local: Path | None = None
            if self._fs.getUri().getScheme() == "file":
                # Hadoop would put a hidden file with a checksum beside each of ours.
                self._fs = self._fs.getRawFileSystem()
                self.local = Path(root.toUri().getPath())

    def full(self, path: str) -> str:
        """Return a path for Spark."""
        return f"{self._root}/{path}"

    def exists(self, path: str) -> bool:
        with self._refusals(path):
            return bool(self._fs.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder, none if it is absent."""
        with self._refusals(path):
            if not self._fs.exists(self._path(path)):
                return []
            return sorted(status.getPath().getName() for status in self._fs.listStatus(self._path(path)))

    def files(self, path: str) -> list[File]:
        """Return the sorted files at any depth, none if it is absent."""
        with self._refusals(path):
            if not self._fs.exists(self._path(path)):
                return []
            found = []
            left = self._fs.listFiles(self._path(path), True)
            while left.hasNext():
                status = left.next()
                found.append(File(status.getPath().toString().removeprefix(f"{self._root}/"), int(status.getLen())))
            return sorted(found)

    def read(self, path: str) -> str:
        with self._refusals(path), closing(self._fs.open(self._path(path))) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def create(self, path: str, text: str) -> bool:
        """Write a file atomically; return False if there is one already."""
        with self._refusals(path):
            if self._fs.exists(self._path(path)):
                return False
            folder, _, name = path.rpartition("/")
            draft = self._path(f"{folder}/.{name}-{uuid.uuid4().hex}")
            with closing(self._fs.create(draft, True)) as stream:
                stream.write(text.encode())
            if not self._fs.rename(draft, self._path(path)):
                raise ArchiveError(f"{self.uri}/{path}: cannot be created; check that its folder can be written to")
            return True

    def move(self, source: str, target: str) -> None:
        """Move a file or folder to a free path, and make parents."""
        with self._refusals(target):
            place = self._path(target)
            self._fs.mkdirs(place.getParent())
            if not self._fs.rename(self._path(source), place):
                raise ArchiveError(
                    f"{self.uri}/{target}: {source} cannot be moved there; check that it can be written to"
                )

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content, if it exists."""
        with self._refusals(path):
            self._fs.delete(self._path(path), True)

    def make_folder(self, path: str) -> None:
        with self._refusals(path):
            self._fs.mkdirs(self._path(path))

    def _path(self, path: str) -> Any:
        # With the root: a relative Path would take the part before a colon for a scheme.
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{path}" if path else self._root)

    @contextmanager
    def _refusals(self, path: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            said = str(error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName())
            raise ArchiveError(
                f"{self.uri}{'/' if path else ''}{path}: {said.splitlines()[0]}; check --to and who may write there"
            ) from None

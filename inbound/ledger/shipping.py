"""Ships whole ledger files from a local spool to a URI."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from pathlib import Path
from typing import BinaryIO

from inbound.clock import Clock
from inbound.errors import InboundError, LedgerError
from inbound.ledger.conversion import ParquetWriter
from inbound.ledger.files import FilesLedger
from inbound.ledger.format import PARQUET_SUFFIX, SUFFIX, FileName, path_part, temporary_name
from inbound.ledger.housekeeping import delete_old, ended, explained, remove_left
from inbound.ledger.places import FoundFile, RemotePath, files_below, put_file, without_options
from inbound.runtime.backoff import Backoff

log = logging.getLogger("inbound.ledger")

#: Delays after failures.
BACKOFF = Backoff(1.0, 300.0)
#: Seconds between looks for old files at the target.
RETENTION_EVERY = 3600.0
#: After so many failures the remaining files wait for the next round.
_PATIENCE = 3


def spool_of(uri: str, spool: Path) -> Path:
    """Return a URI's own spool folder below `spool`."""
    return spool / f"{path_part(without_options(uri))[:80]}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}"


class Shipping:
    """Ends this process's ledger files regularly, and ships the spool's ended files.

    An active part (`inbound.runtime.driver.Part`). A file of the spool is deleted once its copy is known to be whole;
    the next process ships what a dead one left. Any thread may read the attributes.
    """

    def __init__(
        self, spool: Path, uri: str, clock: Clock, *, compact: bool, interval: float, retention: float,
        writer: ParquetWriter | None = None,
    ) -> None:  # fmt: skip
        """`spool` is what `spool_of` gives; durations in seconds. Connects to nothing."""
        self._spool = spool
        self._target = RemotePath(uri)
        self._clock = clock
        self.compact = compact
        self.interval = interval
        self.retention = retention
        self._writer = writer or ParquetWriter()
        self._ledgers: list[FilesLedger] = []
        self._lock = threading.Lock()  # over `_ledgers`
        self._next = clock.now()
        self._next_retention = clock.now() + self.interval
        self._failed_in_a_row = 0
        self.problem: str | None = None  # why files wait; None: none wait
        self.files = 0  # that waited after the last round
        self.bytes = 0
        self.shipped = 0  # files, since the start
        self.failures = 0

    @property
    def target(self) -> str:
        """Where the files go, for people."""
        return str(self._target)

    def add(self, ledger: FilesLedger) -> None:
        """Ship the files of a ledger in the spool until it closes."""
        with self._lock:
            self._ledgers = [*(each for each in self._ledgers if not each.closed), ledger]

    def run_once(self) -> float:
        if self._clock.now() < self._next:
            return self._next
        self.ship()
        wait = self.interval
        if self.problem is not None:
            wait = BACKOFF.delay(self._failed_in_a_row)
        elif self._clock.now() >= self._next_retention:
            self._delete_old()
        self._next = self._clock.now() + wait
        return self._next

    def ship(self) -> None:
        """Ship all ended files. May take long.

        Ends the files being written first, unless files wait already.
        """
        if self.problem is None:
            self._roll()
        errors: list[Exception] = []
        files = size = 0
        found = [one for one in files_below(self._spool, missing_ok=True) if FileName.parse(one.path.name) is not None]
        self.files, self.bytes = len(found), sum(file.size for file in found)
        for file in found:
            try:
                if len(errors) < _PATIENCE:
                    self.shipped += self._ship(file)
                    continue
            except (InboundError, OSError, ValueError) as error:  # ValueError: what Arrow raises
                errors.append(error)
            files, size = files + 1, size + file.size
        self._writer.close()
        self.files, self.bytes = files, size
        self._judge(errors)

    def _judge(self, errors: list[Exception]) -> None:
        if errors:
            self.failures += len(errors)
            self._failed_in_a_row += 1
            problem = f"ledger.path {self.target}: {explained(errors[0])}; files wait in {self._spool}, nothing is lost"
            if self.problem is None:
                log.warning("%s", problem)
            self.problem = problem
        else:
            if self.problem is not None:
                log.info("ledger.path %s: files are shipped again", self.target)
            self.problem, self._failed_in_a_row = None, 0

    def _roll(self) -> None:
        with self._lock:
            ledgers = list(self._ledgers)
        for ledger in ledgers:
            try:
                ledger.roll()
            except LedgerError as error:
                log.warning("%s", error)

    def _ship(self, file: FoundFile) -> bool:
        """Ship one file; False if it is still being written."""
        path = file.path
        assert isinstance(path, Path)
        with ended(path, self._clock.wall() - file.modified, shared=False) as data:
            if data is None:
                return False
            target = self._target / path.parent.name / path.name
            name = f"{path.name.removesuffix(SUFFIX)}{PARQUET_SUFFIX}"
            converted = path.with_name(temporary_name(name))
            try:
                if self._makes_parquet(path, data, converted):
                    put_file(converted, target.with_name(name))
                else:
                    put_file(path, target)
            finally:
                converted.unlink(missing_ok=True)
            path.unlink()
            return True

    def _makes_parquet(self, path: Path, data: BinaryIO, converted: Path) -> bool:
        if not self.compact or path.name.endswith(PARQUET_SUFFIX):
            return False
        try:
            for wait in self._writer.write(path, data, converted):
                time.sleep(wait)  # the thread has nothing else to do, and sending takes longer
        except LedgerError as error:  # of a newer release, or no process can be begun: the target takes lines as well
            log.warning("ledger file %s is shipped as it is: %s", path, error)
            return False
        return True

    def _delete_old(self) -> None:
        self._next_retention = self._clock.now() + RETENTION_EVERY
        try:
            remove_left(files_below(self._spool, missing_ok=True), self._clock.wall())
            delete_old(self._target, self._clock.wall() - self.retention)
        except (InboundError, OSError, ValueError) as error:
            log.warning("ledger.path %s: old files stay: %s", self.target, explained(error))

"""Ledgers of any length, fast: the lines that consumers would have written for so many batches, with their seals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from inbound.ledger import Done, Range, Settled
from inbound.ledger.format import FileName, path_part, seal, start_stamp
from inbound.ledger.lines import LedgerLines

#: As `inbound.ledger.FilesLedger` begins another file.
FILE_BYTES = 64 << 20
_WALL = 1_738_324_800.0


def write_run(
    ledger: Path,
    group: str,
    topic: str,
    ends: dict[int, int],
    batch: int,
    *,
    consumer: str = "a-1",
    epoch: int = 1,
    begin: int = 0,
    mzxid: int = 1_000,
    records: float = 1.0,
    file_bytes: int = FILE_BYTES,
) -> int:
    """Write what one consumer that read partitions from `begin` to their ends had written; returns how many lines.

    `records` is the share of the offsets that have a record.
    """
    return Writer(ledger, group, consumer, file_bytes).run(topic, ends, batch, epoch, begin, mzxid, records)


class Writer:
    """Writes the files of one run."""

    def __init__(self, ledger: Path, group: str, consumer: str, file_bytes: int = FILE_BYTES, start: int = 0) -> None:
        self._folder = ledger / path_part(group)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lines = LedgerLines(group, consumer)
        self._consumer = consumer
        self._file_bytes = file_bytes
        self._start = start_stamp(int(_WALL * 1000) + start)
        self._seq = 0

    def run(
        self, topic: str, ends: dict[int, int], batch: int, epoch: int, begin: int, mzxid: int, records: float
    ) -> int:
        """Write a whole run: claims, batches in turn, releases, the mark of a clean end."""
        number, size = 0, self._file_bytes
        previous, file = None, None
        for body in self._bodies(topic, ends, batch, epoch, begin, mzxid, records):
            if size >= self._file_bytes:
                if file is not None:
                    file.write(seal(f'{self._lines.end("rolled", _WALL)},"seq":{self._seq}'.encode()))
                    file.close()
                number += 1
                name = FileName(self._consumer, self._start, number)
                why = "rolled" if previous else "start"
                file = open(self._folder / str(name), "wb", buffering=1 << 20)  # noqa: SIM115  closed when it is full
                header = self._lines.header(name, previous, why, _WALL)
                size = file.write(seal(f'{header},"seq":{self._seq}'.encode()))
                previous = str(name)
            assert file is not None
            self._seq += 1
            line = b'%b,"seq":%d' % (body, self._seq)
            size += file.write(b'%b,"crc":"%08x"}\n' % (line, crc32c(line)))
        assert file is not None
        file.write(seal(f'{self._lines.end("closed", _WALL)},"seq":{self._seq}'.encode()))
        file.close()
        return self._seq

    def _bodies(
        self, topic: str, ends: dict[int, int], batch: int, epoch: int, begin: int, mzxid: int, records: float
    ) -> Iterator[bytes]:
        lines = self._lines
        facts = {"position": begin, "session": 1}
        yield from (lines.note("claimed", topic, p, epoch, facts, _WALL).encode() for p in ends)
        # What inbound's own LedgerLines make, cut apart where the numbers stand: ten times faster than to make each.
        forms = {p: _Forms(lines, topic, p, epoch) for p in ends}
        first = begin
        while any(first < end for end in ends.values()):
            for partition, end in ends.items():
                if first >= end:
                    continue
                after = min(first + batch, end)
                mzxid += 1
                form = forms[partition]
                yield form.begun % (first, after, round((after - first) * records))
                yield form.done % (first, after, after)
                yield form.settled % (after, mzxid)
            first += batch
        yield from (lines.note("released", topic, p, epoch, {}, _WALL).encode() for p in ends)


class _Forms:
    """The lines of a partition, with places for their numbers."""

    def __init__(self, lines: LedgerLines, topic: str, partition: int, epoch: int) -> None:
        def form(body: str, *numbers: int) -> bytes:
            for number in numbers:
                body = body.replace(f":{number}", ":%d", 1)
            return body.encode()

        a, b, c = 70_000_000_001, 70_000_000_002, 70_000_000_003
        self.begun = form(lines.begun(Range(topic, partition, epoch, a, b, c), _WALL), a, b, c)
        self.done = form(lines.done(Done(topic, partition, epoch, a, b, c), _WALL), a, b, c)
        self.settled = form(lines.settled(Settled(topic, partition, epoch, a, "landed", b), _WALL), a, b)

"""`examples/delays`: the processor that the demo runs, and that users copy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from inbound import Batch, BatchResponse, Context, PlainRecord
from inbound.demo.flights import Flight, encoded
from inbound.demo.journal import Journals
from inbound.publishing import Format, check_lines, lines_of
from tests.loaded_module import ROOT, load_module

SCHEDULED = "2013-01-01T10:15:00Z"


delays, totals = (load_module(f"examples/delays/{name}.py") for name in ("delays", "totals"))


def batch(first: int, *minutes: int | None) -> Batch:
    """Flights of UA with these delays, from offset `first`."""
    found = [Flight("UA", 100 + n, "N1", "EWR", "IAH", SCHEDULED, delay) for n, delay in enumerate(minutes)]
    records = [
        PlainRecord(first + n, key=key, value=value, headers=headers)
        for n, (key, value, headers) in enumerate(encoded(found))
    ]
    return Batch("flights", 3, first, first + len(minutes), records)


class Opened:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.context = Context("delays", "delays", "me", delays.Options(journal=folder, **options))
        self.processor = delays.DelaysPerCarrier()
        self.processor.open(self.context)

    def lines(self) -> list[dict[str, Any]]:
        (file,) = self.folder.glob("*.jsonl")
        return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    found = Opened(tmp_path, slice=2)
    yield found
    found.processor.close()


def test_every_slice_is_written_with_its_offsets(opened: Opened) -> None:
    """Begin, slices, end; the batch is committed whole."""
    response = opened.processor.on_next_batch(batch(10, 5, None, -3))

    assert response == BatchResponse.advance(13)
    assert [(line["what"], line.get("flights"), line.get("next")) for line in opened.lines()] == [
        ("begin", None, 13),
        ("counted", [[10, "UA", 5], [11, "UA", None]], None),
        ("counted", [[12, "UA", -3]], None),
        ("end", None, 13),
    ]


def test_a_stop_commits_what_was_counted_and_no_more(opened: Opened) -> None:
    """The first slice is always done, so that a stop cannot keep a partition from going on."""
    opened.context.stopping.set()

    response = opened.processor.on_next_batch(batch(10, 1, 2, 3, 4, 5))

    assert response == BatchResponse.advance(12)
    assert [flight for line in opened.lines() for flight in line.get("flights", ())] == [[10, "UA", 1], [11, "UA", 2]]


def test_a_batch_that_was_lost_is_left_alone(opened: Opened) -> None:
    """Somebody else counts it already."""
    lost = batch(10, 1, 2, 3)
    lost.lost.set()

    assert opened.processor.on_next_batch(lost) == BatchResponse.advance(10)
    assert [line["what"] for line in opened.lines()] == ["begin", "end"]


def test_a_record_that_is_no_event_is_passed_over_and_said(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    """The others of its batch are counted under their own offsets."""
    mixed = batch(10, 1, 2)
    mixed.records = [PlainRecord(9, value=b"?"), *mixed.records]

    assert opened.processor.on_next_batch(mixed) == BatchResponse.advance(12)
    assert [line.get("flights") for line in opened.lines()][1] == [[10, "UA", 1], [11, "UA", 2]]
    assert "flights/3@9 is no event and is passed over" in caplog.text


def test_the_demo_reads_what_it_writes(opened: Opened) -> None:
    """The demo's own reader and the example agree on the form."""
    opened.processor.on_next_batch(batch(10, 5, None))

    begin, counted, end = Journals(opened.folder).new_entries()

    assert (begin.consumer, begin.what, begin.partition, begin.first, begin.next) == ("me", "begin", 3, 10, 12)
    assert counted.flights == ((10, "UA", 5), (11, "UA", None))
    assert (end.what, end.next) == ("end", 12)


def test_totals_count_what_was_delivered_twice_once(opened: Opened) -> None:
    """So counts are exact although a crash makes batches come again; a torn line does not count."""
    opened.processor.on_next_batch(batch(10, 5, None, -3))
    opened.processor.on_next_batch(batch(11, None, -3, 7))
    (file,) = opened.folder.glob("*.jsonl")
    (opened.folder / "killed.1.jsonl").write_bytes(file.read_bytes().splitlines()[1][:40])

    assert totals.totals(opened.folder) == ({"UA": [4, 3, 9]}, 2)


@pytest.mark.parametrize(
    "options", [{}, {"journal": "j", "slice": 0}, {"journal": "j", "pause": -1}, {"journal": "j", "x": 1}]
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    """Before anything starts."""
    with pytest.raises(ValidationError):
        delays.Options.model_validate(options)


def test_the_examples_events_can_be_published() -> None:
    """flights.jsonl is what README.md publishes."""
    events = ROOT / "examples" / "delays" / "flights.jsonl"
    assert check_lines(lines_of(events), "flights.jsonl", Format()) == 200

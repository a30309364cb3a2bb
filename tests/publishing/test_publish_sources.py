"""Where published events come from: files of JSON lines, and numbered ones."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from inbound.errors import ConfigError
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import decode_record
from inbound.publishing import Encoded, Format, check_lines, lines_in, lines_of, numbered, records_of

EVENTS = Format()
ORDER = '{"specversion":"1.0","id":"1","source":"/shop","type":"order","partitionkey":"anna","data":{"sum":3}}'
NO_ID = '{"specversion":"1.0","source":"/shop","type":"order","data":1}'
NO_DATA = '{"specversion":"1.0","id":"2","source":"/shop","type":"order"}'


def file(folder: Path, *lines: str) -> Path:
    path = folder / "events.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def records(path: Path, *, structured: bool = False) -> list[Encoded]:
    return list(records_of(lines_of(path), path.name, Format(structured=structured), checked=True))


def test_a_line_becomes_a_record_in_binary_mode_keyed_by_its_partitionkey(tmp_path: Path) -> None:
    """Attributes go into headers, data into the value, partitionkey into the key, and stays an attribute."""
    ((key, value, headers),) = records(file(tmp_path, ORDER))

    assert (key, value) == (b"anna", b'{"sum":3}')
    assert dict(headers)["ce_id"] == b"1"
    assert dict(headers)["ce_partitionkey"] == b"anna"


def test_a_line_becomes_a_record_in_structured_mode_that_is_the_same_event(tmp_path: Path) -> None:
    """With --structured the value is the whole event."""
    ((key, value, headers),) = records(file(tmp_path, ORDER), structured=True)

    assert key == b"anna"
    assert value is not None
    assert json.loads(value) == json.loads(ORDER)
    assert headers == [("content-type", b"application/cloudevents+json")]


def test_without_partitionkey_the_key_is_null_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    """Only lines with something in them are events."""
    path = file(tmp_path, "", ORDER.replace('"partitionkey":"anna",', ""), "   ")

    assert check_lines(lines_of(path), "x", EVENTS) == 1
    assert [key for key, _, _ in records(path)] == [None]


def test_every_bad_line_is_named_with_its_number_and_what_is_wrong(tmp_path: Path) -> None:
    """The numbers are the file's, also after empty lines; good lines are not named."""
    path = file(tmp_path, ORDER, "", NO_ID, '{"half', NO_DATA)

    with pytest.raises(ConfigError) as refused:
        check_lines(lines_of(path), "events.jsonl", EVENTS)

    first, second, third, last = str(refused.value).split("\n")
    assert first == "events.jsonl:3: required attribute id is missing"
    assert second.startswith("events.jsonl:4: bad JSON: ")
    assert third.startswith("events.jsonl:5: an event with neither data nor partitionkey")
    assert last.startswith("events.jsonl: 3 lines of 4 cannot be published, so nothing was")
    # In structured mode the value is the event, so there is one without data and key.
    assert check_lines(lines_of(file(tmp_path, NO_DATA)), "x", Format(structured=True)) == 1


def test_of_many_bad_lines_ten_are_named_and_the_rest_is_counted(tmp_path: Path) -> None:
    """A file of another kind does not fill the screen."""
    path = file(tmp_path, *["nonsense"] * 25)

    with pytest.raises(ConfigError) as refused:
        check_lines(lines_of(path), "x", EVENTS)

    lines = str(refused.value).split("\n")
    assert [line.split(":")[1] for line in lines[:10]] == [str(n) for n in range(1, 11)]
    assert lines[10] == "... and 15 more"


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_file_without_events_is_refused(tmp_path: Path, text: str) -> None:
    """It is more likely the wrong file than meant."""
    (tmp_path / "e").write_text(text)

    with pytest.raises(ConfigError, match="holds no events"):
        check_lines(lines_of(tmp_path / "e"), "e", EVENTS)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    """The message says which, and why."""
    with pytest.raises(ConfigError, match="nowhere: cannot be read: No such file"):
        list(lines_of(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        list(lines_of(tmp_path))


def test_a_file_that_changes_after_the_check_is_reported_with_its_line(tmp_path: Path) -> None:
    """What stands before the line is published by then, and the message says so."""
    path = file(tmp_path, ORDER, NO_ID)
    found = records_of(lines_of(path), "e", EVENTS, checked=True)
    next(found)

    with pytest.raises(ConfigError, match=r"e:2: .*missing; the file changed while it was published"):
        next(found)


PLAIN = Format(plain=True, key=b"app")


def test_plain_lines_are_values_as_they_stand() -> None:
    """Blanks and empty lines included; only the line's end is taken off."""
    stream = io.BytesIO(b" one \r\n\n{two\n\xff")

    found = list(records_of(lines_in(stream, "in", plain=True), "in", PLAIN, checked=False))

    assert found == [(b"app", value, []) for value in (b" one ", b"", b"{two", b"\xff")]


@pytest.mark.parametrize("structured", [False, True])
def test_a_key_goes_before_the_partitionkey(tmp_path: Path, structured: bool) -> None:
    """Of all records; the attribute of the event stays."""
    form = Format(structured=structured, key=b"all")

    ((key, value, headers),) = records_of(lines_of(file(tmp_path, ORDER)), "e", form, checked=True)

    event = decode_record(PlainRecord(0, key=key, value=value, headers=headers))
    assert (key, event.get_extension("partitionkey")) == (b"all", "anna")


def test_a_stream_is_published_up_to_its_first_bad_line() -> None:
    """What comes before it is out by then; the message says from where to go on."""
    stream = io.BytesIO(f"{ORDER}\n\n{NO_ID}\n{ORDER}\n".encode())
    found = records_of(lines_in(stream, "standard input"), "standard input", EVENTS, checked=False)
    assert next(found)[0] == b"anna"

    with pytest.raises(ConfigError) as refused:
        next(found)

    assert str(refused.value) == (
        "standard input:3: required attribute id is missing; lines before this one are in the topic, the others are not. Put "
        "it right, and publish from line 3 on"
    )


class Endless(io.RawIOBase):
    """A pipe that is written into without end."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), len(self.text))
        buffer[:count] = self.text[:count]
        self.given += count
        return count


def test_a_stream_is_read_no_further_than_needed() -> None:
    """It may be larger than the memory, or never end."""
    pipe = Endless(b"line\n")

    lines = list(itertools.islice(lines_in(io.BufferedReader(pipe), "in"), 1000))

    assert (len(lines), lines[-1].number, pipe.given < 20_000) == (1000, 1000, True)


def test_a_line_without_an_end_is_refused() -> None:
    """A file of another kind does not fill the memory."""
    pipe = Endless(b"x" * 8192)

    with pytest.raises(ConfigError, match="in:1: longer than 16 MiB; a record takes 1 MiB, so split it"):
        next(lines_in(io.BufferedReader(pipe), "in"))
    assert pipe.given < 17 * 2**20


@pytest.mark.parametrize("structured", [False, True])
def test_numbered_events_are_events_with_their_number(structured: bool) -> None:
    """Ids and data count from 1; the source is the run's."""
    events = [
        decode_record(PlainRecord(0, key=key, value=value, headers=headers))
        for key, value, headers in numbered(3, source="/run/7", structured=structured)
    ]

    assert [(e.get_id(), e.get_source(), e.get_data()) for e in events] == [
        (str(n), "/run/7", {"number": n}) for n in (1, 2, 3)
    ]


@pytest.mark.parametrize("size", [30, 100, 1024])
def test_numbered_events_are_padded_to_the_wanted_size(size: int) -> None:
    """To the byte, for numbers of any length."""
    assert {len(value or b"") for _, value, _ in numbered(12, source="/s", size=size)} == {size}

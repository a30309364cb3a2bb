"""The ledger's lines: what goes in comes out, and nothing damaged is ever taken as good."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inbound.clock import SystemClock
from inbound.errors import LedgerError
from inbound.ledger import Corrupt, Done, Entry, FilesLedger, Ledger, Range, Settled, TornTail, read_file
from inbound.ledger.format import FileName, name_of, path_part, seal
from inbound.ledger.jsonl import Item, read_lines

Call = tuple[Callable[[Ledger], None], list[tuple[object, ...]]]

names = st.text(min_size=1, max_size=12)
numbers = st.integers(0, 2**63 - 1)
json_values = st.none() | st.integers() | st.text(max_size=8)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """A call of the ledger, and the entries that must be read from it, each as (kind, values...)."""
    topic, partition, epoch = draw(names), draw(st.integers(0, 9999)), draw(numbers)
    a, b, c = draw(numbers), draw(numbers), draw(st.none() | numbers)
    verb = draw(st.sampled_from(["begun", "done", "settled", "note"]))
    if verb == "begun":
        return (
            lambda to: to.begun(Range(topic, partition, epoch, a, b, 5, c)),
            [(verb, topic, partition, epoch, a, b, 5, c)],
        )
    times = draw(st.integers(0, 3))
    if verb == "done":
        done = [Done(topic, partition, epoch, a, b, c)] * times
        return lambda to: to.done(done), [(verb, topic, partition, epoch, a, b, c)] * times
    if verb == "settled":
        settled = [Settled(topic, partition, epoch, a, "unknown", c)] * times
        return lambda to: to.settled(settled), [(verb, topic, partition, epoch, a, "unknown", c)] * times
    facts = {"position": draw(json_values), "session": draw(names)}
    return (
        lambda to: to.note("claimed", topic=topic, partition=partition, epoch=epoch, **facts),
        [("claimed", topic, partition, epoch, facts)],
    )


def told(entry: Entry) -> tuple[object, ...]:
    """An entry in the form that `calls` expects."""
    common = (entry.kind, entry.topic, entry.partition, entry.epoch)
    if entry.kind == "begun":
        return (*common, entry.first, entry.next, entry.records, entry.commit)
    if entry.kind == "done":
        return (*common, entry.first, entry.next, entry.commit)
    if entry.kind == "settled":
        return (*common, entry.commit, entry.outcome, entry.mzxid)
    return (*common, entry.facts)


@settings(max_examples=25, deadline=None)
@given(names, names, st.lists(calls(), max_size=8))
def test_what_goes_in_comes_out_in_order_with_unbroken_numbers(group: str, consumer: str, sequence: list[Call]) -> None:
    """Any group, consumer, topic and entries read back as they were given, numbered from 1 without a gap."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = FilesLedger(Path(folder), group, consumer, SystemClock())
        path = ledger.path
        assert path is not None
        for call, _ in sequence:
            call(ledger)
        ledger.close()
        items = list(read_file(path))

    entries = [item for item in items if isinstance(item, Entry)]
    expected = [told for _, all_told in sequence for told in all_told]
    assert len(entries) == len(items)
    assert [entries[0].kind, entries[-1].kind] == ["header", "end"]
    assert [told(entry) for entry in entries[1:-1]] == expected
    assert [entry.seq for entry in entries[1:-1]] == list(range(1, len(expected) + 1))
    assert {(entry.group, entry.consumer) for entry in entries} == {(group, consumer)}


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with one line of every kind."""
    ledger = FilesLedger(tmp_path_factory.mktemp("ledger"), "orders-svc", "a", SystemClock())
    path = ledger.path
    assert path is not None
    ledger.note("claimed", topic="orders", partition=3, epoch=7, position=100, session="0x1")
    ledger.begun(Range("orders", 3, 7, 100, 200, 99))
    ledger.done([Done("orders", 3, 7, 100, 200, 200)])
    ledger.settled([Settled("orders", 3, 7, 200, "landed", 4711)])
    ledger.note("skip", topic="orders", partition=3, epoch=7, from_=200, to=210, reason="poison \u2620 pill")
    ledger.close()
    return path.read_bytes()


def parsed(data: bytes) -> list[Item]:
    return list(read_lines(io.BytesIO(data), Path("a-20250131T235959123Z-0001.jsonl")))


def test_a_file_cut_anywhere_gives_its_whole_lines_and_one_torn_tail(content: bytes) -> None:
    """For every length of the rest: the lines before the cut are good, what is left of the next is a TornTail."""
    whole = parsed(content)
    for length in range(len(content)):
        rest = content[:length]
        lines = rest.count(b"\n")
        start = rest.rfind(b"\n") + 1
        tail = [TornTail(whole[0].path, start, length - start)] if start < length else []
        assert parsed(rest) == whole[:lines] + tail


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_changed_byte_never_passes(content: bytes, data: st.DataObject) -> None:
    """Wherever a byte differs, the lines it touches are reported, and all the others are still read."""
    at = data.draw(st.integers(0, len(content) - 1))
    change = data.draw(st.integers(1, 255))
    damaged = bytearray(content)
    damaged[at] ^= change

    whole, items = parsed(content), parsed(bytes(damaged))

    good = [item for item in items if isinstance(item, Entry)]
    bad = [item for item in items if not isinstance(item, Entry)]
    number = content[:at].count(b"\n")  # of the damaged line, from 0
    touched = {number, number + 1} if content[at : at + 1] == b"\n" else {number}
    assert bad
    assert [entry.seq for entry in good] == [
        item.seq for index, item in enumerate(whole) if isinstance(item, Entry) and index not in touched
    ]


def test_damage_in_the_middle_is_named_by_its_line_and_reading_goes_on(content: bytes) -> None:
    """A line with a wrong checksum is a Corrupt with its number; the lines after it are read."""
    lines = content.splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"first":100', b'"first":101')

    items = parsed(b"".join(lines))

    assert items[2] == Corrupt(items[0].path, 3, "its checksum is wrong")
    assert [item.kind for item in items if isinstance(item, Entry)] == [
        "header", "claimed", "done", "settled", "skip", "end"
    ]  # fmt: skip


def test_without_its_header_a_file_still_says_whose_run_it_is(content: bytes) -> None:
    """The run comes from the file's name then; group and consumer stand in every line."""
    items = parsed(b"x" + content)

    assert isinstance(items[0], Corrupt)
    assert isinstance(items[1], Entry)
    assert (items[1].run, items[1].group, items[1].consumer) == ("a-20250131T235959123Z", "orders-svc", "a")


def test_each_line_is_plain_json(content: bytes) -> None:
    """Tools that know nothing of seals read the lines as JSON."""
    kinds = [json.loads(line)["kind"] for line in content.splitlines()]

    assert kinds == ["header", "claimed", "begun", "done", "settled", "skip", "end"]


def test_a_newer_format_is_refused_by_name_and_version() -> None:
    """A reader must not guess at lines of a version it does not know; the message says what to do."""
    header = seal(b'{"v":2,"kind":"header","writer":"inbound 9.1.0"')

    with pytest.raises(LedgerError, match=r"a-20250131T235959123Z-0001\.jsonl.* version 2.* up to 1.*inbound 9\.1\.0"):
        parsed(header)


def test_kinds_and_members_of_a_neighbour_are_kept() -> None:
    """A later release of the same format version may add kinds of lines and members; nothing is lost in reading."""
    line = seal(b'{"kind":"napped","group":"g","consumer":"c","topic":"t","partition":0,"dreams":3,"wall":1.0,"seq":9')

    (entry,) = parsed(line)

    assert isinstance(entry, Entry)
    assert (entry.kind, entry.topic, entry.seq, entry.facts) == ("napped", "t", 9, {"dreams": 3})


@pytest.mark.parametrize("body", [b'{"kind":"begun"', b"[1", b'{"kind":1,"seq":[],"facts":[1]', b'{"a":' * 100_000])
def test_a_sealed_line_that_is_no_entry_is_corrupt(body: bytes) -> None:
    """A right checksum over something else is reported, not raised."""
    (item,) = parsed(seal(body))

    assert isinstance(item, Corrupt)
    assert "no line of a ledger" in item.reason


@given(st.text(min_size=1))
@example("..")
@example(".hidden")
def test_any_name_can_be_part_of_a_path_and_be_read_back(name: str) -> None:
    """No separator, no special directory, no hidden file comes of a name, and the name is not lost."""
    part = path_part(name)

    assert name_of(part) == name
    assert "/" not in part
    assert not part.startswith(".")


@given(st.text(min_size=1, max_size=20), st.integers(1, 10**6))
def test_a_file_name_gives_its_parts_back(consumer: str, number: int) -> None:
    """Also for consumer ids with dashes in them."""
    name = FileName(consumer, "20250131T235959123Z", number)

    assert FileName.parse(str(name)) == name


def test_other_names_are_not_ledger_files() -> None:
    """A foreign file beside the files is not taken for one."""
    assert [FileName.parse(name) for name in ("notes.txt", "a-b.jsonl", "a-b-c.jsonl", "-1.jsonl")] == [None] * 4

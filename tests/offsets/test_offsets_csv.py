"""Offsets as CSV: byte for byte what Kafka's tool writes (4.2.0 was asked), and every bad line by its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.errors import ConfigError
from inbound.offsets.csv_file import WantedOffset, csv_text, read_csv
from inbound.offsets.model import Row

LONG = "a-rather-long-topic-name-of-more-than-24"


def row(group: str, topic: str, partition: int, committed: int | None) -> Row:
    return Row(
        group=group, topic=topic, partition=partition, committed=committed, committed_at=None, start=None, end=None,
        lag=None, owner=None, epoch=None, gate=None,
    )  # fmt: skip


def test_one_group_is_written_as_kafkas_tool_writes_it() -> None:
    """Names of more than 24 characters are quoted, partitions without an offset left out."""
    rows = [row("g1", LONG, 1, 7), row("g1", "x.y", 0, 5), row("g1", "orders", 0, 3), row("g1", "orders", 1, None)]
    assert csv_text(rows, groups=False) == f'"{LONG}",1,7\nx.y,0,5\norders,0,3\n'


def test_several_groups_are_named_in_each_line() -> None:
    """As Kafka's tool does with several `--group`."""
    rows = [row("g1", "orders", 0, 3), row("g2", LONG, 1, 7)]
    assert csv_text(rows, groups=True) == f'g1,orders,0,3\ng2,"{LONG}",1,7\n'


names = st.text(
    st.characters(
        blacklist_categories=["Cs", "Cc", "Co", "Cn", "Zl", "Zp", "Zs"], blacklist_characters="/\ufffe\uffff"
    ),
    min_size=1,
    max_size=40,
).filter(lambda name: name not in (".", "..") and all(ord(c) < 0xD800 for c in name))
lines = st.tuples(names, names, st.integers(0, 5000), st.integers(0, 2**63 - 1))


@given(st.lists(lines, min_size=1, max_size=20, unique_by=lambda line: line[:3]))
def test_what_is_written_is_read_again(given_lines: list[tuple[str, str, int, int]]) -> None:
    """For any characters in the names."""
    text = csv_text([row(*line) for line in given_lines], groups=True)
    assert [one[:4] for one in read_csv(text, "f")] == given_lines


def test_a_line_without_a_group_is_of_the_one_that_is_named() -> None:
    """By --group, or the only one of the configuration; empty lines count for nothing but the number."""
    text = 'orders,0,3\n\n"orders", 1, 4\n'
    wanted = [WantedOffset("svc", "orders", 0, 3, 1), WantedOffset("svc", "orders", 1, 4, 3)]
    assert read_csv(text, "f", "svc") == read_csv(text, "f", default="svc") == wanted
    assert read_csv("g,orders,0,3", "f", default="svc") == [WantedOffset("g", "orders", 0, 3, 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: holds no offsets; need topic,partition,offset"),
        ("orders,0", "f:1: has 2 columns; need topic,partition,offset"),
        ("orders,0,1\norders,x,1", "f:2: partition 'x' is no number"),
        ("orders,0,-1", "f:1: offset '-1' is no number"),
        ("orders,0,1.5", "f:1: offset '1.5' is no number"),
        ("orders,0,9223372036854775808", "f:1: offset '9223372036854775808' is no number"),
        ("orders,0,٣", "f:1: offset '٣' is no number"),
        ("orders,0,1\norders,1,2\norders,0,3", "f:3: orders/0 stands in line 1 already"),
        ("other,orders,0,1", "f:1: is of group 'other', not of 'svc'"),
        ("a/b,0,1", "f:1: topic 'a/b' cannot be part of a ZooKeeper path"),
        ('"orders,0,1', "f:1: unexpected end of data"),
        ("TOPIC,PARTITION,OFFSET\norders,0,1", "f:1: partition 'PARTITION' is no number"),
    ],
)
def test_bad_lines_are_refused_by_their_place(text: str, said: str) -> None:
    """With what would be right."""
    with pytest.raises(ConfigError) as refused:
        read_csv(text, "f", "svc")
    assert str(refused.value).startswith(said)


def test_all_bad_lines_are_named_at_once() -> None:
    """And a group is asked for where none is known."""
    with pytest.raises(ConfigError) as refused:
        read_csv("orders,0,1\nx\ng,orders,0,x", "f")
    assert [line.split(":")[1] for line in str(refused.value).splitlines()] == ["1", "2", "3"]
    assert "give one with --group" in str(refused.value)

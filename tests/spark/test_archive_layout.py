"""Where a record of the archive belongs, and what is written down of batches."""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest

from inbound.spark.archive.layout import (
    LONGEST_TYPE,
    ArchiveError,
    BatchManifest,
    Counts,
    Gap,
    Identity,
    Swap,
    TopicBook,
    file_name,
    folder,
    from_text,
    is_closed,
    offsets_of,
    staged_folder,
    to_text,
    type_name,
)

DAY = 86400.0
MANIFEST = BatchManifest(
    "orders", 7, {0: 1, 11: 5}, {0: 9, 11: 5}, Counts(events=8), Counts(events=100, late=1), (Gap(0, 1, 3),),
    "_archive/staging/x", (("a", "b"), ("c", "d")),
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["orders.placed", "a/b:c", "..", "ä", "%41", "a b", "__HIVE_DEFAULT_PARTITION__", "x=y"]
)
def test_a_type_is_one_folder_from_which_it_can_be_read(kind: str) -> None:
    """No type leaves its folder, is taken for no value, or needs a file system that knows more than ASCII."""
    name = type_name(kind)

    assert name is not None
    assert unquote(name) == kind
    assert name.isascii()
    assert "/" not in name
    assert name != "__HIVE_DEFAULT_PARTITION__"
    assert staged_folder(f"folder={folder('events', '2013-01-01', name).replace('%', '%25').replace('/', '%2F')}") == (
        f"events/date=2013-01-01/type={name}"
    )


def test_a_type_too_long_for_a_folder_has_none() -> None:
    """As long as names may be, with room for `type=`."""
    assert type_name("x" * LONGEST_TYPE) is not None
    assert type_name("x" * (LONGEST_TYPE + 1)) is None
    assert type_name("ä" * (LONGEST_TYPE // 2)) is None


def test_file_names_fit_and_differ() -> None:
    """The longest topics that Kafka takes have files of their own, which readers do not take for hidden ones."""
    names = {file_name(topic, 0, 0) for topic in ("_a", ".a", "a" * 249, "a" * 248 + "b")}

    assert len(names) == 4
    assert max(map(len, names)) < 256
    assert {name[0] for name in names} == {"p"}


@pytest.mark.parametrize(
    ("path", "late", "closed"),
    [
        ("events/date=1970-01-09/type=a", None, True),
        ("events/date=1970-01-10/type=a", None, False),
        ("events/date=1970-01-09/type=a", DAY, False),
        ("events/date=1970-01-08/type=a", DAY, True),
        ("date=9999-12-31", None, False),
        ("date=x", None, False),
        ("elsewhere", None, False),
    ],
)
def test_a_day_is_closed_when_it_is_over_for_longer_than_events_are_late(
    path: str, late: float | None, closed: bool
) -> None:
    """At noon of 10 January 1970."""
    assert is_closed(path, 9.5 * DAY, late) is closed


@pytest.mark.parametrize(
    "book", [MANIFEST, Identity(made="now"), TopicBook("orders", None, {3: 4}), Swap("x", (("a", "b", "c"),))]
)
def test_what_is_written_down_is_read_as_it_was(book: BatchManifest | Identity | TopicBook | Swap) -> None:
    """Numbers of partitions are numbers again."""
    assert from_text(type(book), to_text(book), "x") == book


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"v": 1}', '{"v": 1, "kind": "something else"}', "\x00", '{"v": 1, "what": 1}']
)
def test_a_book_that_is_damaged_or_of_a_later_version_is_named(text: str) -> None:
    """None is taken for one of an archive because it is JSON; a later one may say what this version does not know."""
    kind: type[Identity | BatchManifest] = Identity if "kind" in text else BatchManifest
    later = json.dumps({**json.loads(to_text(MANIFEST)), "v": 2})

    with pytest.raises(ArchiveError, match=r"to/archive.json: is damaged, or no file of an archive"):
        from_text(kind, text, "to/archive.json")
    with pytest.raises(ArchiveError, match=r"has format 2, written by a later inbound; this one reads 1"):
        from_text(BatchManifest, later, "x")


def test_offsets_in_sparks_log() -> None:
    """The last line, of this topic."""
    assert offsets_of('v1\n{"batchWatermarkMs":0}\n{"orders":{"0":5,"10":7}}\n', "orders") == {0: 5, 10: 7}


@pytest.mark.parametrize("text", ["", "v1\n{}", "v1\n-", 'v1\n{"others":{"0":1}}', 'v1\n{"orders":[1]}'])
def test_a_checkpoint_of_something_else_is_named(text: str) -> None:
    """Damaged, or another topic's."""
    with pytest.raises(ArchiveError, match=r"topic orders: Spark's checkpoint of it is damaged or another topic's"):
        offsets_of(text, "orders")

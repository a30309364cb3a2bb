"""Releases beside each other: what an earlier one wrote is read here, and what a later one may write does no harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inbound.controller.reset_offset import command as commands
from inbound.controller.reset_offset.model import Ref, ResetSpec, To
from inbound.coordinators.nodes import (
    FORMAT,
    BadNodeError,
    EpochInfo,
    MemberInfo,
    TopicInfo,
    decode_epoch,
    decode_member,
    decode_topic,
)
from inbound.coordinators.pauses import Pause, decode_pause
from inbound.coordinators.zookeeper import Node, Stat
from inbound.errors import LedgerError
from inbound.ledger import Entry
from inbound.ledger.format import seal, unseal
from inbound.ledger.jsonl import read_lines
from scripts.promised_names import names, promised

#: As the state before the first tag wrote them (the one that integration/process/test_upgrade.py starts).
EARLIER_MEMBER = (
    b'{"v":1,"host":"web-7","pid":4711,"started":"2026-11-20T10:00:00+00:00","topics":["orders","payments"],'
    b'"coordinator":{"type":"fixed-count","count":4},"joined":8589934593,"admin":"http://127.0.0.1:8081",'
    b'"lock":"b7d0e1a2:2049:131"}'
)
EARLIER_EPOCH = (
    b'{"v":1,"consumer":"web-7-4711-09c17a","session":72057594037927937,"nonce":"5f2d9f8d1b2c3a4e-7",'
    b'"topic_id":"6Cd9XkqRTb2rJzA5cQvB1w","former":["0a1b2c3d4e5f6g7h8i9j0k"]}'
)
EARLIER_TOPIC = b'{"v":1,"partitions":6,"topic_id":"6Cd9XkqRTb2rJzA5cQvB1w"}'
EARLIER_PAUSE = b'{"v":1,"since":"2026-11-20T10:00:00+00:00","by":"ann@web-7","reason":"upgrade"}'
EARLIER_LEDGER = tuple(
    (Path(__file__).parent.parent / "earlier" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
)

MEMBER = MemberInfo(
    host="web-7",
    pid=4711,
    started="2026-11-20T10:00:00+00:00",
    topics=("orders", "payments"),
    coordinator={"type": "fixed-count", "count": 4},
    joined=8589934593,
    admin="http://127.0.0.1:8081",
    lock="b7d0e1a2:2049:131",
)
EPOCH = EpochInfo(
    "web-7-4711-09c17a", 72057594037927937, "5f2d9f8d1b2c3a4e-7", "6Cd9XkqRTb2rJzA5cQvB1w", ("0a1b2c3d4e5f6g7h8i9j0k",)
)
TOPIC = TopicInfo(6, "6Cd9XkqRTb2rJzA5cQvB1w")
PAUSE = Pause("operator", None, "2026-11-20T10:00:00+00:00", "ann@web-7", "upgrade")
RESET = commands.ResetCommand(
    name="r", ref=Ref(kind="Channel", name="orders"), spec=ResetSpec(to=To.EARLIEST), created=1.0
)


#: Reads a node; its name, its bytes as an earlier release wrote them, and as what it is read.
EARLIER: tuple[tuple[Callable[[str, bytes], object], str, bytes, Any], ...] = (
    (decode_member, "m", EARLIER_MEMBER, MEMBER),
    (decode_epoch, "e", EARLIER_EPOCH, EPOCH),
    (decode_topic, "t", EARLIER_TOPIC, TOPIC),
    (decode_pause, "operator", EARLIER_PAUSE, PAUSE),
)
#: The same of all nodes as they are written now; commands came later.
NODES = (
    *EARLIER,
    (
        lambda path, data: commands.decode(path, Node(data, Stat(1, 1, 0, 0))),
        "/inbound/commands/reset-offset/r",
        commands.encode(RESET),
        RESET,
    ),
)


def test_nodes_are_read_and_written_as_an_earlier_release_wrote_them() -> None:
    """Byte for byte; what it did not know of has its default, and is left out where it says nothing."""
    assert [decode(name, data) for decode, name, data, _ in EARLIER] == [value for *_, value in EARLIER]
    assert [value.encode() for *_, value in EARLIER] == [data for _, _, data, _ in EARLIER]


def later(data: bytes, formats: int) -> bytes:
    """Return a node as a release may write it whose format is so many ahead: with a member that we do not know."""
    return json.dumps({**json.loads(data), "v": FORMAT + formats, "brought_later": {"x": [1]}}).encode()


@pytest.mark.parametrize("formats", [0, 1])
def test_what_the_next_release_writes_is_read(formats: int) -> None:
    """New members are passed over, and a format one ahead is read as ours: that is what a new format has to allow."""
    read = [decode(name, later(data, formats)) for decode, name, data, _ in NODES]

    assert read == [expected for *_, expected in NODES]


def test_what_is_two_formats_ahead_is_refused_with_what_to_do() -> None:
    """Never half understood. A pause with any content is a pause: going on must be certain."""
    refused = []
    for decode, name, data, _ in NODES:
        if decode is not decode_pause:
            with pytest.raises(BadNodeError, match="upgrade this consumer"):
                decode(name, later(data, 2))
            refused.append(decode)

    assert len(refused) == 4
    assert decode_pause("operator", later(PAUSE.encode(), 2)) == PAUSE


def test_ledger_lines_of_an_earlier_release_are_read() -> None:
    """Header, begun, done and settled, the end: each as it was meant."""
    read = [one for one in read_lines(iter(EARLIER_LEDGER), Path("earlier.jsonl")) if isinstance(one, Entry)]

    assert [(one.kind, one.seq, one.first, one.next, one.commit, one.outcome, one.mzxid) for one in read] == [
        ("header", 0, None, None, None, None, None),
        ("begun", 1, 100, 200, None, None, None),
        ("done", 2, 100, 200, 200, None, None),
        ("settled", 3, None, None, 200, "landed", 8589934719),
        ("end", 3, None, None, None, None, None),
    ]


def test_a_ledger_line_that_came_later_is_an_entry_and_a_later_format_is_refused() -> None:
    """New kinds and members are kept as they are; a file of a newer format is never half read."""
    header, *rest = EARLIER_LEDGER
    new_kind = sealed(rest[0], kind="foretold", brought_later=1)
    read = [entry for entry in read_lines(iter((header, new_kind)), Path("x.jsonl")) if isinstance(entry, Entry)]

    assert [(entry.kind, entry.facts.get("brought_later")) for entry in read[1:]] == [("foretold", 1)]
    with pytest.raises(LedgerError, match="newer"):
        list(read_lines(iter((sealed(header, v=2), *rest)), Path("x.jsonl")))


def sealed(line: bytes, **changes: Any) -> bytes:
    """Return a ledger line with other members, sealed again."""
    body = unseal(line.removesuffix(b"\n"))
    assert body is not None
    return seal(json.dumps({**json.loads(body), **changes}, separators=(",", ":")).encode().removesuffix(b"}"))


@pytest.mark.slow
def test_no_name_that_users_have_in_their_files_is_gone() -> None:
    """Keys, commands, options and metrics of the last release; what is to go is deprecated first (docs/upgrading.md)."""
    assert sorted(promised() - names()) == []
    assert len(promised()) > 600

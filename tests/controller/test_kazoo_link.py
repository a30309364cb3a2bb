"""The log and the status while there is no connection to ZooKeeper."""

from __future__ import annotations

import logging
import socket

import pytest

from inbound.controller.kazoo_link import MOST_TOLD, KazooLink, _select
from inbound.testing.clock import ManualClock


@pytest.fixture
def link() -> KazooLink:
    """One that does not try to connect."""
    return KazooLink("127.0.0.1:1", "", 10.0, ManualClock(), lambda session, at: None, lambda: None)


def test_reasons_that_take_turns_are_logged_once_each(link: KazooLink, caplog: pytest.LogCaptureFixture) -> None:
    """Not at each attempt; what stands in the status is the last one."""
    with caplog.at_level(logging.WARNING, "inbound"):
        for _ in range(3):
            for why in ("connection refused", "no answer in time"):
                link._tell("127.0.0.1:1", why)
    assert [record.getMessage() for record in caplog.records] == [
        "ZooKeeper at 127.0.0.1:1: 127.0.0.1:1: connection refused; trying again at most every 1 s",
        "ZooKeeper at 127.0.0.1:1: 127.0.0.1:1: no answer in time; trying again at most every 1 s",
    ]
    assert link.trouble == "127.0.0.1:1: no answer in time"


def test_reasons_that_are_new_each_time_are_all_logged_and_not_all_kept(
    link: KazooLink, caplog: pytest.LogCaptureFixture
) -> None:
    """A number in them, say."""
    with caplog.at_level(logging.WARNING, "inbound"):
        for number in range(3 * MOST_TOLD):
            link._tell("127.0.0.1:1", f"reset {number}")
    assert (len(caplog.records), len(link._told) <= MOST_TOLD) == (3 * MOST_TOLD, True)


def test_sockets_are_waited_for_as_kazoo_does_it() -> None:
    """One has something to read, one is silent, one was closed at the other end, which a read will tell."""
    pairs = [socket.socketpair() for _ in range(3)]
    (spoken, other), (silent, silent_end), (closed, closed_end) = pairs
    try:
        other.send(b"x")
        closed_end.close()
        found = _select([spoken, silent, closed], [silent_end], [], 5.0)
        assert (found, _select([silent], [], [], 0.001)) == (([spoken, closed], [silent_end], []), ([], [], []))
    finally:
        for pair in pairs:
            for one in pair:
                one.close()

"""`inbound explain`: its arguments, its text, and the page that it asks."""

import json
import logging
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from inbound.admin.routes import explained
from inbound.cli.inspect.explain import _channels, _time
from inbound.cli.inspect.explain_text import shown
from inbound.cli.main import main
from inbound.config import LedgerConfig, load
from inbound.errors import ConfigError
from inbound.http.server.page import Page
from inbound.http.server.server import Request
from inbound.ledger import Done, FilesLedger, Range
from inbound.observe.explain.answer import PartitionQuestion
from inbound.observe.explain.history import at_time, recorded
from inbound.partition.journal import Happened
from inbound.plan.subscriptions import channels_of
from inbound.testing import ManualClock
from inbound.topic_partition import TopicPartition

TP = TopicPartition("orders", 3)
NOW = 1_800_000_000.0

TWO = """
channels:
  orders: {topics: [orders], group: orders-svc, processor: {type: simple, options: {sinks: [log]}}}
  audit: {topics_pattern: "ord.*", group: audit-svc, processor: {type: simple, options: {sinks: [log]}}}
  again: {topics: [orders], group: orders-svc, processor: {type: simple, options: {sinks: [log]}}}
"""


def found(**values: Any) -> dict[str, Any]:
    event = {"at": NOW - 30, "kind": "failed", "text": "on_next_batch failed", "count": 4, "last": NOW - 2}
    return {
        "topic": "orders", "partition": 3, "channel": "orders", "group": "orders-svc", "at": None, "cause": "poison-event",
        "since": NOW - 30, "text": "the record at offset 42 fails", "todo": "correct the processor", "evidence": ["line 7"],
        "problems": [], "kafka": None,
        "zookeeper": {
            "members": [{"consumer": "a-1", "host": "h", "pid": 7, "coordinator": "dynamic", "admin": None}],
            "owner": "a-1", "owner_since": NOW - 600, "epoch": 5, "committed": 42, "committed_at": NOW - 31,
        },
        "owner": {
            "consumer": "a-1", "held": True, "claimed": {"text": "claimed, after b-1 left"}, "events": [event],
            "numbers": {
                "position": 42, "committed": 42, "end": 99, "lag": 57, "buffered_records": 57, "last_batch_at": NOW - 2,
            },
        },
        **values,
    }  # fmt: skip


def test_the_answer_comes_first_then_what_to_do_then_who_has_it_then_what_happened() -> None:
    lines = shown(found(), NOW).splitlines()
    clock = datetime.fromtimestamp(NOW - 30).strftime("%H:%M:%S")
    assert lines[0] == f"orders/3 in group orders-svc STALLED: poison-event, since {clock} (30 s)"
    assert [line.split(" ")[0] for line in lines] == [
        "orders/3", "", "What", "Seen", "", "Owner:", "", "Position:", "Last", "",
    ]  # fmt: skip
    assert lines[1:3] == ["  the record at offset 42 fails", "What to do: correct the processor"]
    assert lines[6] == "  claimed, after b-1 left"
    assert "(4 times, last " in lines[-1]


def test_what_comes_from_elsewhere_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in shown(found(text="\x1b[2Jgone\nORDERS", problems=["\x1b[31mred"]), NOW)


def test_an_unknown_cause_is_named_as_such() -> None:
    text = shown(
        found(cause=None, since=None, text="", todo="", zookeeper=None, owner=None, problems=["x: no answer"]), NOW
    )
    assert text.splitlines()[0] == "orders/3 in group orders-svc: not known"
    assert text.endswith("Not answered: x: no answer")


def test_every_group_that_reads_the_topic_is_asked_once() -> None:
    channels = channels_of(load(TWO, filename="inbound.yaml", environ={}, overrides={}))
    assert list(_channels(channels, TP, None)) == ["orders", "audit"]
    assert list(_channels(channels, TP, "audit")) == ["audit"]
    with pytest.raises(ConfigError, match="no channel 'x' in this configuration; there are: orders, audit, again"):
        _channels(channels, TP, "x")
    with pytest.raises(ConfigError, match="no channel of this configuration reads topic payments"):
        _channels(channels, TopicPartition("payments", 0), None)


def test_times_are_given_as_people_have_them() -> None:
    now = time.time()
    assert _time("10m") == pytest.approx(now - 600, abs=5)
    assert _time("2026-01-31T02:40:00+00:00") == 1769827200.0
    assert now - 86400 - 60 <= _time("02:40") <= now


@pytest.mark.parametrize("given", ["noon", "25:61", "2999-01-01T00:00:00", "10 parsecs"])
def test_other_times_are_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "orders", "3", "--at", given])
    assert ended.value.code == 2
    assert "--at" in capsys.readouterr().err


def test_the_page_answers_questions_and_refuses_what_is_none(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[PartitionQuestion] = []

    def explain(question: PartitionQuestion) -> list[dict[str, Any]]:
        asked.append(question)
        if question.tp.partition == 9:
            raise RuntimeError("a defect")
        return [{"channel": "orders"}]

    def page(path: str, query: str = "") -> Page | None:
        return explained(explain, Request("GET", path, query), logging.getLogger("test"))

    assert page("/status") is None
    good = page("/explain", "topic=orders&partition=3&at=5")
    bad = page("/explain", "topic=orders")
    failed = page("/explain", "topic=orders&partition=9")
    assert good is not None
    assert json.loads(good.body) == {"v": 1, "answers": [{"channel": "orders"}]}
    assert asked[0] == PartitionQuestion(TP, 5.0)
    assert [answer.code for answer in (bad, failed) if answer is not None] == [400, 500]
    assert "a defect" in caplog.text


def test_what_was_is_what_had_begun_and_not_ended() -> None:
    def event(at: float, kind: str, **facts: Any) -> Happened:
        return Happened(at, kind, f"{kind} at {at:g}", TP, facts=facts)

    events = (
        event(10, "claimed"), event(20, "stalled", cause="revert-loop"), event(30, "stall-over"), event(40, "released"),
        event(50, "claimed"),
    )  # fmt: skip
    channel = (Happened(52, "paused", "paused by ann"), Happened(60, "resumed", "goes on"))
    told = [(at, at_time(at, events, channel)) for at in (5, 15, 25, 35, 45, 55, 65)]
    assert [(at, answer["known"], answer["was_held"], answer["cause"]) for at, answer in told] == [
        (5, False, False, None),
        (15, True, True, "healthy"),
        (25, True, True, "revert-loop"),
        (35, True, True, "healthy"),
        (45, True, False, None),
        (55, True, True, "paused"),
        (65, True, True, "healthy"),
    ]


def test_the_ledger_tells_what_no_memory_does(tmp_path: Path) -> None:
    clock = ManualClock()
    ledger = FilesLedger(tmp_path, "orders-svc", "a-1", clock=clock)
    began = clock.wall()
    clock.advance(10)
    ledger.begun(Range(*TP, 1, 0, 5, 5))
    clock.advance(60)
    ledger.done([Done(*TP, 1, 0, 5, 5)])
    clock.advance(60)
    ledger.note("released", **TP._asdict(), epoch=1)
    ledger.close(clean=True)
    config = LedgerConfig(type="files", path=str(tmp_path))
    said = [recorded(config, "orders-svc", TP, began + at) for at in (5, 30, 100, 200)]
    assert [one and one.cause for one in said] == [None, "slow-processor", "idle", None]
    assert said[1] is not None
    assert "a-1 was in a batch, offsets 0 to 4" in said[1].text
    assert recorded(config, "orders-svc", TopicPartition("orders", 4), began + 30) is None
    assert recorded(LedgerConfig(type="none"), "orders-svc", TP, began + 30) is None

"""The log: its formats, its levels, its repeats, and its secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inbound.config import LoggingConfig
from inbound.config.secrets import KnownSecrets
from inbound.observe.logs.formats import MOST, ConsoleFormatter, JsonFormatter
from inbound.observe.logs.handler import LogHandler
from inbound.partition.journal import Journal
from inbound.testing import ManualClock
from inbound.topic_partition import TopicPartition

AT = 1738368060.0625  # 2025-02-01 00:01:00.0625 UTC


def record(message: str, *arguments: object, name: str = "inbound.channel.turn", **more: Any) -> logging.LogRecord:
    """Return a record as a logger makes it."""
    made = logging.LogRecord(name, logging.INFO, __file__, 1, message, arguments, more.pop("exc_info", None))
    made.created, made.threadName, made.process = AT, "orders-worker-0", 4711
    made.__dict__.update(more)
    return made


def raised(error: Exception) -> Any:
    """Return what a record of `error` carries."""
    try:
        raise error
    except Exception as caught:
        return type(caught), caught, caught.__traceback__


class _Short(logging.Formatter):
    """The message, and how many like it were left out."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.getMessage()} +{vars(record)['left_out']}"


@pytest.fixture
def clock() -> ManualClock:
    """Time that a test moves."""
    return ManualClock()


@pytest.fixture
def lines(clock: ManualClock) -> Iterator[Callable[[], list[str]]]:
    """Log everything of `inbound` to a handler on the fake clock; gives back the messages so far, and forgets them."""
    written: list[bytes] = []
    handler = LogHandler(written.append, clock.now)
    handler.formatter = _Short()
    log, before = logging.getLogger("inbound"), logging.getLogger("inbound").level
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    def take() -> list[str]:
        handler.tell_overdue()
        found = [line.decode().strip() for line in written]
        written.clear()
        return found

    yield take
    log.removeHandler(handler)
    log.setLevel(before)


# -- formats ---------------------------------------------------------------------------------------------------------


def test_a_decision_as_json_has_its_fields() -> None:
    """One object a line, with the places of the decision beside the sentence; what is not known is left out."""
    fields = {"event": "claimed", "channel": "orders", "group": "svc", "topic": "orders", "partition": 3, "epoch": 7}
    line = JsonFormatter().format(record("%s: %s", "svc orders/3", "claimed", inbound={**fields, "offset": None}))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2025-02-01T00:01:00.062Z", "level": "info", "logger": "inbound.channel.turn", "message": "svc orders/3: claimed",
        **fields, "thread": "orders-worker-0", "pid": 4711,
    }  # fmt: skip


def test_the_journal_and_the_log_agree(caplog: pytest.LogCaptureFixture) -> None:
    """What the journal notes comes out with its fields, facts included, and cannot take the place of the message."""
    with caplog.at_level(logging.INFO):
        Journal("orders", "svc", lambda: AT).note(
            "held", "waits", TopicPartition("orders", 3), offset=42, epoch=7, seconds=float("inf"), message="no"
        )
    found = json.loads(JsonFormatter().format(caplog.records[0]))
    assert {key: found[key] for key in ("event", "partition", "offset", "epoch", "seconds", "message")} == {
        "event": "held", "partition": 3, "offset": 42, "epoch": 7, "seconds": "inf", "message": "svc orders/3: waits",
    }  # fmt: skip


def test_an_exception_as_json_is_structured() -> None:
    """Type, message and traceback, still in one line."""
    line = JsonFormatter().format(record("it failed", exc_info=raised(ValueError("no\nnumber"))))
    found = json.loads(line)["exception"]
    assert (line.count("\n"), found["type"], found["message"]) == (0, "ValueError", "no\nnumber")
    assert found["trace"].startswith("Traceback (most recent call last):\n")


class Unshowable:
    """Fails when it is shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "made",
    [
        record("%d pieces", "many"),
        record("%s", Unshowable()),
        record("lone \udc80 surrogate"),
        record("x", inbound={"facts": {"a": Unshowable(), "b": [float("nan"), {1}], "c": b"\xff"}, "d": TopicPartition("t", 0)}),
        record("x" * 10 * MOST),
        record("x", inbound="no mapping"),
    ],
)  # fmt: skip
def test_every_line_is_one_object_with_any_content(made: logging.LogRecord) -> None:
    """A line that cannot be made well is made as well as can be."""
    line = JsonFormatter().format(made)
    assert isinstance(json.loads(line.encode()), dict)
    assert (len(line) < 2 * MOST, "\n" in line) == (True, False)


def test_no_message_can_look_like_another_line_or_move_the_cursor() -> None:
    """Names of topics and headers of requests come from outside."""
    line = ConsoleFormatter().format(record("topic %s", "a\n2026-01-01 00:00:00 INFO inbound: all is well\x1b[2J\r"))
    assert line.endswith(
        "INFO    inbound.channel.turn: topic a\n    2026-01-01 00:00:00 INFO inbound: all is well\\x1b[2J\\r"
    )


# -- secrets ---------------------------------------------------------------------------------------------------------

SECRET = 'p"a ss/wörd+1'


@pytest.mark.parametrize("formatter", [ConsoleFormatter, JsonFormatter])
@pytest.mark.parametrize(
    "made",
    [
        record("password is %s", SECRET),
        record("password is %r", {"p": SECRET}),
        record(f"password is {SECRET}"),
        record("it failed", exc_info=raised(ValueError(f"{SECRET} was refused"))),
        record("x", stack_info=f'  File "x.py", line 3\n    login("{SECRET}")'),
        record("GET /?x=p%22a+ss%2Fw%C3%B6rd%2B1"),
        record("x", inbound={"reason": SECRET, "deep": [{"of": SECRET}]}),
        record("sent Authorization: Basic cCJhIHNzL3fDtnJkKzE="),
        record(json.dumps({"password": SECRET})),
    ],
)
def test_a_secret_is_shown_in_no_form(formatter: Callable[..., logging.Formatter], made: logging.LogRecord) -> None:
    """Wherever in the line, and however written."""
    known = KnownSecrets()
    known.remember(SECRET)
    line = formatter(hide=known.hide).format(made)
    assert "***" in line or (hasattr(made, "inbound") and formatter is ConsoleFormatter)  # which does not show it
    assert not [part for part in ('p"a ss', "ss/w", "rd+1", "rd%2B1", "cCJhIHNz", 'p\\"a') if part in line], line


def test_what_the_configuration_holds_is_known_by_its_names() -> None:
    """At any depth, and a password within a login module; not where a secret lies, and not what is no secret."""
    known = KnownSecrets()
    known.remember_in(
        {
            "sasl.jaas.config": 'PlainLoginModule required username="ann" password="in-jaas";',
            "options": {"headers": {"Authorization": "Bearer in-header"}, "sinks": [{"api_key": "in-list"}]},
            "token_file": "/run/secrets/token",
            "topic": "orders",
        }
    )
    said = "ann in-jaas in-header in-list /run/secrets/token orders"
    assert known.hide(said) == "ann *** *** *** /run/secrets/token orders"


@pytest.mark.parametrize(
    ("secrets", "said", "shown"),
    [
        (("abc", "x", "", None, b"bytes-secret"), "abc, abcdef, x, bytes-secret", "***, abcdef, x, ***"),
        (("hunter2", "hunter2-new"), "hunter2-new", "***"),  # the longer one first, or its end would be seen
        ((), "https://ann:pw@x/?token=t&a=1", "https://***@x/?token=***&a=1"),
    ],
    ids=["short ones only as words", "two that begin alike", "credentials in URLs"],
)
def test_what_is_hidden(secrets: tuple[Any, ...], said: str, shown: str) -> None:
    """Known secrets, and those in URLs, which need not be known."""
    known = KnownSecrets()
    known.remember(*secrets)
    assert known.hide(said) == shown


# -- repeats ---------------------------------------------------------------------------------------------------------


def test_repeated_lines_are_counted_now_and_then(lines: Callable[[], list[str]], clock: ManualClock) -> None:
    """The first at once, then one in five seconds that says how many there were; the last ones are not forgotten."""
    log = logging.getLogger("inbound.kafka")
    for _ in range(100):
        log.warning("broker %d does not answer", 3)
    assert lines() == ["broker 3 does not answer +0"]
    clock.advance(5.0)
    log.warning("broker %d does not answer", 3)
    log.warning("broker %d does not answer", 3)
    log.warning("broker %d does not answer", 3)
    assert lines() == ["broker 3 does not answer +99"]
    clock.advance(5.0)
    assert lines() == ["broker 3 does not answer +1"]
    clock.advance(60.0)
    assert lines() == []


def test_different_decisions_are_all_told(lines: Callable[[], list[str]]) -> None:
    """Another partition, another offset, another kind, another error: each is another decision."""
    journal = Journal("orders", "svc", lambda: AT)
    for number in range(3):
        journal.note("reverted", "goes back", TopicPartition("orders", number), offset=7)
    journal.note("reverted", "goes back", TopicPartition("orders", 0), offset=8)
    journal.note("held", "goes back", TopicPartition("orders", 0), offset=8)
    journal.note("held", "goes back", TopicPartition("orders", 0), offset=8)
    log = logging.getLogger("inbound.channel.turn")
    log.error("it failed", exc_info=raised(ValueError("a")))
    log.error("it failed", exc_info=raised(ValueError("b")))
    assert len(lines()) == 7


def test_lines_of_clients_differ_in_more_than_numbers(clock: ManualClock) -> None:
    """Ports, times and counts make no new line of what a Kafka client says again and again."""
    written: list[bytes] = []
    handler = LogHandler(written.append, clock.now)
    for port in range(50_000, 50_100):
        handler.handle(record("connection from port %d failed", port, name="kafka.conn"))
        handler.handle(record("connection from port %d failed", port, name="inbound.conn"))
    assert len(written) == 1 + 100


def test_many_different_lines_are_forgotten_in_time(clock: ManualClock) -> None:
    """What is forgotten early is still counted."""
    written: list[bytes] = []
    handler = LogHandler(written.append, clock.now)
    for number in range(5000):
        handler.handle(record("number %d", number))
        handler.handle(record("number %d", number))
    handler.tell_overdue()
    assert len(written) == 5000 + (5000 - 2048)
    handler.tell_overdue(float("inf"))
    assert len(written) == 10_000


# -- levels ----------------------------------------------------------------------------------------------------------


def test_levels_change_while_the_process_runs() -> None:
    """What an earlier configuration named goes back to the common level; clients are silent unless named."""
    root = logging.getLogger()
    names = ("inbound.channel.turn", "shop", "kafka", "kazoo")
    before = {name: logging.getLogger(name).level for name in names}, root.level
    handler = LogHandler(lambda line: None)
    try:
        handler.configure(LoggingConfig(level="warning", levels={"inbound.channel.turn": "debug", "kafka": "info"}))
        first = [logging.getLogger(name).getEffectiveLevel() for name in names]
        handler.configure(LoggingConfig(level="info", levels={"shop": "error"}, format="json"))
        second = [logging.getLogger(name).getEffectiveLevel() for name in names]
        assert isinstance(handler.formatter, JsonFormatter)
    finally:
        for name, level in before[0].items():
            logging.getLogger(name).setLevel(level)
        for name in ("py4j", "confluent_kafka", "watchfiles"):
            logging.getLogger(name).setLevel(logging.NOTSET)
        root.setLevel(before[1])
    assert (first, second) == ([10, 30, 20, 50], [20, 40, 50, 50])

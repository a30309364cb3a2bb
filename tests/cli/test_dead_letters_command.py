"""`inbound dead-letters`: the output, the letters that are sent and deleted, and the exit codes."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kafka
import pytest

from inbound.cli.dead_letters import options as dead_letters_options
from inbound.cli.dead_letters import purge
from inbound.cli.main import main
from inbound.processors.batch import PlainRecord
from inbound.processors.dispatch.transport import Answer
from inbound.testing.kafka import FakeKafka
from tests.dead_letters.dead_letter_stage import DEAD, STRUCTURED, event, failed, put, refused
from tests.http_receiver import Receiver, receiver
from tests.kafka.producer_broker import ProducerBroker, Topic

__all__ = ["receiver"]  # the fixture

CONFIG = """\
channels:
  orders:
    topics: [orders]
    group: orders-svc
    subscriptions:
      billing: {subscriberUri: "URL/in?token=hunter2", delivery: {retry: 0}, headers: {x-tenant: a, authorization: "SECRET"}}
  stock: {topics: [orders], group: stock-svc, processor: {type: simple, options: {sinks: [log]}}}
"""
SECRET = "s3cret-abcdef-123456789"
Run = Callable[..., tuple[int, str, str]]


class Terminal(io.StringIO):
    """A user who types an answer."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def fake() -> FakeKafka:
    """Five letters in two partitions: three of billing, two of stock."""
    fake = FakeKafka()
    fake.create_topic(DEAD, 2)
    fake.create_topic("orders", 4)
    put(fake, [refused(event(f"b{n}", n, key=b"k%d" % n)) for n in range(3)], 0)
    put(
        fake,
        [failed(event("s0", 10), "ValueError: no order 17"), failed(event("s1", 11), "ValueError: no order 4711")],
        1,
    )
    return fake


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ProducerBroker:
    """What the producer writes to: one partition each."""
    broker = ProducerBroker(orders=Topic())
    monkeypatch.setitem(kafka.KafkaProducer.DEFAULT_CONFIG, "kafka_client", broker)
    return broker


@pytest.fixture
def run(
    fake: FakeKafka,
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command; returns the exit code, the output and standard error."""
    monkeypatch.setattr(dead_letters_options, "connect", lambda properties: fake.client())

    def delete_before(properties: Any, topic: str, offsets: Mapping[int, int]) -> None:
        for partition, end in offsets.items():
            fake.retain(topic, partition, end)

    monkeypatch.setattr(purge, "delete_before", delete_before)
    monkeypatch.setattr("logging.basicConfig", lambda **options: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbound.yaml").write_text(CONFIG.replace("URL", receiver.url).replace("SECRET", SECRET))

    def command(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(["dead-letters", *arguments])
        except SystemExit as wrong:  # argparse's
            code = int(wrong.code or 0)
        said = capsys.readouterr()
        return code, said.out.replace(str(tmp_path), "."), said.err.replace(str(tmp_path), ".")

    return command


def lines(text: str) -> list[list[str]]:
    """Return the cells of a table, without its heading."""
    return [line.split("  ") for line in text.splitlines()[1:]]


# -- list and show ---------------------------------------------------------------------------------------------------------


def test_list_has_a_line_for_each_letter(run: Run) -> None:
    """By partition and offset, with the subscription's name and the reason decoded."""
    code, out, err = run("list", DEAD)
    cells = [[cell.strip() for cell in row if cell] for row in lines(out)]

    assert (code, err, len(cells)) == (0, "", 5)
    assert cells[0] == [
        "0/0", "2026-01-31T02:40:00Z", "orders.billing", "503 try later", "k0", "orders/3/0", "b0", "order", "0",
    ]  # fmt: skip
    assert cells[3][:4] == ["1/0", "2026-01-31T02:40:00Z", "stock", "ValueError: no order 17"]


FILTERS: Mapping[tuple[str, ...], list[str]] = {
    ("--subscription", "orders.billing"): ["0/0", "0/1", "0/2"],
    ("--subscription", "stock", "--subscription", "unknown"): ["1/0", "1/1"],
    ("--since", "2026-01-31T02:41:00Z", "--until", "2026-01-31T02:42:00Z"): ["0/1", "1/1"],
    ("--reason", "503"): ["0/0", "0/1", "0/2"],
    ("--reason", "order 4*"): ["1/1"],
    ("--key", "k2"): ["0/2"],
    ("--limit", "2"): ["0/0", "0/1"],
    ("--since", "1h"): [],
}


@pytest.mark.parametrize(("options", "expected"), FILTERS.items(), ids=" ".join)
def test_list_shows_those_that_meet_all_filters(run: Run, options: tuple[str, ...], expected: list[str]) -> None:
    """As JSON: a line for each."""
    code, out, _ = run("list", DEAD, "--json", *options)
    found = [json.loads(line) for line in out.splitlines()]

    assert (code, [f"{one['partition']}/{one['offset']}" for one in found]) == (0, expected)


def test_a_summary_counts_by_subscription_and_reason(run: Run) -> None:
    """The largest first; reasons that differ in numbers alone are one."""
    code, out, err = run("list", DEAD, "--summary")
    first, second = ([cell.strip() for cell in row if cell] for row in lines(out))

    assert (code, err) == (0, "5 letters\n")
    assert first == ["3", "orders.billing", "503 try later", "2026-01-31T02:40:00Z", "2026-01-31T02:42:00Z", "0"]
    assert second[:3] == ["2", "stock", "ValueError: no order #"]


def test_a_secret_that_a_reason_repeats_is_hidden_also_where_the_reason_is_cut(run: Run, fake: FakeKafka) -> None:
    """As a subscriber says which token it has refused: neither its beginning nor its letters are shown."""
    told = b"the token you have sent is of no use at all: " + SECRET.encode()
    put(fake, [refused(event("x"), answer=Answer(401, body=told))], 0)
    shown = [run("list", DEAD, "--reason", "401", *more)[1] for more in ((), ("--summary",), ("--json",))]

    assert [SECRET[:6] in out or "abcdef" in out for out in shown] == [False] * 3


def test_a_letter_that_names_what_cannot_be_is_one_line_as_others(run: Run, fake: FakeKafka) -> None:
    """A group, a topic and a reason of half a MB: another program has written them."""
    long = b"x" * 500_000
    headers = [(f"inbound-dead-letter-{name}", long) for name in ("group", "topic", "reason")]
    more = [("inbound-dead-letter-partition", b"0"), ("inbound-dead-letter-offset", b"1")]
    put(fake, [PlainRecord(0, key=long, value=b"v", headers=[*headers, *more])], 0)
    code, out, _ = run("list", DEAD)
    _, planned, _ = run("redrive", DEAD, "--at", "0/3", "--to", "original")

    assert (code, max(map(len, out.splitlines())) < 600) == (0, True)
    assert planned.splitlines()[1].startswith("refused, 1 letter (0/3): it does not say which topic it came from")


@pytest.mark.parametrize("command", ["list", "redrive", "purge"])
def test_a_reason_that_is_empty_chooses_not_everything(run: Run, command: str) -> None:
    """It is a variable that is not set."""
    code, _, err = run(command, DEAD, "--reason", "", *(["--to", "original"] if command == "redrive" else []))

    assert (code, err.splitlines()[-1].partition("argument ")[2]) == (
        2, "--reason: need a code or a text, got nothing; leave it out for all letters",
    )  # fmt: skip


def test_a_list_that_is_cut_off_says_so(run: Run) -> None:
    """And how to see more."""
    _, out, err = run("list", DEAD, "--limit", "4")

    assert (len(lines(out)), err.startswith("there are more than 4 letters")) == (4, True)


def test_the_output_tells_an_empty_topic_from_one_without_such_letters(run: Run, fake: FakeKafka) -> None:
    """Exit code 0: it was looked for."""
    some = run("list", DEAD, "--key", "nothing")[:2]
    fake.retain(DEAD, 0, 3)
    fake.retain(DEAD, 1, 2)

    assert (some, run("list", DEAD)[:2]) == ((0, f"{DEAD}: no such letters\n"), (0, f"{DEAD}: no letters\n"))


def test_show_tells_everything_of_one_letter(run: Run, fake: FakeKafka) -> None:
    """JSON is indented; secrets in headers are hidden."""
    envelope = b'{"specversion":"1.0","id":"x","source":"/s","type":"t","data":{"sum":"\xc3\xa4"}}'
    one = event("x", 5, key=b"\xff\x00")._replace(
        value=envelope, headers=[*STRUCTURED, ("Authorization", b"Bearer abc")]
    )
    put(fake, [refused(one)], 1)
    code, out, _ = run("show", DEAD, "1/2")

    assert code == 0
    for line in (
        "given up by:    orders.billing, group orders-svc.billing, http://billing/in refused it",
        "reason:         503 try later",
        "from:           orders/3/5",
        "event:          x (t)",
        "key:            0xff00",
        "  Authorization: ***",
        '      "sum": "ä"',
        '    "knativeerrorcode": "503",',
    ):
        assert line in out.splitlines(), out


def test_a_value_is_shown_up_to_a_bound(run: Run, fake: FakeKafka) -> None:
    """Bytes in hexadecimal; --whole shows all."""
    put(fake, [failed(event("x")._replace(value=b"\xff" * 5000))], 1)
    short, whole = run("show", DEAD, "1/2")[1], run("show", DEAD, "1/2", "--whole")[1]

    assert "  ... and 904 bytes more; --whole shows them" in short.splitlines()
    assert (short.count("ff ff ff ff ff ff ff ff"), whole.count("ff ff ff ff ff ff ff ff")) == (512, 625)


def test_a_letter_that_does_not_exist_is_refused(run: Run) -> None:
    """Exit code 2, with what there is."""
    assert run("show", DEAD, "0/9") == (2, "", f"error: topic {DEAD}: no letter at 0/9: it holds 0 to 2\n")


# -- redrive ---------------------------------------------------------------------------------------------------------------

LEDGER = f"./state/inbound/dead-letters/{DEAD}.jsonl"


def test_without_execute_it_only_says_what_would_be_sent(run: Run, broker: ProducerBroker, tmp_path: Path) -> None:
    """Nothing is sent, and no ledger is made."""
    code, out, err = run("redrive", DEAD, "--to", "original")

    assert (code, err) == (0, "dry run: nothing was sent; do it with --execute\n")
    assert [row[-1].strip() for row in lines(out)] == ["topic orders", "topic orders"]
    assert (broker.values("orders"), (tmp_path / "state").exists()) == ([], False)


def test_exactly_the_chosen_ones_go_to_their_topic(run: Run, fake: FakeKafka, broker: ProducerBroker) -> None:
    """As the records that were read, with their counter; once, however often the command is given."""
    fake.create_topic("orders", 0)  # the broker has one partition: the key says to which
    command = ("redrive", DEAD, "--at", "0/2", "--at", "1/1", "--to", "original", "--execute", "--yes")
    code, out, _ = run(*command)
    again = run(*command)

    assert (code, out.splitlines()[-1]) == (0, f"redrove 2 of 2 letters; noted in {LEDGER}")
    ((_, first, headers), (_, second, _)) = broker.logs["orders"]
    assert (first, second) == (b"data of b2", b"data of s1")
    assert headers == [*event("b2").headers, ("inbound-redrives", b"1")]
    assert again[:2] == (
        0, f"{DEAD}: no letters to redrive\nleft out, 2 letters: redriven to topic orders before, says {LEDGER}\n",
    )  # fmt: skip


def test_letters_go_to_one_subscription_by_http(run: Run, receiver: Receiver) -> None:
    """With its headers, URL and all; the letters stay."""
    code, out, _ = run(
        "redrive", DEAD, "--subscription", "orders.billing", "--to-subscription", "orders.billing", "--execute", "--yes"
    )

    assert (code, out.splitlines()[-1]) == (0, f"redrove 3 of 3 letters; noted in {LEDGER}")
    assert sorted(one.headers["ce-id"] for one in receiver.requests) == ["b0", "b1", "b2"]
    assert {(one.target, one.headers["x-tenant"]) for one in receiver.requests} == {("/in?token=hunter2", "a")}


def test_a_letter_that_is_refused_again_ends_with_exit_code_1(run: Run, receiver: Receiver) -> None:
    """It is named, without what is secret in the URL, and the next run tries it again."""
    receiver.status = lambda number: 400 if number == 0 else 204
    first = run("redrive", DEAD, "--at", "0/0", "--at", "0/1", "--to-subscription", "orders.billing", "--parallel", "1",
                "--execute", "--yes")  # fmt: skip
    second = run("redrive", DEAD, "--to-subscription", "orders-svc.billing", "--at", "0/0", "--execute", "--yes")

    assert (first[0], second[0]) == (1, 0)
    assert f"refused: 0/0: {receiver.url}/in: answered 400\n" in first[2]
    assert "hunter2" not in "".join(map(str, first[1:] + second[1:]))


def test_letters_that_came_back_too_often_are_refused_and_named(
    run: Run, fake: FakeKafka, broker: ProducerBroker
) -> None:
    """The others are sent; exit code 1."""
    put(fake, [refused(event("loop", 9, **{"inbound-redrives": b"3"}))], 1)
    code, out, _ = run("redrive", DEAD, "--at", "1/2", "--at", "1/0", "--to-topic", "orders", "--execute", "--yes")

    assert (code, broker.values("orders")) == (1, [b"data of s0"])
    assert "refused, 1 letter (1/2): it was redriven 3 times or more" in out


def test_ctrl_c_ends_gracefully_and_the_same_command_goes_on(run: Run, receiver: Receiver) -> None:
    """What is under way is answered and noted; nothing is sent twice."""

    def interrupted(number: int) -> int:
        if number == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return 204

    receiver.status = interrupted
    command = (
        "redrive", DEAD, "--subscription", "orders.billing", "--to-subscription", "orders.billing", "--parallel", "1",
        "--execute", "--yes",
    )  # fmt: skip
    first, second = run(*command), run(*command)

    assert (first[0], second[0], "left: the same command, with the same ledger, goes on" in first[2]) == (1, 0, True)
    assert sorted(one.headers["ce-id"] for one in receiver.requests) == ["b0", "b1", "b2"]


@pytest.mark.parametrize(("typed", "sent"), [("yes\n", 1), ("y\n", 0), ("", 0)])
def test_it_asks_before_it_sends(
    run: Run, broker: ProducerBroker, monkeypatch: pytest.MonkeyPatch, typed: str, sent: int
) -> None:
    """On a terminal; what was planned is shown before."""
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    code, _, err = run("redrive", DEAD, "--at", "1/0", "--to-topic", "orders", "--execute")

    assert (code, len(broker.values("orders"))) == (0 if sent else 1, sent)
    assert err.startswith("Redrive 1 letter? Type yes to go on: ")


TO = ("redrive", DEAD, "--to-subscription")
REFUSED: Mapping[tuple[str, ...], str] = {
    ("redrive", DEAD): "one of the arguments --to --to-topic --to-subscription is required",
    ("redrive", DEAD, "--to", "original", "--execute"): "--execute asks on the terminal before it begins",
    ("redrive", DEAD, "--to-topic", DEAD): f"--to-topic {DEAD}: it is the topic that the letters are in",
    ("redrive", DEAD, "--to-topic", "nothing"): "--to-topic nothing: does not exist",
    (*TO, "x", "--at", "0/0"): "the configuration has no such subscription; it has orders.billing",
    (*TO, "stock", "--at", "0/0"): "channel stock has the processor simple, and posts to no subscriber",
    (*TO, "orders.billing", "--reason", "503"): "--to-subscription orders.billing: whose letters?",
    ("redrive", DEAD, "--to", "original", "--parallel", "2"): "--parallel goes with --to-subscription",
    ("redrive", DEAD, "--to", "original", "--at", "0"): "need a partition and an offset such as 0/17, got '0'",
    ("list", DEAD, "--since", "yesterday"): "need a time such as 2026-01-31T02:40:00Z, or how long ago such as 2h",
    ("list", DEAD, "--since", "1h", "--until", "2h"): "--since must be before --until",
    ("list", "no/topic"): "topic 'no/topic'",
    ("list", "nothing"): "topic nothing: does not exist on these brokers",
    ("purge", DEAD): "which letters? give --until, --before-redriven, another filter, or --all",
    ("purge", DEAD, "--all", "--execute"): "--execute asks on the terminal before it begins",
    ("purge", DEAD, "--all", "--key", "k"): "--all does not go with filters",
    ("purge", DEAD, "--before-redriven"): "no such file; name the one that `redrive` wrote",
    ("purge", DEAD, "--all", "--ledger", "x"): "--ledger goes with --before-redriven",
}


@pytest.mark.parametrize(("arguments", "said"), REFUSED.items(), ids=" ".join)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    run: Run, arguments: tuple[str, ...], said: str
) -> None:
    """Exit code 2."""
    code, _, err = run(*arguments)

    assert (code, said in err) == (2, True), err


# -- purge -----------------------------------------------------------------------------------------------------------------


def test_purge_deletes_the_beginning_up_to_a_time(run: Run, fake: FakeKafka) -> None:
    """First it only says what would be deleted."""
    command = ("purge", DEAD, "--until", "2026-01-31T02:42:00Z")
    dry = run(*command)
    held = [fake.offsets(DEAD, p) for p in (0, 1)]
    code, out, _ = run(*command, "--execute", "--yes")

    assert (dry[0], [row.split() for row in dry[1].splitlines()[1:]]) == (
        0,
        [["0", "0", "2", "2"], ["1", "0", "2", "2"]],
    )
    assert (held, code, out.splitlines()[-1]) == ([[0, 1, 2], [0, 1]], 0, f"{DEAD}: 4 letters deleted")
    assert [fake.offsets(DEAD, p) for p in (0, 1)] == [[2], []]


def test_purge_refuses_what_would_delete_other_letters(run: Run, fake: FakeKafka) -> None:
    """And says how many are in the way."""
    code, _, err = run("purge", DEAD, "--key", "k2", "--execute", "--yes")

    assert (code, fake.offsets(DEAD, 0)) == (2, [0, 1, 2])
    assert err.startswith(f"error: {DEAD}/0: 1 chosen letter behind 2 others, the first of them at offset 0\n")


def test_purge_deletes_what_was_redriven_up_to_the_first_that_was_not(
    run: Run, fake: FakeKafka, broker: ProducerBroker
) -> None:
    """The letters behind it stay, and are named."""
    redriven = ("--at", "0/0", "--at", "0/2", "--at", "1/0", "--at", "1/1")
    run("redrive", DEAD, *redriven, "--to-topic", "orders", "--execute", "--yes")
    code, _, err = run("purge", DEAD, "--before-redriven", "--execute", "--yes")

    assert (code, [fake.offsets(DEAD, p) for p in (0, 1)]) == (0, [[1, 2], []])
    assert err == f"{DEAD}/0: 1 chosen letter behind 1 other, the first of them at offset 1; they stay\n"


@pytest.mark.parametrize(("typed", "left"), [(f"{DEAD}\n", 0), ("yes\n", 5)])
def test_purge_has_the_topics_name_typed(
    run: Run, fake: FakeKafka, monkeypatch: pytest.MonkeyPatch, typed: str, left: int
) -> None:
    """It cannot be taken back."""
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    code, _, err = run("purge", DEAD, "--all", "--execute")

    assert (code, sum(len(fake.offsets(DEAD, p)) for p in (0, 1))) == (1 if left else 0, left)
    assert err.startswith(f"Delete 5 letters of {DEAD} for good? Type {DEAD} to go on: ")


def test_a_wrong_configuration_is_refused_before_kafka_is_asked(run: Run, tmp_path: Path) -> None:
    """Exit code 2, with the line."""
    (tmp_path / "inbound.yaml").write_text(CONFIG.replace("retry: 0", "retry: -1"))
    found: Any = run("list", DEAD)

    assert (found[0], "inbound.yaml:6" in found[2]) == (2, True)

"""`inbound dead-letters` on real servers: letters that the dispatcher wrote, sent once more, and deleted."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from inbound.kafka.clients.dead_letter_topic import DeadLetterTopic
from inbound.processors.batch import PlainRecord
from integration.processors.dispatch.dispatching import Dispatching, MakeScene
from integration.processors.sink import Answer, Sink, status
from tests.waiting import until

FAST: dict[str, Any] = {"backoffDelay": "PT0.05S", "backoffPolicy": "linear", "retry": 1, "timeout": "PT30S"}


def listed(s: Dispatching, topic: str, *options: str) -> list[dict[str, Any]]:
    """Return the letters that `list` shows."""
    out = s.inbound("dead-letters", "list", topic, "--json", *options).stdout
    return [json.loads(line) for line in out.splitlines()]


def test_letters_are_listed_shown_redriven_to_their_topic_and_purged(dispatching: MakeScene, sink: Sink) -> None:
    """Exactly the chosen ones are delivered then; one that comes back each time is refused in the end."""
    s = dispatching(partitions=2)
    topic = s.make_topic("dead")
    s.subscribe(subscriberUri=f"{sink.url}/", delivery={**FAST, "deadLetterSink": {"topic": topic}})
    sink.tell(status(400, b"no such customer 17"), event="0-1")
    sink.tell(status(400, b"no such customer 18"), event="1-2")
    sink.tell(status(503, b"try later"), event="1-0")
    s.send(4, key=lambda n: f"k{n}")
    (process,) = s.run()
    s.drained()
    ledger = ("--ledger", str(s.folder / "redriven.jsonl"))
    go = (*ledger, "--execute", "--yes")

    letters = {one["event_id"]: one for one in listed(s, topic)}
    assert {id: (one["origin"], one["subscription"], one["code"], one["redrives"]) for id, one in letters.items()} == {
        "0-1": ([s.topic, 0, 1], "orders", "400", 0),
        "1-2": ([s.topic, 1, 2], "orders", "400", 0),
        "1-0": ([s.topic, 1, 0], "orders", "503", 0),
    }
    summary = s.inbound("dead-letters", "list", topic, "--summary").stdout
    assert "400 no such customer #" in summary.splitlines()[1]
    at = "0/{offset}".format(**letters["1-0"])
    shown = s.inbound("dead-letters", "show", topic, at).stdout
    assert f"from:           {s.topic}/1/0" in shown.splitlines(), shown

    sink.forget()
    sink.tell(status(400, b"still no such customer"), event="1-2")
    dry = s.inbound("dead-letters", "redrive", topic, "--reason", "no such*", "--to", "original", *ledger)
    assert (sink.taken().count("0-1"), dry.stdout.splitlines()[1].split()[0]) == (0, "2")
    done = s.inbound("dead-letters", "redrive", topic, "--reason", "no such*", "--to", "original", *go)
    s.published.update({0: 1, 1: 1})
    s.drained()
    assert f"redrove 2 of 2 letters; noted in {ledger[1]}" in done.stdout
    assert (sink.taken().count("0-1"), sink.taken().count("1-0")) == (1, 0)
    sent = [record for record in s.read(s.topic, 10) if dict(record.headers).get("inbound-redrives") == b"1"]
    assert [(one.partition, one.key, dict(one.headers)["ce_id"]) for one in sent] == [
        (0, b"k1", b"0-1"),
        (1, b"k2", b"1-2"),
    ]
    assert {name for one in sent for name, _ in one.headers if "error" in name or "dead-letter" in name} == set()

    (back,) = [one for one in listed(s, topic) if one["redrives"]]
    assert (back["event_id"], back["reason"]) == ("1-2", "still no such customer")
    refused = s.inbound("dead-letters", "redrive", topic, "--to", "original", "--max-redrives", "1", *go, code=1)
    s.published.update({1: 1})
    s.drained()
    assert f"refused, 1 letter (0/{back['offset']}): it was redriven once or more" in refused.stdout
    assert (sink.taken().count("1-0"), s.lost(sink.taken())) == (1, {"1-2"})

    purged = s.inbound("dead-letters", "purge", topic, "--before-redriven", *go)
    assert f"{topic}: 3 letters deleted" in purged.stdout, purged
    assert [one["offset"] for one in listed(s, topic)] == [back["offset"]]
    assert s.stop(process) == 0


def test_a_redrive_to_one_subscription_goes_on_where_it_was_killed(dispatching: MakeScene, sink: Sink) -> None:
    """Each letter reaches it alone, with its headers; what was under way at the kill is sent twice, and nothing else."""
    s = dispatching()
    topic = s.make_topic("dead")
    delivery = {**FAST, "retry": 0, "deadLetterSink": {"topic": topic}}
    s.subscribe(subscriberUri=f"{sink.url}/in", delivery=delivery, headers={"x-tenant": "a"})
    s.subscribe("other", subscriberUri=f"{sink.url}/other")
    sink.tell(status(500), path="/in")
    s.send(30)
    s.run()
    s.drained()
    s.drained("other")
    sink.forget()
    sink.tell(Answer(held="kill"), path="/in", where=lambda request: request.ids[0] in ("0-10", "0-11", "0-12"))
    command = (
        "dead-letters", "redrive", topic, "--subscription", "orders", "--to-subscription", "orders", "--parallel", "3",
        "--ledger", str(s.folder / "redriven.jsonl"), "--execute", "--yes",
    )  # fmt: skip
    before = len(sink.sent("/in"))
    with subprocess.Popen(s.command_line(*command)) as running:
        until(lambda: len(sink.sent("/in")) >= before + 13, 60, "three are under way")
        running.send_signal(signal.SIGKILL)
    sink.let_go("kill")
    sink.forget()
    done = s.inbound(*command)

    sent = sink.sent("/in")[before:]
    times = Counter(id for request in sent for id in request.ids)
    assert "left out, 10 letters: redriven to subscription orders before" in done.stdout, done.stdout
    assert times == {f"0-{n}": 2 if n in (10, 11, 12) else 1 for n in range(30)}
    assert {request.headers["x-tenant"] for request in sent} == {"a"}
    assert set(sink.attempts("/other").values()) == {1}


@pytest.mark.thorough(
    "the redrive to a subscription is killed and goes on, and fast tests bound what is unacknowledged"
)
def test_a_redrive_to_a_topic_goes_on_where_it_was_killed(dispatching: MakeScene, sink: Sink) -> None:
    """Every letter arrives; twice at most those that were not acknowledged and noted."""
    s = dispatching(unproven="no consumer runs: letters go from one topic to another")
    s.subscribe(subscriberUri=f"{sink.url}/")
    dead, to = s.make_topic("dead"), s.make_topic("to")
    count = 20_000
    letters = DeadLetterTopic({"bootstrap.servers": s.bootstrap_servers}, dead, "g", "test")
    for first in range(0, count, 1000):
        letters.send(s.topic, 0, [PlainRecord(n, value=b"%d" % n) for n in range(first, first + 1000)], "poison")
    letters.close()
    ledger = Path(s.folder / "redriven.jsonl")
    command = ("dead-letters", "redrive", dead, "--to-topic", to, "--ledger", str(ledger), "--execute", "--yes")
    with subprocess.Popen(s.command_line(*command)) as running:
        until(lambda: ledger.exists() and ledger.stat().st_size > 100_000, 60, "it has begun", look=0.01)
        running.send_signal(signal.SIGKILL)
    killed_at = ledger.read_bytes().count(b"\n") - 1
    s.inbound(*command)

    times = Counter(int(record.value) for record in s.read(to, count))
    assert (0 < killed_at < count, set(times)) == (True, set(range(count)))
    assert sum(number - 1 for number in times.values()) <= 500, killed_at


def test_a_compacted_topic_cannot_be_purged_with_the_reason(dispatching: MakeScene, sink: Sink) -> None:
    """Kafka deletes the beginning of a log only where `delete` is in its policy."""
    s = dispatching(topic_configs={"cleanup.policy": "compact"}, unproven="no consumer runs")
    s.subscribe(subscriberUri=f"{sink.url}/")
    dead = s.make_topic("dead")
    letters = DeadLetterTopic({"bootstrap.servers": s.bootstrap_servers}, dead, "g", "test")
    letters.send(s.topic, 0, [PlainRecord(1, key=b"k", value=b"x")], "poison")
    letters.close()
    refused = s.inbound("dead-letters", "purge", dead, "--all", "--execute", "--yes", code=2)

    assert f"{dead}/0: the records before offset 1 cannot be deleted: the topic is compacted" in refused.stderr
    assert len(listed(s, dead)) == 1

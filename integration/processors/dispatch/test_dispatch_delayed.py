"""Events that wait in topics to be sent again: their partitions go on, and nothing of them is lost by a restart."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from urllib.request import urlopen

from kafka.admin import KafkaAdminClient, NewTopic

from integration.processors.dispatch.dispatching import Dispatching, MakeScene, channel_status, event_headers
from integration.processors.sink import Sink, status
from tests.waiting import until

SPEC: dict[str, Any] = {"retry": 1, "backoffDelay": "PT0.05S", "timeout": "PT30S"}


def retry_topics(s: Dispatching, *delays: str) -> dict[str, Any]:
    """Create a topic for each delay; returns the option."""
    prefix = f"retry-{s.folder.name}"
    admin = KafkaAdminClient(bootstrap_servers=s.cluster.bootstrap_servers)
    admin.create_topics([NewTopic(f"{prefix}.{delay}", 1, 1) for delay in delays])
    admin.close()
    return {"delays": list(delays), "topic": prefix, "out_of_order": True}


def explained(url: str, topic: str) -> dict[str, Any]:
    """Return what a process says of the first partition of a topic."""
    with urlopen(f"{url}/explain?topic={topic}&partition=0", timeout=30) as answer:
        (found,) = json.load(answer)["answers"]
    return dict(found["explanation"])


def test_an_event_that_is_not_taken_comes_again_after_each_delay_and_then_is_a_dead_letter(
    dispatching: MakeScene, sink: Sink
) -> None:
    """Two attempts each time, always the same request; the events behind it do not wait."""
    s = dispatching()
    delayed = retry_topics(s, "2s", "3s")
    s.subscribe(
        subscriberUri=f"{sink.url}/", delivery={**SPEC, "deadLetterSink": f"{sink.url}/dead"}, delayed_retry=delayed
    )
    sink.tell(status(503, b"later"), event="0-0", path="/")
    s.send(20, key=lambda n: "k")
    s.run()
    s.drained()
    assert (sink.attempts("/")["0-0"], sorted(sink.taken())) == (2, sorted(s.events.keys() - {"0-0"}))
    until(lambda: sink.sent("/dead"), 60, lambda: f"it is a dead letter: {s.log(s.processes[0])[-2000:]}")
    tries = [request for request in sink.sent("/") if request.ids == ["0-0"]]
    gaps = [after.began - before.began for before, after in pairwise(tries)]
    # 10 ms: the delay is of the wall clock, the gap of another.
    assert (len(tries), gaps[1] >= 1.99, gaps[3] >= 2.99) == (6, True, True), gaps
    assert {(tuple(sorted(request.headers.items())), request.body) for request in tries} == {
        (tuple(sorted(tries[0].headers.items())), b"data")
    }
    (letter,) = sink.sent("/dead")
    assert (letter.ids, letter.body, letter.headers["ce-knativeerrorcode"]) == (["0-0"], b"data", "503")
    records = [s.read(f"{delayed['topic']}.{delay}", 1)[0] for delay in delayed["delays"]]
    assert [(record.key, record.value) for record in records] == [(b"k", b"data")] * 2
    said = [dict(record.headers) for record in records]
    due = [int(one.pop("inbound-retry-due")) for one in said]
    written = {one.pop("inbound-retry-time") for one in said}
    where = {"topic": s.topic, "partition": "0", "offset": "0", "group": s.group}
    common = {f"inbound-retry-{name}": text.encode() for name, text in where.items()} | dict(event_headers("0-0"))
    assert said == [common | {"inbound-retry-delay": number} for number in (b"1", b"2")]
    assert len(written) == 1  # when the first record was, and not the one in the first retry topic
    assert due[1] - due[0] >= 3000


def test_what_waits_says_until_when_and_outlives_its_process(dispatching: MakeScene, sink: Sink) -> None:
    """Its time stands in the record: the next reader of the topic sends it then, once."""
    s = dispatching()
    delayed = retry_topics(s, "20s")
    s.subscribe(subscriberUri=f"{sink.url}/", delivery=SPEC, delayed_retry=delayed)
    topic = f"{delayed['topic']}.20s"
    sink.tell(status(500), event="0-0")
    s.send(3)
    (process,) = s.run()
    url = s.admin_url(process)
    until(lambda: channel_status(s, process)["processor"]["delayed"], 60, lambda: f"it waits: {s.log(process)[-2000:]}")
    until(lambda: explained(url, topic)["cause"] == "delayed-retry", 15, lambda: str(explained(url, topic)))
    text = explained(url, topic)["text"]
    assert text.startswith("offset 0 is sent again at 20"), text
    assert s.stop(process) == 0
    sink.forget()
    s.run()
    until(lambda: "0-0" in sink.taken(), 60, lambda: f"it comes again: {s.log(s.processes[-1])[-2000:]}")
    first, last, again = [request.began for request in sink.sent() if request.ids == ["0-0"]]
    assert (last - first < 15, again - last >= 20, sorted(sink.taken())) == (True, True, sorted(s.events))

"""What subscriptions that share an event loop do not take from each other, on a real loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from inbound.channel.shared import TO_THREAD, new_event_loop
from inbound.http.client.client import Client
from inbound.processors.base import TopicWriter
from inbound.processors.batch import Batch, PlainRecord
from inbound.processors.cloudevents_bridge import RecordParts
from inbound.processors.dispatch.attempts import Attempts
from inbound.processors.dispatch.jobs import Job, PartitionClaim, Traces
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Answer, targets_of
from inbound.processors.dispatch.window import OpenEvent, SendWindow
from inbound.processors.spans import NO_TRACING, ConsumerName
from inbound.topic_partition import TopicPartition

RECORD = RecordParts(b"k", b"v", [])


class Topic:
    """Takes records when `open` is set."""

    def __init__(self, *, takes: bool) -> None:
        self.open = threading.Event()
        if takes:
            self.open.set()

    def send(self, records: object) -> None:
        self.open.wait(5)

    def close(self) -> None:
        pass


class Written:
    """The step of a job that is written to a topic."""

    kind = "dead-letters"

    def __init__(self, came: Callable[[Answer], None]) -> None:
        self._came = came

    def send(self, job: Job) -> None:
        pass

    def answered(self, job: Job, answer: Answer) -> None:
        self._came(answer)


def attempts(topic: TopicWriter) -> Attempts:
    options = DispatchOptions(subscriberUri="http://localhost:1/")
    loop = asyncio.get_running_loop()
    log = logging.getLogger("test")
    return Attempts(
        options,
        targets_of(options),
        Client(loop),
        loop,
        log,
        lambda claim: None,
        lambda name: topic,
        Traces(NO_TRACING, ConsumerName("", "")),
        time.time,
    )


def publish(by: Attempts, came: Callable[[Answer], None] = lambda answer: None) -> None:
    claim = PartitionClaim(TopicPartition("orders", 0), SendWindow(8, "none"), Batch("orders", 0, 0, 1, []))
    by.publish(Job(claim, [OpenEvent(PlainRecord(0))], Written(came)), "dead", RECORD)


def test_a_topic_that_takes_nothing_holds_up_no_other_subscription() -> None:
    """As one that does not exist: each record waits for long, and more of them wait than the loop has threads."""
    stuck = Topic(takes=False)

    async def run() -> Answer:
        one, other = attempts(stuck), attempts(Topic(takes=True))
        for _ in range(2 * TO_THREAD):
            publish(one)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        publish(other, answered.set_result)
        try:
            return await asyncio.wait_for(answered, 1)
        finally:
            stuck.open.set()
            one.close()
            other.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(run()).status == 202

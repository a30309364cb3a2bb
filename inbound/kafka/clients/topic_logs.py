"""The logs of a whole topic, for resets of offsets: asked on a thread of its own, answered by a Call."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import closing

from inbound.controller.reset_offset.model import TopicLog
from inbound.coordinators.zookeeper import Call
from inbound.errors import BrokerUnavailableError, InboundError
from inbound.kafka.base import LogClient, LogRange
from inbound.runtime.driver import DaemonThreads
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: How long the leaders of a topic may take to say where its logs begin and end. Seconds.
ANSWER_TIMEOUT = 10.0
#: How often it is looked whether they have. Seconds.
LOOK_INTERVAL = 0.02


class KafkaTopicLogs:
    """Asks the brokers with a `LogClient`. See `inbound.controller.reset_offset.model.TopicLogs`.

    Each question has a client of its own, which is closed again: what a client remembers may be a topic that was deleted
    since, and resets are rare. What counts as a log's end is what the client is made for: with `read_committed` where the
    first open transaction begins, for a consumer that has read everything stands there too.

    The thread is made with the first question. It does not keep the process from ending.
    """

    def __init__(self, connect: Callable[[], LogClient]) -> None:
        """`connect` makes a client, on this object's thread; it may raise BrokerUnavailableError."""
        self._connect = connect
        self._threads = DaemonThreads(1)
        self._closing = threading.Event()

    def ask(self, topic: str, time: float | None = None) -> Call[TopicLog | None]:
        """Ask for all partitions of `topic`, and where `time` (seconds since 1970) begins in each. Any thread.

        The Call completes on this object's thread, with None where there is no such topic. Where no record is of that
        time or later, it begins at the log's end. It fails with BrokerUnavailableError if some leader does not answer, or
        this was closed: the caller asks again.
        """
        call: Call[TopicLog | None] = Call(f"the logs of {topic}")
        self._threads.submit(self._work, call, topic, time)
        if self._closing.is_set():  # its thread may have ended before it saw the question
            call.fail(_closed(topic))
        return call

    def close(self) -> None:
        """Fail all open questions, and take no more. Never waits. Any thread."""
        self._closing.set()
        self._threads.shutdown()

    def _work(self, call: Call[TopicLog | None], topic: str, time: float | None) -> None:
        try:
            call.succeed(self._answer(topic, time))
        except InboundError as error:
            call.fail(error)
        except Exception as error:  # the client's defect: the caller must get it
            log.exception("kafka: the question for the logs of %s failed", topic)
            call.fail(BrokerUnavailableError(f"{topic}: Kafka could not be asked: {type(error).__name__}: {error}"))

    def _answer(self, topic: str, time: float | None) -> TopicLog | None:
        if self._closing.is_set():
            raise _closed(topic)
        with closing(self._connect()) as client:
            meta = client.topics([topic], None).get(topic)
            if meta is None:
                return None
            partitions = [TopicPartition(topic, number) for number in range(meta.partitions)]
            # The ends before the times: a record that comes between the two is read. The other way around it would be
            # passed over, where the time was said to have none.
            ranges = self._ranges(client, partitions)
            at = {} if time is None else client.offsets_at(partitions, milliseconds(time))
            return TopicLog(
                topic,
                meta.topic_id,
                {tp.partition: (limits.start, limits.end) for tp, limits in ranges.items()},
                {tp.partition: ranges[tp].end if offset is None else offset for tp, offset in at.items()},
            )

    def _ranges(self, client: LogClient, partitions: list[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the limits of all, in order."""
        found: dict[TopicPartition, LogRange] = {}
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while missing := [tp for tp in partitions if tp not in found]:
            found.update(client.log_ranges(missing))
            if len(found) == len(partitions):
                break
            if time.monotonic() > deadline:
                first = missing[0]
                raise BrokerUnavailableError(
                    f"{first.topic}: the leaders of {len(missing)} of {len(partitions)} partitions, such as "
                    f"{first.partition}, have not said within {ANSWER_TIMEOUT:g} s where their logs begin and end; is a "
                    "broker down?"
                )
            if self._closing.wait(LOOK_INTERVAL):
                raise _closed(missing[0].topic)
        return {tp: found[tp] for tp in partitions}


def milliseconds(time: float) -> int:
    """Return the first millisecond, which is how Kafka counts, that is not before `time` in seconds since 1970."""
    return math.ceil(round(time * 1000, 2))  # rounded: 0.123 s times 1000 may be a little more than 123


def _closed(topic: str) -> BrokerUnavailableError:
    return BrokerUnavailableError(f"{topic}: Kafka is not asked any more: this process stops")

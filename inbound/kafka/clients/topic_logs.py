"""Reads the log ranges of whole topics, for resets of offsets."""

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

#: Time limit for the leaders of a topic to report its log ranges, and the interval between looks at it. Seconds.
ANSWER_TIMEOUT = 10.0
LOOK_INTERVAL = 0.02


class KafkaTopicLogs:
    """Asks the brokers, on its own thread; see `inbound.controller.reset_offset.model.TopicLogs`.

    Each question has its own client, which is closed again: a client may remember a topic that was deleted since, and
    resets are rare. The client's isolation level decides where a log ends: with `read_committed` where the first open
    transaction begins, since a consumer that has read everything is there too.

    The first question starts the thread, which does not keep the process from ending.
    """

    def __init__(self, connect: Callable[[], LogClient]) -> None:
        """`connect` makes a client on this object's thread; may raise BrokerUnavailableError."""
        self._connect = connect
        self._threads = DaemonThreads(1)
        self._closing = threading.Event()

    def ask(self, topic: str, time: float | None = None) -> Call[TopicLog | None]:
        """Ask for a topic's log ranges, and offsets at `time`. Any thread.

        `time` is in seconds since 1970; the log's end stands for an offset if no record is that late. The Call completes on
        this object's thread, with None if there is no such topic. It fails with BrokerUnavailableError if a leader does not
        answer, or after `close`: the caller asks again.
        """
        call: Call[TopicLog | None] = Call(f"the logs of {topic}")
        self._threads.submit(self._work, call, topic, time)
        if self._closing.is_set():  # its thread may have ended before it saw the question
            call.fail(_closed(topic))
        return call

    def close(self) -> None:
        """Fail all open and later questions. Never waits. Any thread."""
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
        found: dict[TopicPartition, LogRange] = {}
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while True:
            found.update(client.log_ranges([tp for tp in partitions if tp not in found]))
            missing = [tp for tp in partitions if tp not in found]
            if not missing:
                return {tp: found[tp] for tp in partitions}
            topic, first = missing[0]
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{topic}: the leaders of {len(missing)} of {len(partitions)} partitions, such as {first}, have not said "
                    f"within {ANSWER_TIMEOUT:g} s where their logs begin and end; is a broker down?"
                )
            if self._closing.wait(LOOK_INTERVAL):
                raise _closed(topic)


def milliseconds(time: float) -> int:
    """Return the first millisecond at or after `time` (seconds), both since 1970."""
    return math.ceil(round(time * 1000, 2))  # rounded: 0.123 s times 1000 may be a little more than 123


def _closed(topic: str) -> BrokerUnavailableError:
    return BrokerUnavailableError(f"{topic}: Kafka is not asked any more: this process stops")

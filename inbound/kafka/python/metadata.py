"""Asks for topics and leaders through kafka-python; slow brokers delay no other.

kafka-python's own refresh asks one broker at a time and waits for it; and its loop ends for good at the error of a request that
another part has sent (3.0.12): `request_update` is never answered then.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.structs import TopicPartition as KafkaPartition

from inbound.kafka.base import ReadTo
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: Without an answer for this time another broker is asked, too. Seconds.
ASK_ANOTHER_AFTER = 1.0
#: Looks in that time for a broker to ask, while all back off.
TRIES = 20
#: The timeout of the first connection.
BOOTSTRAP_MS = 10_000


class MetadataQuestions:
    """Asks for all topics, on kafka-python's thread.

    `ask` is for any thread.
    """

    def __init__(self, consumer: Any, best: Callable[[], int | None]) -> None:
        self._manager = consumer._manager
        self._cluster = consumer._manager.cluster
        self._best = best  # returns the broker most likely to answer; None: all back off
        self._sent = 0  # questions so far
        self._taken = 0  # the last question whose answer was used
        self._looking: Any = None

    def ask(self) -> Any:
        """Ask for all topics, and return a future.

        It ends when they are known as of now or later, or with an error.
        """
        return self._manager.call_soon(self._ask)

    def look(self) -> None:
        """Update the leaders, with one question at a time.

        For the one thread that uses the client.
        """
        if self._looking is None or self._looking.is_done:
            self._looking = self.ask()
            self._looking.add_errback(lambda error: log.debug("kafka: no answer for metadata: %s", error))

    async def _ask(self) -> None:
        """Ask one broker after the other, until one answers or all fail.

        The requests have no shorter timeout: that would close a connection, even while a large answer arrives on it.
        """
        if not self._manager.bootstrapped:  # else two tasks use the first connection, and one of them closes it
            await self._manager.bootstrap_async(BOOTSTRAP_MS)
        asked: dict[int, Any] = {}
        tries = 0
        while True:
            node = self._best()
            if node is not None and node not in asked:
                asked[node] = self._send(node)
            if any(answer.succeeded() for answer in asked.values()):
                return
            left = [answer for answer in asked.values() if not answer.is_done]
            tries += not asked
            if not left and (asked or tries == TRIES):
                raise next(
                    (a.exception for a in asked.values()), kafka.errors.NodeNotReadyError("no broker can be asked")
                )
            try:
                await self._manager.wait_for(_any(left), ASK_ANOTHER_AFTER * 1000 / (1 if left else TRIES))
            except kafka.errors.KafkaTimeoutError:
                pass  # ask another one, too

    def _send(self, node: int) -> Any:
        """Return a future that ends with the use of the answer."""
        self._sent += 1
        taken = Future()
        answer = self._manager.send(self._cluster.metadata_request(), node)
        answer.add_callback(self._take, self._sent, taken)
        answer.add_errback(taken.failure)
        return taken

    def _take(self, number: int, taken: Any, answer: Any) -> None:
        """Use an answer, unless a later question was answered."""
        try:
            if not answer.brokers:  # the broker has just started
                raise kafka.errors.MetadataEmptyBrokerList("it knows of no brokers yet")
            if number > self._taken:  # an older answer may have a topic that was recreated since
                self._taken = number
                self._cluster.update_metadata(answer)
        except Exception as error:
            taken.failure(error)
        else:
            taken.success(None)


def _any(futures: Iterable[Any]) -> Any:
    """Return a future that ends when one of these does."""
    ended = Future()

    def end(_: object) -> None:
        if not ended.is_done:
            ended.success(None)

    for future in futures:
        future.add_both(end)
    return ended


_Partition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
#: The retry interval of leaders that did not answer. Seconds.
ASK_AGAIN = 0.1


def cuts(
    consumer: Any, metadata: MetadataQuestions, read: Mapping[TopicPartition, ReadTo], seconds: float
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Return the offsets at which logs were cut, and the unanswered partitions.

    From its offset on a log holds other records than were read; 0: the brokers cannot tell where it was cut. Leaders have
    `seconds` to answer. `read` has the offset that each log was read up to, and the leader epoch there.
    """
    left = {KafkaPartition(*tp): to for tp, to in read.items() if to.offset > 0}
    found: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + seconds
    while left:
        ends = _ask(consumer, left, max(0.0, deadline - time.monotonic()))
        for key, end in ends.items():
            offset, _ = left.pop(key)
            if end < offset:
                found[TopicPartition(*key)] = max(0, end)
        if left and time.monotonic() > deadline:
            break
        if left:
            metadata.look()
            time.sleep(ASK_AGAIN)
    return found, {TopicPartition(*key) for key in left}


def _ask(consumer: Any, read: Mapping[KafkaPartition, ReadTo], seconds: float) -> dict[KafkaPartition, int]:
    """Return the ends of leader epochs; -1: no epoch that late."""
    by_leader: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for key, (_, epoch) in read.items():
        leader = consumer._manager.cluster.leader_for_partition(key)
        if leader is not None and leader >= 0:
            asked = _Partition(partition=key.partition, current_leader_epoch=-1, leader_epoch=epoch)
            by_leader[leader][key.topic].append(asked)
    manager = consumer._manager
    answers = [
        (manager.send(OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.items())), node_id=leader), topics)
        for leader, topics in by_leader.items()
    ]
    found: dict[KafkaPartition, int] = {}
    for answer, topics in answers:
        try:
            told = manager.run(manager.wait_for, answer, seconds * 1000)
        except kafka.errors.UnsupportedVersionError:  # brokers before 0.11 know no leader epochs
            theirs = (KafkaPartition(topic, one.partition) for topic, some in topics.items() for one in some)
            found.update((key, read[key].offset) for key in theirs)
            continue
        except kafka.errors.KafkaError:
            continue  # asked again
        for topic in told.topics:
            for one in topic.partitions:
                if one.error_code == 0:
                    found[KafkaPartition(topic.topic, one.partition)] = one.end_offset
    return found

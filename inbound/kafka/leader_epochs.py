"""Where logs were cut below what a group has committed: asked over kafka-python's own connections, by who only looks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import kafka.errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.structs import TopicPartition as KafkaPartition

from inbound.channel.position import ReadTo
from inbound.kafka.metadata import Metadata
from inbound.topic_partition import TopicPartition

_Partition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
#: How soon leaders that did not answer are asked again. Seconds.
ASK_AGAIN = 0.1


def cuts(
    consumer: Any, metadata: Metadata, read: Mapping[TopicPartition, ReadTo], seconds: float
) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
    """Return from which offset on logs hold other records than were read up to there, for those that were cut below it.

    0: the brokers cannot tell where it was cut. The second are those whose leader has not answered within `seconds`.
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
    """Return where what those leaders, and those before them, have written ends; -1: the log knows of none so late."""
    by_leader: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for key, to in read.items():
        leader = consumer._manager.cluster.leader_for_partition(key)
        if leader is not None and leader >= 0:
            asked = _Partition(partition=key.partition, current_leader_epoch=-1, leader_epoch=to.leader_epoch)
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
        except kafka.errors.UnsupportedVersionError:  # brokers before 0.11: nothing is known of their leaders
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

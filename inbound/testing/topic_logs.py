"""The in-memory cluster answers what a reset asks the brokers."""

from __future__ import annotations

from inbound.controller.reset_offset.model import TopicLog
from inbound.coordinators.zookeeper import Call
from inbound.errors import BrokerUnavailableError
from inbound.kafka.clients.topic_logs import milliseconds
from inbound.testing.kafka import FakeKafka
from inbound.topic_partition import TopicPartition


class FakeTopicLogs:
    """Answers as `inbound.controller.reset_offset.model.TopicLogs` does, but at once.

    Faults are the cluster's own: `down`, `lose_leader`, `delete_topic`, `retain`.
    """

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        #: What was asked: topic and time, in order.
        self.asked: list[tuple[str, float | None]] = []

    def ask(self, topic: str, time: float | None = None) -> Call[TopicLog | None]:
        self.asked.append((topic, time))
        call: Call[TopicLog | None] = Call(f"the logs of {topic}")
        try:
            call.succeed(self._answer(topic, time))
        except BrokerUnavailableError as error:
            call.fail(error)
        return call

    def _answer(self, topic: str, time: float | None) -> TopicLog | None:
        self._kafka.check_up()
        meta = self._kafka.topics().get(topic)
        if meta is None:
            return None
        ranges: dict[int, tuple[int, int]] = {}
        at: dict[int, int] = {}
        for tp in (TopicPartition(topic, number) for number in range(meta.partitions)):
            limits = self._kafka.log_range(tp)
            if limits is None:
                raise BrokerUnavailableError(f"{topic}: Kafka (fake): the leader of {tp.partition} does not answer")
            ranges[tp.partition] = (limits.start, limits.end)
            if time is not None:
                offset = self._kafka.offset_at(tp, milliseconds(time))
                at[tp.partition] = limits.end if offset is None else offset
        return TopicLog(topic, meta.topic_id, ranges, at)

    def close(self) -> None:
        """Nothing to close."""

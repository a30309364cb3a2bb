"""Asks the brokers where logs begin and end, with the client that a channel reads with; blocks, within a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inbound.clock import Clock
from inbound.config import ChannelConfig, ReaderConfig
from inbound.errors import BrokerUnavailableError
from inbound.kafka.base import LogClient, LogRange, TopicMeta
from inbound.kafka.clients import connector
from inbound.offsets.model import Logs
from inbound.topic_partition import TopicPartition

#: How long all partitions' leaders may take together, in seconds.
ANSWER_SECONDS = 10.0
#: How often the client is asked for answers that have come meanwhile, in seconds.
_AGAIN = 0.03


@dataclass(frozen=True)
class Way:
    """How a group reads: which client, and whether what is in open transactions counts as the log's."""

    client: str = "kafka-python"
    isolation: str = "read_committed"

    @classmethod
    def of(cls, channel: ChannelConfig) -> Way:
        """Return a channel's."""
        return cls(channel.reader.client, channel.isolation)

    def connect(self, properties: Mapping[str, Any]) -> LogClient:
        """Return a client, with the settings that let channels in.

        Raises:
            BrokerUnavailableError: no broker answers, or none lets us in.
        """
        reader = ReaderConfig.model_validate({"client": self.client})
        return connector(reader, properties, client_id="inbound-offsets", isolation=self.isolation)()


def ask_logs(
    connect: Callable[[], LogClient], topics: Collection[str], clock: Clock, seconds: float = ANSWER_SECONDS
) -> Logs:
    """Return what the brokers say of `topics`, as far as they say it within `seconds`. Never raises for brokers."""
    try:
        client = connect()
    except BrokerUnavailableError as error:
        return Logs(problem=str(error))
    try:
        return ask_with(client, topics, clock, seconds)
    finally:
        client.close()


def ask_with(client: LogClient, topics: Collection[str], clock: Clock, seconds: float = ANSWER_SECONDS) -> Logs:
    """Do it with a client that is there. Only one thread at a time."""
    known: Mapping[str, TopicMeta] = {}
    ranges: dict[TopicPartition, LogRange] = {}
    deadline = clock.now() + seconds
    nobody = threading.Event()
    try:
        known = client.topics(topics, None)
        wanted = {TopicPartition(name, p) for name, meta in known.items() for p in range(meta.partitions)}
        while wanted:
            ranges |= client.log_ranges(wanted)
            wanted -= ranges.keys()
            if wanted and clock.now() >= deadline:
                return Logs(topics=known, ranges=ranges, problem=_unanswered(sorted(wanted), seconds))
            if wanted:
                clock.wait(nobody, _AGAIN)
    except BrokerUnavailableError as error:
        return Logs(topics=known, ranges=ranges, problem=str(error))
    return Logs(topics=known, ranges=ranges)


def together(answers: Sequence[Logs]) -> Logs:
    """Return the answers to several questions as one. Where two speak of one partition the later counts."""
    problems = [answer.problem for answer in answers if answer.problem is not None]
    return Logs(
        topics={name: meta for answer in answers for name, meta in answer.topics.items()},
        ranges={tp: limits for answer in answers for tp, limits in answer.ranges.items()},
        problem="; ".join(dict.fromkeys(problems)) or None,
    )


def _unanswered(missing: Sequence[TopicPartition], seconds: float) -> str:
    first = ", ".join(map(str, missing[:5]))
    more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
    return f"Kafka: no leader has answered for {first}{more} within {seconds:g} s; see that its brokers run"

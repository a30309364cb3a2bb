"""Answers `GET /explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any
from urllib.parse import parse_qs

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.errors import InboundError
from inbound.observe.explain.detector import StallDetector
from inbound.observe.explain.facts import Explanation
from inbound.observe.explain.history import as_json, at_time
from inbound.partition.journal import Happened
from inbound.partition.partition import Partition
from inbound.topic_partition import TopicPartition

#: How many events of the partition, and of its channel, an answer has.
EVENTS = 20


class BadQuestionError(InboundError):
    """The query of `/explain` is malformed."""


@dataclass(frozen=True)
class PartitionQuestion:
    """One request of `/explain`."""

    tp: TopicPartition
    at: float | None = None  # seconds since 1970; None: now
    channel: str | None = None

    @classmethod
    def of(cls, query: str) -> PartitionQuestion:
        """Parse the query of a URL.

        Raises:
            BadQuestionError: a parameter is missing, or no number.
        """
        try:
            given = {name: values[-1] for name, values in parse_qs(query, max_num_fields=10).items()}
            tp = TopicPartition(given["topic"], int(given["partition"]))
            at = float(given["at"]) if "at" in given else None
            if at is not None and not isfinite(at):
                raise ValueError(given["at"])  # no moment, and no JSON
        except (KeyError, ValueError):
            raise BadQuestionError(
                "need ?topic=NAME&partition=NUMBER, and if wished &at=SECONDS (since 1970) and &channel=NAME"
            ) from None
        return cls(tp, at, given.get("channel"))


def answers(
    channels: Sequence[InboundKafkaChannel], detector: StallDetector, question: PartitionQuestion
) -> list[dict[str, Any]]:
    """Return an answer of each channel that has held the partition.

    If there is none, the channels that read the topic answer.
    """
    tp = question.tp
    asked = [c for c in channels if question.channel in (None, c.name)]
    concerned = [c for c in asked if c.has_held(tp)]
    reading = [c for c in asked if tp.topic in c.reader.topics.found or tp.topic in c.parts.settings.now.topics]
    return [_answer(c, detector, question) for c in concerned or reading]


def _answer(channel: InboundKafkaChannel, detector: StallDetector, question: PartitionQuestion) -> dict[str, Any]:
    parts, membership, tp = channel.parts, channel.membership, question.tp
    wall = parts.clock.wall()
    partition = parts.schedule.get(tp)
    of_partition, of_channel = parts.journal.of(tp), parts.journal.of(None)
    claimed = parts.journal.last(tp, "claimed")
    answer: dict[str, Any] = {
        "channel": channel.name,
        "group": parts.settings.now.group,
        "consumer": parts.consumer_id,
        "topic": tp.topic,
        "partition": tp.partition,
        "held": partition is not None,
        "asked_at": wall,
        "members": sorted(m.consumer_id for m in membership.members),
        "share": membership.plan.share,
        "notices": list(membership.plan.notices),
        "bad_node": channel.bad_node(tp),
        "claimed": None if claimed is None else _with_facts(claimed),
    }
    if question.at is not None:
        return answer | {"at": question.at, **at_time(question.at, of_partition, of_channel)}
    events = sorted([*of_partition[-EVENTS:], *of_channel[-EVENTS:]], key=lambda event: event.last or event.at)
    answer["events"] = [_with_facts(event) for event in events[-EVENTS:]]
    if partition is not None:
        found = detector.explain(channel, partition)
        since = wall - found.lasting if found.lasting is not None else partition.stall.cause_since
        answer |= {"numbers": _numbers(partition), "explanation": explanation_json(found, since)}
    return answer


def explanation_json(found: Explanation, since: float | None) -> dict[str, Any]:
    """Return an explanation for JSON; `since` is Unix time."""
    return {
        "cause": found.cause.value,
        "since": since,
        "text": found.text,
        "todo": found.todo,
        "evidence": list(found.evidence),
    }


def _with_facts(event: Happened) -> dict[str, Any]:
    where = {"offset": event.offset, "epoch": event.epoch} if event.tp is not None else {}
    facts = {name: value if isinstance(value, int | float) else str(value) for name, value in event.facts.items()}
    return {**as_json(event), **where, "facts": facts}


def _numbers(partition: Partition) -> dict[str, Any]:
    return {
        "epoch": partition.fence.epoch,
        "place": partition.place.value,
        "position": partition.position.delivered,
        "committed": partition.committed,
        "end": partition.position.high_watermark,
        "lag": partition.lag,
        "buffered_records": partition.buffer.records,
        "buffered_bytes": partition.buffer.size,
        "records": partition.totals.records,
        "commits": partition.totals.commits,
        "last_batch_at": partition.totals.last_batch_at,
    }

"""What a process answers to `GET /explain`: each of its channels that has to do with the partition, as JSON takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any
from urllib.parse import parse_qs

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.errors import InboundError
from inbound.explain.cause import Explanation
from inbound.explain.detector import StallDetector
from inbound.explain.past import at_time
from inbound.journal import Happened
from inbound.topic_partition import TopicPartition

#: How many events are given of the partition, and of its channel.
EVENTS = 20


class BadQuestionError(InboundError):
    """What was asked for cannot be understood."""


@dataclass(frozen=True)
class Question:
    """One question."""

    tp: TopicPartition
    at: float | None = None  # seconds since 1970; None: now
    channel: str | None = None

    @classmethod
    def of(cls, query: str) -> Question:
        """Read it from the query of a URL.

        Raises:
            BadQuestionError: something is missing, or no number.
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
    channels: Sequence[InboundKafkaChannel], detector: StallDetector, question: Question
) -> list[dict[str, Any]]:
    """Return an answer for each channel that holds the partition or has held it; else for each that reads the topic."""
    tp = question.tp
    asked = [c for c in channels if question.channel in (None, c.name)]
    concerned = [c for c in asked if c.parts.schedule.get(tp) is not None or c.parts.journal.of(tp)]
    reading = [c for c in asked if tp.topic in c.reader.topics.found or tp.topic in c.parts.settings.now.topics]
    return [_answer(c, detector, question) for c in concerned or reading]


def _answer(channel: InboundKafkaChannel, detector: StallDetector, question: Question) -> dict[str, Any]:
    parts, tp = channel.parts, question.tp
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
        "asked_at": parts.clock.wall(),
        "members": sorted(m.consumer_id for m in channel.membership.members),
        "share": channel.membership.plan.share,
        "notices": list(channel.membership.plan.notices),
        "bad_node": channel.membership.holdings.backoff.problem(tp),
        "claimed": None if claimed is None else as_json(claimed),
    }
    if question.at is not None:
        return answer | {"at": question.at, **at_time(question.at, of_partition, of_channel)}
    events = sorted([*of_partition[-EVENTS:], *of_channel[-EVENTS:]], key=lambda event: event.last or event.at)
    answer["events"] = [as_json(event) for event in events[-EVENTS:]]
    if partition is not None:
        found = detector.explain(channel, partition)
        answer["numbers"] = _numbers(channel, tp)
        answer["explanation"] = explanation_json(found, _since(found, partition.stall.cause_since, parts.clock.wall()))
    return answer


def explanation_json(found: Explanation, since: float | None) -> dict[str, Any]:
    """Return an explanation as JSON takes it; `since` is Unix time."""
    return {
        "cause": found.cause.value,
        "since": since,
        "text": found.text,
        "todo": found.todo,
        "evidence": list(found.evidence),
    }


def as_json(event: Happened) -> dict[str, Any]:
    """Return an event of the journal as JSON takes it."""
    where = {"offset": event.offset, "epoch": event.epoch} if event.tp is not None else {}
    again = {"count": event.count, "last": event.last} if event.count > 1 else {}
    return {"at": event.at, "kind": event.kind, "text": event.text, **where, **again, "facts": _plain(event.facts)}


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, int | float | bool) else str(value) for name, value in facts.items()}


def _since(found: Explanation, seen: float | None, wall: float) -> float | None:
    return wall - found.lasting if found.lasting is not None else seen


def _numbers(channel: InboundKafkaChannel, tp: TopicPartition) -> dict[str, Any]:
    partition = channel.parts.schedule.get(tp)
    if partition is None:
        return {}
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

"""What the error codes of librdkafka mean to the reader."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError

#: A position cannot be read on from.
OUT_OF_RANGE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
#: Of a log that was cut librdkafka tells with the code of every position that it cannot read on from; only the text differs.
CUT, CUT_AT = KafkaError(KafkaError._LOG_TRUNCATION).str(), re.compile(r"broker end offset is (\d+)")
#: A seek that came too early.
NOT_BEGUN = frozenset({KafkaError._STATE, KafkaError._PREV_IN_PROGRESS})
#: librdkafka gets over these by itself.
PASSING = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
_UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


def is_unknown(error: KafkaError) -> bool:
    """Whether an error says that a topic or partition does not exist (yet, or any more)."""
    return error.code() in _UNKNOWN

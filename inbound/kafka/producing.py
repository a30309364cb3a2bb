"""What all of inbound's producers over kafka-python have in common: see decision 53."""

from __future__ import annotations

import logging
from typing import Any, Final

import kafka.errors

log = logging.getLogger(__name__)

#: A producer that goes on after a record that the brokers refuse, and keeps the order.
#:
#: kafka-python's idempotent producer is closed for ever by one refused batch: it fails what it has, and all that comes,
#: with that batch's error. Nor does it come back after a batch that was sent twice has timed out: it waits for a producer
#: id that nobody asks for. Without idempotence, and with one request in flight at each broker, a batch has nothing to do
#: with the next. A batch whose acknowledgement is lost is then in the log twice.
UNAFFECTED: Final[dict[str, Any]] = {
    "acks": "all",
    "enable_idempotence": False,
    "max_in_flight_requests_per_connection": 1,
    "allow_auto_create_topics": False,
}


def end(producer: Any, seconds: float) -> None:
    """Close `producer`, after it has sent what it can within so many seconds."""
    try:
        producer.close(timeout=seconds)
    except kafka.errors.KafkaError as error:
        # Its `close` waits for what is unanswered first, and when that takes too long it raises and closes nothing.
        log.warning("kafka: a producer ends with records that no broker has acknowledged: %s", error)
        producer._sender.force_close()


def advice(error: BaseException) -> str:
    """Return what to do about a record that was not written."""
    errors = kafka.errors
    if isinstance(error, (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)):
        return "raise the topic's max.message.bytes"
    if isinstance(error, (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError)):
        return "allow this user to write to it"
    if isinstance(error, (errors.InvalidRecordError, errors.InvalidTimestampError, errors.PolicyViolationError)):
        return "the topic does not take such a record (a compacted one takes none without a key): choose another topic"
    return "check that the topic exists, and its brokers"

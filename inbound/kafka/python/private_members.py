"""Lists and checks the private members of kafka-python in use.

kafka-python may rename them in any release. A test compares this table with the code: it fails for a used member that is not
listed, and for a listed one that is not used. Reasons: decision 59.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from inbound.errors import ConfigError

#: The oldest and the newest release that has every member of the table.
OLDEST, NEWEST = "3.0.9", "3.0.12"


@dataclass(frozen=True, slots=True)
class PrivateMember:
    """A private member of a class of kafka-python."""

    owner: str  # module and class, separated by a colon
    name: str
    reason: str  # what fails, or is slow, without it
    checked: tuple[str, str] = (OLDEST, NEWEST)  # the first and the last release that it was checked with

    def __str__(self) -> str:
        return f"{self.owner.partition(':')[2]}.{self.name}"


def _of(owner: str, members: Mapping[str, str]) -> Iterator[PrivateMember]:
    return (PrivateMember(owner, name, reason) for name, reason in members.items())


MEMBERS: tuple[PrivateMember, ...] = (
    *_of("kafka:KafkaConsumer", {
        "_manager": "questions that do not block the poll, and which broker is silent (decision 11)",
        "_subscription": "a seek with a leader epoch (decision 51), and positions without a lock per record",
        "_fetcher": "bounded batches (decision 56), long fetches of idle channels (decision 19)",
    }),
    *_of("kafka:KafkaAdminClient", {
        "_manager": "offsets written without waiting for the answer (decision 36)",
        "_async_alter_group_offsets": "what alter_group_offsets waits for (decision 36)",
    }),
    *_of("kafka:KafkaProducer", {
        "_sender": "close() raises and closes nothing while records are unanswered (decision 53)",
    }),
    *_of("kafka.net.manager:KafkaConnectionManager", {
        "_conns": "how long a broker has owed an answer (decision 11); whether a refused one is connected (decision 28)",
        "_backoff": "the broker that failed least often is asked (decision 11); a refusal waits 5 s (decision 28)",
        "_build_transport": "what a broker says before it closes the connection is kept (decision 28)",
    }),
    *_of("kafka.net.transport:KafkaTCPTransport", {
        "_sock_recv": "what a broker says before it closes the connection is kept (decision 28)",
    }),
    *_of("kafka.consumer.fetcher:Fetcher", {
        "_send_list_offsets_request": "limits of logs asked of each leader alone (decision 11)",
        "_cached_log_truncation": "a cut below an earlier position is not reported after a seek (decision 51)",
        "_fetch_futures": "an answered fetch wakes an idle channel, which does not poll (decision 19)",
        "_nodes_with_pending_fetch_requests": "a long fetch is closed when a question would wait behind it (decision 19)",
        "_paused_partition_records": "a partition paused within a batch is read again, and within a bound (decision 56)",
        "_paused_completed_fetches": "answers for a deleted topic are dropped at a seek (decision 12)",
        "_completed_fetches": "answers for a deleted topic are dropped at a seek (decision 12)",
        "_next_partition_records": "a partition paused within a batch is read again (decision 56)",
    }),
    *_of("kafka.record.memory_records:MemoryRecords", {
        "_buffer": "the answer is read again with bounded batches (decision 56)",
    }),
    *_of("kafka.record.default_records:DefaultRecordBatch", {
        "_buffer": "the batch is decompressed within a bound (decision 56)",
        "_pos": "where the compressed data, and each record, begin (decision 56)",
        "_decompressed": "a batch is decompressed once (decision 56)",
        "_maybe_uncompress": "replaced by a decoder with a bound (decision 56)",
    }),
    *_of("kafka.record.legacy_records:LegacyRecordBatch", {
        "_buffer": "the batch is decompressed within a bound (decision 56)",
        "_decompress": "replaced by a decoder with a bound (decision 56)",
        "_magic": "LZ4 of Kafka 0.8 has another checksum (decision 56)",
        "_offset": "the offset behind a batch that is too large (decision 56)",
        "_read_key_value": "the compressed records are the value of a message (decision 56)",
    }),
)  # fmt: skip


def missing() -> list[PrivateMember]:
    """Return the members that the installed release lacks.

    It connects to nothing and starts no thread.
    """
    return [member for member in MEMBERS if not _has(member)]


@cache
def check() -> None:
    """Check the installed release, once per process. Any thread.

    Raises:
        ConfigError: it lacks a member.
    """
    if lacking := missing():
        raise ConfigError(
            f"kafka-python {import_module('kafka').__version__} lacks {', '.join(map(str, lacking))}, which inbound needs; "
            f"install a release that was checked: pip install 'kafka-python>={OLDEST},<={NEWEST}', "
            "or set reader.client: confluent-kafka"
        )


def _has(member: PrivateMember) -> bool:
    module, _, name = member.owner.partition(":")
    try:
        owner: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return False
    return hasattr(owner, member.name) or member.name in _assigned(owner)


@cache
def _assigned(owner: type) -> frozenset[str]:
    """Return the attributes that a class's methods assign, without an instance."""
    functions = (function for base in owner.__mro__ for function in vars(base).values() if inspect.isfunction(function))
    return frozenset(
        str(step.argval)
        for function in functions
        for step in dis.get_instructions(function)
        if step.opname == "STORE_ATTR"
    )


def why(error: ImportError) -> str:
    """Return the reason of a failed import of kafka-python, and a remedy."""
    if error.name == "kafka" and error.path is None:
        return "kafka-python is not installed; install it: pip install kafka-python"
    kafka = import_module("kafka")
    release = getattr(kafka, "__version__", None)
    if release is None:
        return (
            f"the module kafka is {getattr(kafka, '__file__', None)}, and not kafka-python: give that file another name"
        )
    return (
        f"kafka-python {release} lacks {error.name}, which inbound needs; install a release that was checked: "
        f"pip install 'kafka-python>={OLDEST},<={NEWEST}'"
    )

"""Reading a Kafka log with Spark: which options, and which offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from inbound.config.jaas import jaas_line
from inbound.config.kafka_properties import BEARER_HANDLER, BEARER_MODULE
from inbound.kafka.access import login
from inbound.ledger.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Offsets to read of each partition of each topic.
Ranges = Mapping[str, Mapping[int, OffsetRange]]

#: Properties of the configuration that are settings of a consumer's own pace, or that Spark decides itself.
NOT_SPARKS = frozenset({"client.id", "fetch.min.bytes", "fetch.max.wait.ms", "check.crcs"})


def client_options(kafka: Mapping[str, object], *, read_committed: bool = True) -> dict[str, str]:
    """Return Spark's options for the Kafka properties of a configuration."""
    given = for_java(kafka)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    options = {f"kafka.{name}": text for name, text in texts.items() if name not in NOT_SPARKS}
    # A log in which offsets are missing is whole (compaction, transactions). What is really gone, the caller finds
    # by the ranges that it asked the brokers for.
    options["failOnDataLoss"] = "true"
    options["kafka.isolation.level"] = "read_committed" if read_committed else "read_uncommitted"
    return options


def for_java(kafka: Mapping[str, object]) -> dict[str, object]:
    """Return Kafka properties with what its Java client has to be told, and Python's clients take for granted.

    Raises:
        ConfigError: who we are cannot be told.
    """
    found = dict(kafka)
    for store in ("ssl.truststore", "ssl.keystore"):
        if any(name.startswith(f"{store}.") for name in kafka):
            found[f"{store}.type"] = "PEM"
    who = login(kafka)
    if who is not None and who.mechanism == "OAUTHBEARER":
        options = {"clientId": who.user, "clientSecret": who.password, "scope": who.scope}
        options |= {f"extension_{name}": value for name, value in who.extensions.items()}
        found["sasl.jaas.config"] = jaas_line(BEARER_MODULE, {name: text for name, text in options.items() if text})
        found.setdefault("sasl.login.callback.handler.class", BEARER_HANDLER)
        for name in ("client.credentials.client.id", "client.credentials.client.secret", "scope"):
            found.pop(f"sasl.oauthbearer.{name}", None)  # newer than the client that Spark has
    return found


def read_log(
    spark: SparkSession,
    kafka: Mapping[str, object],
    ranges: Ranges,
    *,
    read_committed: bool = True,
    headers: bool = False,
) -> DataFrame:
    """Return the records of these ranges: key, value, topic, partition, offset, timestamp (and headers).

    The ranges must be within the log: Spark fails where the log begins later (failOnDataLoss).
    """
    starts = {topic: {str(p): first for p, (first, _) in parts.items()} for topic, parts in ranges.items()}
    ends = {topic: {str(p): end for p, (_, end) in parts.items()} for topic, parts in ranges.items()}
    assign = {topic: sorted(parts) for topic, parts in ranges.items()}
    return (
        spark.read.format("kafka")
        .options(**client_options(kafka, read_committed=read_committed))
        .option("assign", json.dumps(assign))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", str(headers).lower())
        .load()
    )

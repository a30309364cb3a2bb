"""Options and credentials of Spark's Kafka source."""

from __future__ import annotations

import base64
import json
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from inbound.config.kafka_properties import BEARER_HANDLER, BEARER_MODULE
from inbound.config.kafka_values import jaas_line
from inbound.errors import ConfigError
from inbound.kafka.auth.access import login
from inbound.proof.model import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Offsets to read of each partition of each topic.
Ranges = Mapping[str, Mapping[int, OffsetRange]]

#: Properties of the configuration that set a consumer's own pace, or that Spark decides.
NOT_SPARKS = frozenset({"client.id", "fetch.min.bytes", "fetch.max.wait.ms", "check.crcs"})


def client_options(kafka: Mapping[str, object], *, read_committed: bool = True) -> dict[str, str]:
    """Return Spark's options for the Kafka properties of a configuration."""
    given = for_java(kafka)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    options = {f"kafka.{name}": text for name, text in texts.items() if name not in NOT_SPARKS}
    # Offsets may be missing in a whole log (compaction, transactions). The caller finds lost records by the ranges that
    # the brokers answered.
    options["failOnDataLoss"] = "true"
    options["kafka.isolation.level"] = "read_committed" if read_committed else "read_uncommitted"
    return options


def for_java(kafka: Mapping[str, object]) -> dict[str, object]:
    """Return Kafka properties with the settings that only Java's client needs.

    Raises:
        ConfigError: the credentials cannot be used.
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
    """Return the records of these ranges, which must be within the log.

    The columns are key, value, topic, partition, offset, timestamp (and headers). Spark fails where the log begins later
    (failOnDataLoss).
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


_TRUST, _KEYS = "ssl.truststore.location", "ssl.keystore.location"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)

#: Of the PKCS #8 form, as DER: version 0; algorithms RSA (with its NULL) and elliptic curve.
_VERSION = bytes.fromhex("020100")
_RSA = bytes.fromhex("06092a864886f70d0101010500")
_CURVE = bytes.fromhex("06072a8648ce3d0201")
_SEQUENCE, _OCTETS, _PARAMETERS = 0x30, 0x04, 0xA0


def inline(properties: Mapping[str, object], read: Callable[[str], str]) -> dict[str, object]:
    """Return Kafka properties without files; `read` gives a file's text.

    Raises:
        ConfigError: a file holds no PEM, or a key in a form that Java does not read.
    """
    found = {name: value for name, value in properties.items() if name not in (_TRUST, _KEYS)}
    if _TRUST in properties:
        place = str(properties[_TRUST])
        certificates, _ = _parts(_TRUST, place, read(place))
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.certificates"] = "\n".join(certificates)
    if _KEYS in properties:
        place = str(properties[_KEYS])
        certificates, keys = _parts(_KEYS, place, read(place))
        if len(keys) != 1:
            raise ConfigError(
                f"kafka.{_KEYS}: {place} must hold one private key and its certificates; it holds {len(keys)}"
            )
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.certificate.chain"] = "\n".join(certificates)
        found["ssl.keystore.key"] = keys[0]
    return found


def _parts(name: str, place: str, text: str) -> tuple[list[str], list[str]]:
    blocks = [(match[1], match[0]) for match in _BLOCK.finditer(text)]
    certificates = [block for label, block in blocks if label == "CERTIFICATE"]
    if not certificates:
        raise ConfigError(f"kafka.{name}: {place} holds no certificate in PEM; name a file that does")
    keys = []
    for label, block in blocks:
        if label in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
            keys.append(block)
        elif label.endswith("PRIVATE KEY"):
            try:
                keys.append(_pkcs8(label, block))
            except (ValueError, IndexError):
                raise ConfigError(
                    f"kafka.{name}: {place} holds a key in a form that Java does not read ({label}); "
                    "convert it: openssl pkcs8 -topk8"
                ) from None
    return certificates, keys


def _pkcs8(label: str, block: str) -> str:
    """Convert a key from OpenSSL's older forms into PKCS #8.

    Raises ValueError or IndexError: that is not possible.
    """
    lines = block.splitlines()[1:-1]
    key = base64.b64decode("".join(lines), validate=True)  # an encrypted one has lines that are no base64
    if label == "RSA PRIVATE KEY":
        algorithm = _RSA
    elif label == "EC PRIVATE KEY":
        parts = _elements(next(content for tag, content in _elements(key) if tag == _SEQUENCE))
        algorithm = _CURVE + next((content for tag, content in parts if tag == _PARAMETERS), b"")
        if algorithm == _CURVE:
            raise ValueError("it names no curve")
    else:
        raise ValueError(label)
    whole = _element(_SEQUENCE, _VERSION + _element(_SEQUENCE, algorithm) + _element(_OCTETS, key))
    text = "\n".join(textwrap.wrap(base64.b64encode(whole).decode(), 64))
    return f"-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----"


def _element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Return the tags and contents of consecutive DER elements."""
    found, at = [], 0
    while at < len(data):
        tag, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        found.append((tag, data[at : at + size]))
        at += size
    return found

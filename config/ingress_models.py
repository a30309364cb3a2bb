"""The ingress: where CloudEvents are taken in over HTTP, and which topic each goes to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from inbound.config.channel_models import regular_expression
from inbound.config.http_values import HEADER_GLOB
from inbound.config.units import shown
from inbound.config.values import (
    HostName,
    ListenAddress,
    Listening,
    Part,
    Problem,
    SecretFile,
    TopicName,
    duration,
    entries,
    matching,
    secret_file,
    size,
    text,
    whole,
    wrong,
    wrong_at,
)

MIB = 2**20


def _url_path(value: Any) -> str:
    path = text(value)
    if not re.fullmatch(r"/[!-~]*", path) or "?" in path or "#" in path:
        raise wrong(f"need a path that starts with /, without blanks, ? and #, got {shown(path)}")
    return path


_ATTRIBUTE = r"[a-z0-9]+"
_ORIGIN = r"[A-Za-z0-9._*-]{1,253}(:[0-9]{1,5})?"


def _attribute(value: Any) -> str:
    name = text(value)
    if not re.fullmatch(_ATTRIBUTE, name) or name in ("data", "datacontenttype"):
        raise wrong(f"need an attribute of events such as subject (a-z and 0-9, not the data), got {shown(name)}")
    return name


def _header_pattern(value: Any) -> str:
    pattern = text(value)
    if not re.fullmatch(HEADER_GLOB, pattern):
        raise wrong(f"need the name of a header such as x-request-id, or knative-*, got {shown(pattern)}")
    return pattern


def _origin(value: Any) -> str:
    name = text(value)
    if not re.fullmatch(_ORIGIN, name):
        raise wrong(f"need the name of a sender such as *.example.com, or *, got {shown(name)}")
    return name


Attribute = Annotated[str, BeforeValidator(_attribute), matching(_ATTRIBUTE)]
HeaderPattern = Annotated[str, BeforeValidator(_header_pattern), matching(HEADER_GLOB)]
Origin = Annotated[str, BeforeValidator(_origin), matching(_ORIGIN)]


class TlsConfig(Part):
    """Certificates, as PEM files."""

    cert: SecretFile = Field(description="Our certificate, with those between it and the authority's.")
    key: SecretFile | None = Field(
        default=None, description="Its key, without passphrase; default: it stands in `cert` too."
    )
    client_ca: SecretFile | None = Field(
        default=None, description="Who must have signed the certificate that each client then has to show."
    )


class IngressConfig(Listening):
    """The HTTP listener that takes CloudEvents and writes them to Kafka."""

    listen: ListenAddress = Field(default="127.0.0.1:8080", description="Address and port; port 0 is any free one.")
    topics: Annotated[tuple[TopicName, ...], BeforeValidator(entries)] = Field(
        default=(), description="Topics that may be posted to; with neither this nor topics_pattern, all that exist."
    )
    topics_pattern: Annotated[str, BeforeValidator(regular_expression)] | None = Field(
        default=None, description="Regular expression that the whole name matches of topics that may be posted to."
    )
    create_partitions: Annotated[int, whole(1, 100_000)] | None = Field(
        default=None,
        description="A topic that may be posted to and is missing is made with so many partitions; "
        "default: it is never made.",
    )
    hosts: dict[HostName, TopicName] = Field(
        default_factory=dict, description="Host that is posted to, without port: the topic."
    )
    paths: dict[Annotated[str, BeforeValidator(_url_path)], TopicName] = Field(
        default_factory=dict, description="Path that is posted to: the topic."
    )
    key: Annotated[tuple[Attribute, ...], BeforeValidator(entries)] = Field(
        default=("partitionkey",),
        description="Attributes of which the first that an event has is the record's key, such as [partitionkey, subject]; without "
        "a key a record goes to any partition.",
    )
    pass_headers: Annotated[tuple[HeaderPattern, ...], BeforeValidator(entries)] = Field(
        default=("x-request-id", "knative-*", "x-b3-*", "b3", "traceparent", "tracestate"),
        description="Headers of requests that go on into their records, under their names in lower case; * stands for any text. "
        "Credentials, and what belongs to one connection or message, never do.",
    )
    webhook_origins: Annotated[tuple[Origin, ...], BeforeValidator(entries)] = Field(
        default=("*",),
        description="Senders of webhooks that may post, when they ask by OPTIONS; * stands for any text, as in *.example.com.",
    )
    client: Literal["auto", "kafka-python", "confluent-kafka"] = Field(
        default="auto", description="The Kafka client to write with; auto is confluent-kafka where it is installed."
    )
    linger: Annotated[float, duration(0, 1)] = Field(
        default=0.005, description="How long records wait for others, so that Kafka gets many at a time."
    )
    delivery_timeout: Annotated[float, duration(1, 600)] = Field(
        default=10.0, description="An event that Kafka has not acknowledged after so long is answered with 503."
    )
    request_timeout: Annotated[float, duration(1, 3600)] = Field(
        default=30.0, description="How long a client may take to send one request."
    )
    max_event_bytes: Annotated[int, size(1)] = Field(
        default=1_000_000, description="Key, value and headers of one event; Kafka's own limit for a topic is 1MiB."
    )
    max_request_bytes: Annotated[int, size(1)] = Field(default=8 * MIB, description="The body of one request.")
    max_in_flight_bytes: Annotated[int, size(1)] = Field(
        default=64 * MIB, description="Bodies that are not answered yet; with more, requests are answered with 429."
    )
    max_connections: Annotated[int, whole(1, 100_000)] = Field(
        default=2000,
        description="Clients at a time, those at their TLS handshake included, and half as many of one address; never more than "
        "half of the files that the process may open. Of more, the one gives way that has waited longest for its client.",
    )
    token_file: Annotated[Path, BeforeValidator(secret_file), PlainSerializer(str, when_used="json")] | None = Field(
        default=None,
        description="File with the token that each request needs, as `Authorization: Bearer ...`. Relative to the "
        "working directory; read again when it changes.",
    )
    tls: TlsConfig | None = Field(default=None, description="HTTPS instead of HTTP.")

    @model_validator(mode="after")
    def _check(self) -> IngressConfig:
        problems: list[Problem] = []
        if self.create_partitions is not None and not (self.topics or self.topics_pattern):
            rule = "needs topics or topics_pattern: without them anybody could make any topic"
            problems.append((("create_partitions",), wrong(rule), None))
        if self.max_in_flight_bytes < self.max_request_bytes:
            rule = f"need at least max_request_bytes ({self.max_request_bytes}), or the largest request never fits"
            problems.append((("max_in_flight_bytes",), wrong(rule), None))
        if problems:
            raise wrong_at("IngressConfig", problems)
        return self

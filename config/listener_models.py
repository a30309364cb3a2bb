"""The HTTP listeners: admin port with its policy, profiles, ingress."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from inbound.config.channel_models import regular_expression
from inbound.config.http_values import HEADER_GLOB
from inbound.config.units import MIB
from inbound.config.values import (
    HostName,
    ListenAddress,
    Matching,
    PlainFile,
    SecretFile,
    StrictModel,
    TopicName,
    duration,
    entries,
    flag,
    refuse,
    size,
    split_address,
    text,
    text_that,
    whole,
    wrong,
)


class ListenerConfig(StrictModel):
    """Base of the listeners' models."""

    listen: ListenAddress

    @property
    def host(self) -> str:
        """The address to bind, without brackets."""
        return (split_address(self.listen) or ("", 0))[0]

    @property
    def port(self) -> int:
        """The port to bind."""
        return (split_address(self.listen) or ("", 0))[1] or 0


class AdminTlsConfig(StrictModel):
    """HTTPS instead of HTTP.

    Files are PEM, relative to the working directory, and read again when they change.
    """

    cert_file: SecretFile = Field(description="The server's certificate, with the intermediate ones.")
    key_file: SecretFile | None = Field(
        default=None, description="The certificate's key, without passphrase; default: it is in `cert_file` too."
    )
    client_ca_file: SecretFile | None = Field(
        default=None,
        description="Authorities that sign client certificates. A client with one may operate without a token; reading needs none, "
        "but a certificate that a client shows must be valid.",
    )


class AdminConfig(ListenerConfig):
    """The HTTP listener for health, status, metrics and operations."""

    listen: ListenAddress = Field(
        default="127.0.0.1:8081",
        description="Address and port. If the default port is taken, the next free one is used; if a configured one is taken, "
        "the start fails. Port 0: any free one.",
    )
    hosts: Annotated[tuple[HostName, ...], BeforeValidator(entries)] = Field(
        default=(),
        description="Host names that a request to this port, and to the port of profiles, may have in its header Host, besides "
        "addresses, localhost and the host's own name. A browser that a link or the DNS led here by another name is refused.",
    )
    token_file: SecretFile | None = Field(
        default=None,
        description="File with the token that operations by POST need. On an address that other machines can reach, operations "
        "without a token are refused. Relative to the working directory; read again at each operation.",
    )
    policy: PlainFile | None = Field(
        default=None,
        description="File with the policy of `/jmx` and `/jolokia`: what requests may do there, and from which addresses; without "
        "it everything. Relative to the working directory; read again when it changes.",
    )
    tls: AdminTlsConfig | None = Field(default=None, description="HTTPS instead of HTTP; default: HTTP.")

    @property
    def given(self) -> bool:
        """Whether `listen` was set, so that no other port replaces it."""
        return "listen" in self.model_fields_set


class ProfilingConfig(ListenerConfig):
    """The HTTP listener for profiles of the process, for `go tool pprof`."""

    listen: ListenAddress = Field(
        default="127.0.0.1:8008",
        description="Address and port; if it is taken, the start fails. Port 0: any free one. With `run --processes N` each "
        "process has its own: this port for the first, the next one for the second, and so on.",
    )
    token_file: SecretFile | None = Field(
        default=None,
        description="File with the token that each request needs, as `Authorization: Bearer ...` or as the password of `Basic`. On "
        "an address that other machines can reach, requests without a token are refused. Relative to the working directory; read "
        "again at each request.",
    )
    tls: AdminTlsConfig | None = Field(
        default=None,
        description="HTTPS instead of HTTP. A client with a certificate that `client_ca_file` verifies needs no token.",
    )
    heap: Annotated[bool, BeforeValidator(flag)] = Field(
        default=False,
        description="Trace allocations from the start, for `/debug/pprof/heap`; this makes a process much slower. Default: from "
        "the first request for them.",
    )
    heap_frames: Annotated[int, whole(1, 100)] = Field(
        default=16, description="How many stack frames are kept of each traced allocation."
    )


Attribute = Annotated[
    str,
    Matching(
        r"[a-z0-9]+",
        "an attribute of events such as subject (a-z and 0-9, not the data)",
        without=("data", "datacontenttype"),
    ),
]
HeaderPattern = Annotated[str, Matching(HEADER_GLOB, "the name of a header such as x-request-id, or knative-*")]
WebhookOrigin = Annotated[
    str, Matching(r"[A-Za-z0-9._*-]{1,253}(:[0-9]{1,5})?", "the name of a sender such as *.example.com, or *")
]
UrlPath = Annotated[
    str, BeforeValidator(Matching(r"/[!\"$->@-~]*", "a path that starts with /, without blanks, ? and #"))
]


class TlsConfig(StrictModel):
    """Certificates, as PEM files."""

    cert: SecretFile = Field(description="The server's certificate, with the intermediate ones.")
    key: SecretFile | None = Field(
        default=None, description="The certificate's key, without passphrase; default: it is in `cert` too."
    )
    client_ca: SecretFile | None = Field(
        default=None, description="Authorities of client certificates; with it each client has to show one."
    )


class IngressConfig(ListenerConfig):
    """The HTTP listener that takes CloudEvents and writes them to Kafka."""

    listen: ListenAddress = Field(default="127.0.0.1:8080", description="Address and port; port 0: any free one.")
    topics: Annotated[tuple[TopicName, ...], BeforeValidator(entries)] = Field(
        default=(), description="Topics that may be posted to; without this and topics_pattern, all existing topics."
    )
    topics_pattern: Annotated[str, BeforeValidator(regular_expression)] | None = Field(
        default=None, description="Regular expression for topics that may be posted to; it matches the whole name."
    )
    create_partitions: Annotated[int, whole(1, 100_000)] | None = Field(
        default=None,
        description="A missing topic that may be posted to is created with so many partitions; default: never created.",
    )
    hosts: dict[HostName, TopicName] = Field(
        default_factory=dict, description="Host of the URL posted to, without port: the topic."
    )
    paths: dict[UrlPath, TopicName] = Field(default_factory=dict, description="Path of the URL posted to: the topic.")
    key: Annotated[tuple[Attribute, ...], BeforeValidator(entries)] = Field(
        default=("partitionkey",),
        description="Attributes, such as [partitionkey, subject]: the first one that an event has is the record's key; without a "
        "key a record goes to any partition.",
    )
    pass_headers: Annotated[tuple[HeaderPattern, ...], BeforeValidator(entries)] = Field(
        # Knative's channels keep the same.
        default=("x-request-id", "knative-*", "x-b3-*", "b3", "traceparent", "tracestate"),
        description="Headers of requests that are copied into their records, under their names in lower case; * stands for any "
        "text. Credentials, and headers of one connection or message, never are.",
    )
    webhook_origins: Annotated[tuple[WebhookOrigin, ...], BeforeValidator(entries)] = Field(
        default=("*",),
        description="Senders of webhooks that get permission to post, which they ask for by OPTIONS; * stands for any text, as in "
        "*.example.com.",
    )
    client: Literal["auto", "kafka-python", "confluent-kafka"] = Field(
        default="auto", description="The Kafka client to write with; auto is confluent-kafka where it is installed."
    )
    linger: Annotated[float, duration(0, 1)] = Field(
        default=0.005, description="How long records wait for others, so that Kafka gets many at once."
    )
    delivery_timeout: Annotated[float, duration(1, 600)] = Field(
        default=10.0, description="An event that Kafka has not acknowledged after this time is answered with 503."
    )
    request_timeout: Annotated[float, duration(1, 3600)] = Field(
        default=30.0, description="How long a client may take to send one request."
    )
    max_event_bytes: Annotated[int, size(1)] = Field(
        default=1_000_000, description="Key, value and headers of one event; Kafka's own limit for a topic is 1MiB."
    )
    max_request_bytes: Annotated[int, size(1)] = Field(default=8 * MIB, description="The body of one request.")
    max_in_flight_bytes: Annotated[int, size(1)] = Field(
        default=64 * MIB, description="Bodies without an answer yet; with more, requests are answered with 429."
    )
    max_connections: Annotated[int, whole(1, 100_000)] = Field(
        default=2000,
        description="Connections at once, including those at their TLS handshake, and half as many from one address; never more "
        "than half of the files that the process may open. With more, the one that has waited longest for its client is closed.",
    )
    token_file: SecretFile | None = Field(
        default=None,
        description="File with the token that each request needs, as `Authorization: Bearer ...`. Relative to the "
        "working directory; read again when it changes.",
    )
    tls: TlsConfig | None = Field(default=None, description="HTTPS instead of HTTP.")

    @model_validator(mode="after")
    def _check(self) -> IngressConfig:
        refuse(
            "IngressConfig",
            (
                self.create_partitions is not None and not (self.topics or self.topics_pattern),
                "create_partitions",
                "needs topics or topics_pattern: without them a client could create any topic",
            ),
            (
                self.max_in_flight_bytes < self.max_request_bytes,
                "max_in_flight_bytes",
                f"need at least max_request_bytes ({self.max_request_bytes}), or the largest request never fits",
            ),
        )
        return self


#: Jolokia's commands. `notification` is always answered with an error.
Command = Literal["read", "write", "exec", "list", "search", "version", "notification"]


def _network(value: Any) -> str:
    given = text(value)
    try:
        ipaddress.ip_network(given, strict=False)
    except ValueError:
        raise wrong(
            f"need an address or a network, such as 10.0.0.7 or 10.0.0.0/8, got {given}; names are not looked up, because "
            "then the owner of the DNS record would decide"
        ) from None
    return given


Pattern = Annotated[str, text_that(str.strip, "text that is not empty")]


class PolicyRule(StrictModel):
    """The beans, attributes and operations of a rule.

    `*` and `?` stand for any letters, and any one letter.
    """

    bean: Pattern = Field(description="name or pattern, such as `inbound:type=Channel,*`")
    read: tuple[Pattern, ...] = Field(default=(), description="attributes that may (not) be read")
    write: tuple[Pattern, ...] = Field(default=(), description="attributes that may (not) be written")
    exec: tuple[Pattern, ...] = Field(
        default=(), description="operations that may (not) be called, by their names alone"
    )


class PolicyConfig(StrictModel):
    """What requests to `/jmx` and `/jolokia` may do, and from where."""

    hosts: tuple[Annotated[str, BeforeValidator(_network)], ...] | None = Field(
        default=None, description="addresses and networks that may ask; without it all may"
    )
    methods: tuple[Literal["get", "post"], ...] | None = Field(
        default=None, description="HTTP methods of `/jolokia`; without it both"
    )
    commands: tuple[Command, ...] | None = Field(
        default=None,
        description="commands that are allowed except for `deny`; others are refused except for `allow`; without it all are "
        "allowed",
    )
    allow: tuple[PolicyRule, ...] = Field(default=(), description="exceptions for commands that are not listed")
    deny: tuple[PolicyRule, ...] = Field(default=(), description="exceptions for commands that are listed")

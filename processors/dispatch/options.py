"""The options of a subscription: subscriber, delivery, limits, requests.

Names in camel case are Knative's, so that a subscriber of a `KafkaChannel` manifest can be copied unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from inbound.config.http_values import (
    AUDIENCE,
    HeaderFile,
    audience_file,
    certificates,
    header_globs,
    header_names,
    header_value,
    http_url,
    is_audience,
)
from inbound.config.units import MIB, format_duration
from inbound.config.values import (
    Rule,
    StrictModel,
    TopicName,
    duration,
    entries,
    iso_duration,
    not_empty,
    rate,
    refuse,
    size,
    text,
    text_that,
    topic_name,
    whole,
    wrong_at,
)
from inbound.processors.cloudevents_http import TRACE
from inbound.processors.cloudevents_values import CORE, forbidden_in, is_name
from inbound.processors.dispatch.filters import Filters
from inbound.processors.http_headers import DEFAULT_OUT, is_never

#: Named here because the field that uses it is called `rate`, too.
PerSecond = Annotated[float, rate()]
Certificates = Annotated[str, BeforeValidator(certificates)]
Audience = Annotated[
    str,
    text_that(is_audience, "an audience of printable ASCII, such as billing.example, of 1024 characters at most"),
]
_CORE = ", ".join(sorted(CORE | {"data"}))


def passed_names(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Check the names of passed-on headers; those never passed on are refused."""
    refuse(
        "pass_headers",
        *(
            (
                is_never(pattern),
                (number,),
                "is never passed on: it is the connection's, a credential, or one that inbound sets",
            )
            for number, pattern in enumerate(header_globs(patterns))
        ),
    )
    return patterns


def _extensions(given: dict[str, str]) -> dict[str, str]:
    rules: list[Rule] = []
    for name, value in given.items():
        bad = forbidden_in(name, value)
        is_own = is_name(name) and name not in CORE
        rules += [
            (not is_own, (name,), f"cannot be an extension: need a-z and 0-9, and none of {_CORE}"),
            (name in TRACE, (name,), "names the trace of one event, so it cannot be set for all"),
            (bad, (name,), bad),
        ]
    refuse("extensions", *rules)
    return given


class CloudEventOverrides(StrictModel):
    """Changes of each event for the subscriber, under Knative's names."""

    extensions: Annotated[dict[str, Annotated[str, BeforeValidator(text)]], AfterValidator(_extensions)] = Field(
        default_factory=dict, description="attributes that are added, or replace the event's own"
    )


def _receiver(value: Any) -> str:
    # Knative writes a host alone as `//host`, and uses http for it.
    return http_url(f"http:{value}" if isinstance(value, str) and value.startswith("//") else value)


Url = Annotated[str, BeforeValidator(_receiver)]


class BatchOptions(StrictModel):
    """The size of requests with several events."""

    max_events: Annotated[int, whole(1, 10_000)] = Field(default=100, description="events in one request")
    max_bytes: Annotated[int, size(1)] = Field(default=MIB, description="bytes of one request's body")
    max_delay: Annotated[float, duration()] = Field(
        default=0.01, description="how long a request that is not full waits for more events"
    )


def _or_text(schema: dict[str, Any]) -> None:
    """Allow text for the mapping in the JSON Schema: URL or topic."""
    mapping = dict(schema)
    schema.clear()
    schema |= {"anyOf": [{"type": "string"}, mapping], "description": mapping.pop("description", "")}


class DeadLetterSink(StrictModel):
    """The receiver of undeliverable events: a URL, or a Kafka topic."""

    model_config = ConfigDict(json_schema_extra=_or_text)

    uri: Url | None = Field(default=None, repr=False, description="URL that the events are posted to")
    topic: TopicName | None = Field(
        default=None, description="topic of the same Kafka that the events are published to"
    )
    CACerts: Certificates | None = Field(
        default=None, repr=False, description="more authorities of the certificate of `uri`: certificates in PEM"
    )
    audience: Audience | None = Field(default=None, description="audience of the token that `uri` is sent")

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"uri" if "//" in value else "topic": value}
        return value

    @model_validator(mode="after")
    def _check(self) -> DeadLetterSink:
        refuse(
            "DeadLetterSink",
            ((self.uri is None) == (self.topic is None), (), "needs either uri or topic"),
            (
                self.uri is None and self.topic is not None and (self.CACerts or self.audience),
                (),
                "CACerts and audience are for a uri; remove them",
            ),
        )
        return self


class DeliverySpec(StrictModel):
    """Timeout, retries and dead letters of an event, under Knative's names."""

    retry: Annotated[int, whole(0, 1_000_000)] = Field(
        default=10, description="how often an event is sent again before it goes to the dead letter sink"
    )
    backoffPolicy: Literal["linear", "exponential"] = Field(
        default="exponential",
        description="linear: backoffDelay times the number of the attempt; exponential: doubled with each",
    )
    backoffDelay: Annotated[float, iso_duration()] = Field(
        default=0.2, description="wait before the first retry, in ISO 8601 such as PT0.2S, or such as 200ms"
    )
    timeout: Annotated[float, iso_duration(over=True)] = Field(
        default=30.0, description="time for one whole request, in ISO 8601 such as PT30S, or such as 30s"
    )
    retryAfterMax: Annotated[float, iso_duration()] | None = Field(
        default=None,
        description="the longest wait for a Retry-After of an answer 429 or 503, in ISO 8601 such as PT30S, or such as 30s; "
        "PT0S: none; without it the Retry-After of every answer counts, up to 5m",
    )
    deadLetterSink: DeadLetterSink | None = Field(
        default=None,
        description="URL for events that are given up, or Kafka topic, which must not be one that the channel reads; without it "
        "events are tried without end",
    )


class LimitOptions(StrictModel):
    """The most requests to the subscriber, retries included.

    They count over all partitions that this process owns.
    """

    rate: PerSecond | None = Field(
        default=None, description="requests per second; a tenth of that, or one, may begin at once after a pause"
    )
    in_flight: Annotated[int, whole(1, 1_000_000)] | None = Field(default=None, description="requests at a time")


class DelayedRetryOptions(StrictModel):
    """An event whose `delivery.retry` is used up waits in a topic.

    Its partition goes on.
    """

    delays: Annotated[
        tuple[Annotated[float, duration(over=True)], ...],
        BeforeValidator(entries),
        not_empty("need at least one delay, such as [10s, 5m, 1h], got an empty list"),
        Field(json_schema_extra={"minItems": 1}),
    ] = Field(
        description="how long an event waits the first time, the second, and so on; after the last time it is given up"
    )
    topic: TopicName = Field(
        description="prefix of the topic of each delay, such as NAME.10s: existing topics of the same Kafka"
    )
    out_of_order: bool = Field(
        default=False,
        description="later events overtake a waiting one, also those with its key: must be true unless `ordering` is none",
    )

    @model_validator(mode="after")
    def _check(self) -> DelayedRetryOptions:
        for name in self.topics:
            try:
                topic_name(name)
            except PydanticCustomError as error:
                raise wrong_at("DelayedRetryOptions", [(("topic",), error, None)]) from None
        return self

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic of each delay; equal delays share one."""
        return tuple(f"{self.topic}.{format_duration(delay)}" for delay in self.delays)


class DispatchOptions(StrictModel):
    """One subscription: its subscriber, and how events are posted."""

    subscriberUri: Url = Field(
        repr=False, description="URL that events are posted to, http or https; redirects are not followed"
    )
    replyUri: Url | None = Field(
        default=None, repr=False, description="URL that an event in the subscriber's answer is posted to"
    )
    filters: Filters = Field(
        default=(),
        description="only events that pass all of these are sent: each is one of {exact, prefix or suffix: {attribute: text}}, "
        "{all or any: [filters]}, {not: filter}",
    )
    delivery: DeliverySpec = Field(default_factory=DeliverySpec)
    mode: Literal["binary", "structured"] = Field(
        default="binary", description="attributes as headers and data as the body, or the whole event as JSON"
    )
    batch: BatchOptions | None = Field(
        default=None, description="several events in one request, as a JSON array: only for subscribers that ask for it"
    )
    ordering: Literal["partition", "key", "none"] = Field(
        default="partition",
        description="partition: one event of a partition at a time; key: one of each record key at a time; none: without order",
    )
    max_in_flight: Annotated[int, whole(1, 100_000)] = Field(
        default=500,
        description="events of one partition that are sent and not committed yet: a crash redelivers at most these; with "
        "`batch` 4 times its max_events, if that is more and this is not given",
    )
    limits: LimitOptions = Field(default_factory=LimitOptions)
    delayed_retry: DelayedRetryOptions | None = Field(
        default=None,
        description="before an event is given up, let it wait in a topic while its partition goes on",
    )
    on_undecodable: Literal["stop", "skip"] = Field(
        default="stop",
        description="without a dead letter sink: hold the partition at a record that is no event, or go on after it",
    )
    headers: Annotated[
        dict[str, Annotated[str | HeaderFile, BeforeValidator(header_value)]], AfterValidator(header_names)
    ] = Field(
        default_factory=dict,
        repr=False,
        description="sent to the subscriber with every request; {file: path} for secrets",
    )
    pass_headers: Annotated[tuple[str, ...], AfterValidator(passed_names)] = Field(
        default=DEFAULT_OUT,
        description="other headers of the record that are sent too, by name; `*` stands for any text. Never: headers of the "
        "connection, credentials",
    )
    ceOverrides: CloudEventOverrides = Field(
        default_factory=CloudEventOverrides, description="changes of each event for the subscriber"
    )
    subscriberCACerts: Certificates | None = Field(
        default=None, repr=False, description="more authorities of the subscriber's certificate: certificates in PEM"
    )
    replyCACerts: Certificates | None = Field(default=None, repr=False, description="the same for `replyUri`")
    subscriberAudience: Audience | None = Field(
        default=None,
        description="audience of the subscriber's token: the name of the token's file, as {audience} in token_file",
    )
    replyAudience: Audience | None = Field(default=None, description="the same for `replyUri`")
    token_file: Annotated[Path, AfterValidator(audience_file)] | None = Field(
        default=None,
        description="file with the token that the subscriber is sent (authorization: Bearer); with {audience} as its name "
        "each receiver is sent the token of its own audience",
    )
    connect_timeout: Annotated[float, duration(over=True)] = Field(default=5.0, description="time to get a connection")
    connections: Annotated[int, whole(1, 10_000)] = Field(
        default=256, description="the most connections to each receiver"
    )
    ca_file: Path | None = Field(
        default=None, description="authorities of the receivers' certificates; default: the system's"
    )
    client_cert: Path | None = Field(default=None, description="the client's certificate, PEM; it may hold the key too")
    client_key: Path | None = Field(default=None, description="the key of `client_cert`, PEM, without passphrase")
    transport: Literal["http", "requests"] = Field(
        default="http",
        description="the HTTP client: inbound's own, or the slower requests with its adapters (an extra)",
    )

    @model_validator(mode="after")
    def _check(self) -> DispatchOptions:
        given, batch, delayed, sink = (
            self.model_fields_set,
            self.batch,
            self.delayed_retry,
            self.delivery.deadLetterSink,
        )
        most = 0 if batch is None else batch.max_events
        has_audiences = self.token_file is not None and self.token_file.name == AUDIENCE
        refuse(
            "DispatchOptions",
            (
                batch is not None and "mode" in given,
                "mode",
                "is for single events, but batch is given; remove one of the two",
            ),
            (
                "max_in_flight" in given and self.max_in_flight < most,
                "max_in_flight",
                f"need at least batch.max_events ({most}), got {self.max_in_flight}",
            ),
            (
                delayed is not None and self.ordering != "none" and not delayed.out_of_order,
                ("delayed_retry", "out_of_order"),
                f"needs to be true with ordering: {self.ordering}, for later events overtake one that waits; or set "
                "ordering: none",
            ),
            (
                sink is not None and sink.topic in self.retry_topics,
                ("delivery", "deadLetterSink"),
                f"is {sink and sink.topic}, which is where events wait to be sent again; choose another topic",
            ),
            (self.client_key and not self.client_cert, "client_key", "is used only with client_cert; give that too"),
            (
                self.token_file and any(name.lower() == "authorization" for name in self.headers),
                "token_file",
                "is sent as the header authorization, which headers has",
            ),
            *(
                (
                    not has_audiences,
                    place,
                    f"is used only with a token_file such as /folder/{AUDIENCE}",
                )
                for place in self._audiences
            ),
        )
        return self

    @property
    def retry_topics(self) -> tuple[str, ...]:
        """Topics where events wait; the subscription reads them, too."""
        return () if self.delayed_retry is None else tuple(dict.fromkeys(self.delayed_retry.topics))

    @property
    def audiences(self) -> frozenset[str]:
        """The audiences of the receivers' tokens."""
        return frozenset(self._audiences.values())

    @property
    def _audiences(self) -> dict[tuple[str, ...], str]:
        """The audiences by their places in the options."""
        sink = self.delivery.deadLetterSink
        found = {
            ("subscriberAudience",): self.subscriberAudience,
            ("replyAudience",): self.replyAudience,
            ("delivery", "deadLetterSink", "audience"): sink.audience if sink is not None else None,
        }
        return {place: audience for place, audience in found.items() if audience is not None}

    @property
    def without_default(self) -> tuple[str, ...]:
        """Keys for `check --show` to leave out: `batch` changes their defaults."""
        return () if self.batch is None else ("mode", "max_in_flight")

    @property
    def window(self) -> int:
        """The most events of a partition that are sent and not committed."""
        if self.batch is None or "max_in_flight" in self.model_fields_set:
            return self.max_in_flight
        return max(self.max_in_flight, 4 * self.batch.max_events)

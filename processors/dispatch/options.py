"""The options of a subscription: subscriber, delivery, limits, requests.

Names in camel case are Knative's, so that a subscriber of a `KafkaChannel` manifest can be copied as it stands.
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

#: Not where it is used: the field there is called `rate`, too.
PerSecond = Annotated[float, rate()]
Certificates = Annotated[str, BeforeValidator(certificates)]
Audience = Annotated[
    str,
    text_that(is_audience, "an audience of printable ASCII, such as billing.example, of 1024 characters at most"),
]
_CORE = ", ".join(sorted(CORE | {"data"}))


def passed_names(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Check the headers of a record that are passed on: one that is listed in full must be one that can."""
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
    """Check attributes that each event is given."""
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
    """Changes of each event on its way to the subscriber; under Knative's names."""

    extensions: Annotated[dict[str, Annotated[str, BeforeValidator(text)]], AfterValidator(_extensions)] = Field(
        default_factory=dict, description="attributes that are added, or take the place of the event's own"
    )


def _receiver(value: Any) -> str:
    """Check whom to post to. Knative writes a host alone as `//host`, and speaks http to it."""
    return http_url(f"http:{value}" if isinstance(value, str) and value.startswith("//") else value)


Url = Annotated[str, BeforeValidator(_receiver)]


class BatchOptions(StrictModel):
    """How many events go into one request."""

    max_events: Annotated[int, whole(1, 10_000)] = Field(default=100, description="events in one request")
    max_bytes: Annotated[int, size(1)] = Field(default=MIB, description="bytes of one request's body")
    max_delay: Annotated[float, duration()] = Field(
        default=0.01, description="how long a request that is not full waits for more events"
    )


def _or_text(schema: dict[str, Any]) -> None:
    """Say in the JSON Schema that the URL or the topic may stand there alone."""
    mapping = dict(schema)
    schema.clear()
    schema |= {"anyOf": [{"type": "string"}, mapping], "description": mapping.pop("description", "")}


class DeadLetterSink(StrictModel):
    """Where events go that the subscriber does not take: a URL or a topic of the same Kafka."""

    model_config = ConfigDict(json_schema_extra=_or_text)

    uri: Url | None = Field(default=None, repr=False, description="URL that they are posted to")
    topic: TopicName | None = Field(default=None, description="Kafka topic that they are published to")
    CACerts: Certificates | None = Field(
        default=None, repr=False, description="who else may sign the certificate of `uri`: certificates in PEM"
    )
    audience: Audience | None = Field(default=None, description="whom the token is for that `uri` is sent")

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
    """What is done with an event that the subscriber does not take; under Knative's names."""

    retry: Annotated[int, whole(0, 1_000_000)] = Field(
        default=10, description="how often an event is sent again before it goes to the dead letter sink"
    )
    backoffPolicy: Literal["linear", "exponential"] = Field(
        default="exponential", description="backoffDelay times the number of the attempt, or doubled with each"
    )
    backoffDelay: Annotated[float, iso_duration()] = Field(
        default=0.2, description="wait before the first retry, in ISO 8601 such as PT0.2S, or such as 200ms"
    )
    timeout: Annotated[float, iso_duration(over=True)] = Field(
        default=30.0, description="time for one whole request, in ISO 8601 such as PT30S, or such as 30s"
    )
    retryAfterMax: Annotated[float, iso_duration()] | None = Field(
        default=None,
        description="the longest that a Retry-After of an answer 429 or 503 is waited for, in ISO 8601 such as PT30S, or "
        "such as 30s; PT0S: not at all; without it that of every answer, up to 5m",
    )
    deadLetterSink: DeadLetterSink | None = Field(
        default=None,
        description="URL, or Kafka topic, for events that are given up, none that the channel reads; without one they are tried "
        "without end",
    )


class LimitOptions(StrictModel):
    """How much the subscriber is sent, over all partitions that this process owns; requests, with their retries."""

    rate: PerSecond | None = Field(
        default=None, description="requests per second; a tenth of that, or one, may begin at once after a pause"
    )
    in_flight: Annotated[int, whole(1, 1_000_000)] | None = Field(default=None, description="requests at a time")


class DelayedRetryOptions(StrictModel):
    """An event that `delivery.retry` did not help waits in a topic, and its partition goes on."""

    delays: Annotated[
        tuple[Annotated[float, duration(over=True)], ...],
        BeforeValidator(entries),
        not_empty("need at least one delay, such as [10s, 5m, 1h], got an empty list"),
        Field(json_schema_extra={"minItems": 1}),
    ] = Field(description="how long an event waits, the first time, the second, ...; after the last it is given up")
    topic: TopicName = Field(
        description="begins the name of a topic for each delay, such as NAME.10s: an existing topic of the same Kafka"
    )
    out_of_order: bool = Field(
        default=False,
        description="later events overtake one that waits, also those of its key: must be true unless `ordering` is none",
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
        """The topic of each delay; delays that are the same share one."""
        return tuple(f"{self.topic}.{format_duration(delay)}" for delay in self.delays)


class DispatchOptions(StrictModel):
    """One subscription: who is posted to, and how."""

    subscriberUri: Url = Field(repr=False, description="http or https; redirects are not followed")
    replyUri: Url | None = Field(
        default=None, repr=False, description="an event in the subscriber's answer is posted there"
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
        description="one event of a partition at a time; one of each record key at a time; or as they come",
    )
    max_in_flight: Annotated[int, whole(1, 100_000)] = Field(
        default=500,
        description="events of one partition that are sent and not committed yet: so many are repeated after a crash "
        "at most; with `batch` 4 times its max_events, if that is more and this is not given",
    )
    limits: LimitOptions = Field(default_factory=LimitOptions)
    delayed_retry: DelayedRetryOptions | None = Field(
        default=None, description="let an event wait in a topic, instead of its partition; before it is given up"
    )
    on_undecodable: Literal["stop", "skip"] = Field(
        default="stop",
        description="without a dead letter sink: hold the partition at a record that is no event, or go on",
    )
    headers: Annotated[
        dict[str, Annotated[str | HeaderFile, BeforeValidator(header_value)]], AfterValidator(header_names)
    ] = Field(
        default_factory=dict,
        repr=False,
        description="sent to the subscriber with every request; {file: path} for secrets",
    )
    # What a request carries, and by which credentials.
    pass_headers: Annotated[tuple[str, ...], AfterValidator(passed_names)] = Field(
        default=DEFAULT_OUT,
        description="the record's other headers that are sent along, by name; `*` stands for any text. Never: headers of "
        "the connection, credentials",
    )
    ceOverrides: CloudEventOverrides = Field(
        default_factory=CloudEventOverrides, description="what is changed in each event on its way to the subscriber"
    )
    subscriberCACerts: Certificates | None = Field(
        default=None, repr=False, description="who else may sign the subscriber's certificate: certificates in PEM"
    )
    replyCACerts: Certificates | None = Field(default=None, repr=False, description="the same for `replyUri`")
    subscriberAudience: Audience | None = Field(
        default=None, description="whom the subscriber's token is for: names its file, as {audience} in token_file"
    )
    replyAudience: Audience | None = Field(default=None, description="the same for `replyUri`")
    token_file: Annotated[Path, AfterValidator(audience_file)] | None = Field(
        default=None,
        description="file with the token that the subscriber is sent (authorization: Bearer); with {audience} as its name "
        "each receiver is sent the token of its own audience",
    )
    connect_timeout: Annotated[float, duration(over=True)] = Field(default=5.0, description="time to get a connection")
    connections: Annotated[int, whole(1, 10_000)] = Field(
        default=256, description="connections to each receiver at most"
    )
    ca_file: Path | None = Field(
        default=None, description="who may sign the certificates of those posted to; default: the system's"
    )
    client_cert: Path | None = Field(default=None, description="our certificate, PEM; it may hold the key too")
    client_key: Path | None = Field(default=None, description="the key of `client_cert`, PEM, without passphrase")
    transport: Literal["http", "requests"] = Field(
        default="http", description="what sends: our own, or the slower requests with its adapters (an extra)"
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
        """Topics that the subscription reads beside the channel's: its events wait there."""
        return () if self.delayed_retry is None else tuple(dict.fromkeys(self.delayed_retry.topics))

    @property
    def audiences(self) -> frozenset[str]:
        """The audiences of the tokens that receivers are sent."""
        return frozenset(self._audiences.values())

    @property
    def _audiences(self) -> dict[tuple[str, ...], str]:
        """The audience of each receiver that has one, by its place in the options."""
        sink = self.delivery.deadLetterSink
        found = {
            ("subscriberAudience",): self.subscriberAudience,
            ("replyAudience",): self.replyAudience,
            ("delivery", "deadLetterSink", "audience"): sink.audience if sink is not None else None,
        }
        return {place: audience for place, audience in found.items() if audience is not None}

    @property
    def without_default(self) -> tuple[str, ...]:
        """What `check --show` leaves out where it is not given: beside `batch` the defaults do not hold."""
        return () if self.batch is None else ("mode", "max_in_flight")

    @property
    def window(self) -> int:
        """Events of one partition that may be sent and not committed."""
        if self.batch is None or "max_in_flight" in self.model_fields_set:
            return self.max_in_flight
        return max(self.max_in_flight, 4 * self.batch.max_events)

"""What a subscription may say: the subscriber, how events go there, and what becomes of those that it does not take.

Names in camel case are Knative's, so that a subscriber of a `KafkaChannel` manifest can be copied as it stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from inbound.config.units import format_duration
from inbound.config.values import (
    Part,
    Problem,
    TopicName,
    duration,
    entries,
    rate,
    size,
    topic_name,
    whole,
    wrong,
    wrong_at,
)
from inbound.processors.dispatch.filters import Filters
from inbound.processors.dispatch.iso_duration import iso_duration
from inbound.processors.dispatch.request_options import Audience, Certificates, CloudEventOverrides, PassedNames
from inbound.processors.forwarded_headers import DEFAULT_OUT
from inbound.processors.http_values import AUDIENCE, HeaderFile, audience_file, header_names, header_value, http_url

MIB = 2**20
PerSecond = Annotated[float, rate()]


def _receiver(value: Any) -> str:
    """Check whom to post to. Knative writes a host alone as `//host`, and speaks http to it."""
    return http_url(f"http:{value}" if isinstance(value, str) and value.startswith("//") else value)


Url = Annotated[str, BeforeValidator(_receiver)]


class BatchOptions(Part):
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


class DeadLetterSink(Part):
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
        if (self.uri is None) == (self.topic is None):
            raise wrong_at("DeadLetterSink", [((), wrong("needs either uri or topic"), None)])
        if self.topic is not None and (self.CACerts or self.audience):
            raise wrong_at("DeadLetterSink", [((), wrong("CACerts and audience are for a uri; remove them"), None)])
        return self


class DeliverySpec(Part):
    """What is done about an event that the subscriber does not take; under Knative's names."""

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
        "for ever",
    )


class LimitOptions(Part):
    """How much the subscriber is sent, over all partitions that this process owns; requests, with their retries."""

    rate: PerSecond | None = Field(
        default=None, description="requests per second; a tenth of that, or one, may begin at once after a pause"
    )
    in_flight: Annotated[int, whole(1, 1_000_000)] | None = Field(default=None, description="requests at a time")


def _delays(value: Any) -> Any:
    delays = entries(value)
    if not delays:
        raise wrong("need at least one delay, such as [10s, 5m, 1h], got an empty list")
    return delays


class DelayedRetryOptions(Part):
    """An event that `delivery.retry` did not help waits in a topic, and its partition goes on."""

    delays: Annotated[
        tuple[Annotated[float, duration(over=True)], ...],
        BeforeValidator(_delays),
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


class DispatchOptions(Part):
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
    pass_headers: PassedNames = Field(
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
        problems: list[Problem] = []
        if self.batch is not None:
            if "mode" in self.model_fields_set:
                problems.append(
                    (("mode",), wrong("is for single events, but batch is given; remove one of the two"), None)
                )
            if "max_in_flight" in self.model_fields_set and self.max_in_flight < self.batch.max_events:
                rule = f"need at least batch.max_events ({self.batch.max_events}), got {self.max_in_flight}"
                problems.append((("max_in_flight",), wrong(rule), None))
        problems += self._delayed_retry_problems()
        if self.client_key and not self.client_cert:
            problems.append((("client_key",), wrong("is used only with client_cert; give that too"), None))
        problems += self._token_problems()
        if problems:
            raise wrong_at("DispatchOptions", problems)
        return self

    def _delayed_retry_problems(self) -> list[Problem]:
        delayed, sink = self.delayed_retry, self.delivery.deadLetterSink
        if delayed is None:
            return []
        problems: list[Problem] = []
        if self.ordering != "none" and not delayed.out_of_order:
            rule = (
                f"needs to be true with ordering: {self.ordering}, for later events overtake one that waits; or set "
                "ordering: none"
            )
            problems.append((("delayed_retry", "out_of_order"), wrong(rule), None))
        if sink is not None and sink.topic in delayed.topics:
            rule = f"is {sink.topic}, which is where events wait to be sent again; choose another topic"
            problems.append((("delivery", "deadLetterSink"), wrong(rule), None))
        return problems

    @property
    def retry_topics(self) -> tuple[str, ...]:
        """Topics that the subscription reads beside the channel's: those in which its events wait."""
        return () if self.delayed_retry is None else tuple(dict.fromkeys(self.delayed_retry.topics))

    @property
    def audiences(self) -> frozenset[str]:
        """Whom tokens are for that receivers are sent."""
        sink = self.delivery.deadLetterSink
        given = (self.subscriberAudience, self.replyAudience, sink.audience if sink is not None else None)
        return frozenset(audience for audience in given if audience is not None)

    def _token_problems(self) -> list[Problem]:
        problems: list[Problem] = []
        if self.token_file and any(name.lower() == "authorization" for name in self.headers):
            problems.append((("token_file",), wrong("is sent as the header authorization, which headers has"), None))
        sink = self.delivery.deadLetterSink
        audiences = {
            ("subscriberAudience",): self.subscriberAudience,
            ("replyAudience",): self.replyAudience,
            ("delivery", "deadLetterSink", "audience"): sink.audience if sink is not None else None,
        }
        if self.token_file is None or self.token_file.name != AUDIENCE:
            rule = f"is used only with a token_file such as /folder/{AUDIENCE}"
            problems += [(place, wrong(rule), None) for place, given in audiences.items() if given is not None]
        return problems

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

"""What a subscription may say: the subscriber, how events go there, and what becomes of those that it does not take.

Names in camel case are Knative's, so that a subscriber of a `KafkaChannel` manifest can be copied as it stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from inbound.config.values import Part, Problem, TopicName, duration, size, whole, wrong, wrong_at
from inbound.processors.dispatch.iso_duration import iso_duration
from inbound.processors.http_values import HeaderFile, header_names, header_value, http_url

MIB = 2**20
Url = Annotated[str, BeforeValidator(http_url)]


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

    @model_validator(mode="before")
    @classmethod
    def _text_alone(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"uri" if "://" in value else "topic": value}
        return value

    @model_validator(mode="after")
    def _check(self) -> DeadLetterSink:
        if (self.uri is None) == (self.topic is None):
            raise wrong_at("DeadLetterSink", [((), wrong("needs either uri or topic"), None)])
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
    deadLetterSink: DeadLetterSink | None = Field(
        default=None,
        description="URL, or Kafka topic, for events that are given up, none that the channel reads; without one they are tried "
        "for ever",
    )


class DispatchOptions(Part):
    """One subscription: who is posted to, and how."""

    subscriberUri: Url = Field(repr=False, description="http or https; redirects are not followed")
    replyUri: Url | None = Field(
        default=None, repr=False, description="an event in the subscriber's answer is posted there"
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
        default=64,
        description="events of one partition that are sent and not committed yet: so many are repeated after a crash "
        "at most; with `batch` 4 times its max_events if not given",
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
    connect_timeout: Annotated[float, duration(over=True)] = Field(default=5.0, description="time to get a connection")
    connections: Annotated[int, whole(1, 10_000)] = Field(
        default=128, description="connections to each receiver at most"
    )
    ca_file: Path | None = Field(
        default=None, description="who may sign the certificates of those posted to; default: the system's"
    )
    client_cert: Path | None = Field(default=None, description="our certificate, PEM; it may hold the key too")
    client_key: Path | None = Field(default=None, description="the key of `client_cert`, PEM, without passphrase")
    transport: Literal["curl", "requests"] = Field(
        default="curl", description="what sends: libcurl, or the slower requests with its adapters (an extra)"
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
        if self.client_key and not self.client_cert:
            problems.append((("client_key",), wrong("is used only with client_cert; give that too"), None))
        if problems:
            raise wrong_at("DispatchOptions", problems)
        return self

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

"""The form of Knative's manifests: `KafkaChannel`, `ResetOffset`, `Subscription`.

Only their form is checked here: the keys, and that text is text. `inbound.plan.subscriptions` checks the settings of a subscriber,
with the dispatcher's options. An unusable object becomes a `RefusedManifest`, or a reset that does nothing; the others work.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from inbound.config.document import Places
from inbound.config.units import shown
from inbound.config.values import StrictModel, path_part, text, whole, wrong

KIND = "KafkaChannel"
Version = Literal["messaging.knative.dev/v1beta1", "messaging.knative.dev/v1"]
#: The path of the subscribers in the object, and the path in older versions.
SUBSCRIBERS, OLDER_SUBSCRIBERS = "spec.subscribers", "spec.subscribable.subscribers"
#: In the status: URL of the channel's dead letters, authorities of that receiver's certificate, audience of its token.
RESOLVED_SINK = ("deadLetterSinkUri", "deadLetterSinkCACerts", "deadLetterSinkAudience")
#: Begins the annotations for settings that Knative's schema has no field for: `inbound.dev/ordering: key`.
ANNOTATION = "inbound.dev/"


def _list(value: Any) -> Any:
    if value is not None and not isinstance(value, (list, tuple)):
        raise wrong(f"need a list, got {shown(value)}")
    return () if value is None else value


def _mapping(value: Any) -> Any:
    return {} if value is None else value


Text = Annotated[str, BeforeValidator(text)]
Name = Annotated[str, BeforeValidator(path_part)]
Number = Annotated[int, whole(0)]


class ChannelRef(StrictModel):
    """The channel of a subscription; it is in the subscription's namespace."""

    apiVersion: Text | None = None
    kind: Text
    name: Name
    namespace: Name | None = None


class TargetRef(ChannelRef):
    """The object whose offsets a reset moves."""

    group: Text | None = None


class Reference(TargetRef):
    """Another object of the cluster that receives events."""

    address: Text | None = None


class Destination(StrictModel):
    """A receiver of events: an object, or a URI."""

    ref: Reference | None = None
    uri: Text | None = None
    CACerts: Text | None = None
    audience: Text | None = None


class KnativeDelivery(StrictModel):
    """Retries and dead letters of a subscriber; None: not given."""

    retry: Any = None
    timeout: Any = None
    backoffPolicy: Any = None
    backoffDelay: Any = None
    retryAfterMax: Any = None
    format: Any = None
    deadLetterSink: Destination | None = None


class Subscriber(StrictModel):
    """One subscriber of a channel."""

    name: Text | None = None
    uid: Name
    generation: Number | None = None
    subscriberUri: Text | None = None
    subscriberCACerts: Text | None = None
    subscriberAudience: Text | None = None
    replyUri: Text | None = None
    replyCACerts: Text | None = None
    replyAudience: Text | None = None
    auth: Any = None
    delivery: KnativeDelivery | None = None
    deadLetterSinkUri: Text | None = None


class Subscribable(StrictModel):
    """Holds the subscribers in older versions."""

    subscribers: Annotated[tuple[Subscriber, ...], BeforeValidator(_list)] = ()


class ChannelSpec(StrictModel):
    """The `spec` of a channel."""

    numPartitions: Number | None = None
    replicationFactor: Number | None = None
    retentionDuration: Text | None = None
    delivery: KnativeDelivery | None = None
    subscribers: Annotated[tuple[Subscriber, ...], BeforeValidator(_list)] = ()
    subscribable: Subscribable | None = None


class ObjectMetadata(StrictModel):
    """The metadata of every Kubernetes object; most keys are not used here."""

    name: Name
    namespace: Name = "default"
    uid: Text | None = None
    generation: Number | None = None
    annotations: Annotated[dict[str, Any], BeforeValidator(_mapping)] = Field(default_factory=dict)
    labels: Any = None
    creationTimestamp: Any = None
    deletionTimestamp: Any = None
    deletionGracePeriodSeconds: Any = None
    finalizers: Any = None
    generateName: Any = None
    managedFields: Any = None
    ownerReferences: Any = None
    resourceVersion: Any = None
    selfLink: Any = None
    clusterName: Any = None


class KafkaChannel(StrictModel):
    """A channel and its subscribers."""

    apiVersion: Version
    kind: Literal["KafkaChannel"]
    metadata: ObjectMetadata
    spec: Annotated[ChannelSpec, BeforeValidator(_mapping)] = Field(default_factory=ChannelSpec)
    status: Any = None


#: Knative's keys of a subscription, for environment variables: their names have no case.
CAMEL_CASE = (
    *(key for model in (Subscriber, KnativeDelivery) for key in model.model_fields if key != key.lower()),
    "CACerts",
    "ceOverrides",
)


@dataclass(frozen=True)
class ChannelManifest:
    """One channel, and its place in a file."""

    channel: KafkaChannel
    places: Places
    prefix: str  # dotted path of the object in its document; empty for the whole document
    #: Unusable subscribers, as written, by their path in the object: `channel` is without them.
    left_out: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Namespace and name, as Knative's topics are named."""
        return f"{self.channel.metadata.namespace}.{self.channel.metadata.name}"

    @property
    def subscribers(self) -> list[tuple[str, Subscriber]]:
        """The subscribers whose form is valid, each with its dotted path."""
        spec = self.channel.spec
        older = spec.subscribable.subscribers if spec.subscribable is not None else ()
        return [*self._placed(SUBSCRIBERS, spec.subscribers), *self._placed(OLDER_SUBSCRIBERS, older)]

    @property
    def resolved_sink(self) -> dict[str, str]:
        """The status' keys for the channel's own `deadLetterSink`; empty without its URL."""
        status = self.channel.status if isinstance(self.channel.status, Mapping) else {}
        found = {key: status[key] for key in RESOLVED_SINK if isinstance(status.get(key), str)}
        return found if RESOLVED_SINK[0] in found else {}

    def at(self, path: str) -> str:
        """Return the path in the document for a `path` in the object."""
        return f"{self.prefix}.{path}" if self.prefix else path

    def annotations(self) -> dict[str, Any]:
        """Return inbound's annotations, without their prefix."""
        found = self.channel.metadata.annotations.items()
        return {key.removeprefix(ANNOTATION): value for key, value in found if key.startswith(ANNOTATION)}

    def _placed(self, path: str, subscribers: tuple[Subscriber, ...]) -> Iterator[tuple[str, Subscriber]]:
        written = (f"{path}[{i}]" for i in count())
        good = (one for one in written if one not in self.left_out)
        return ((self.at(where), subscriber) for where, subscriber in zip(good, subscribers, strict=False))


@dataclass(frozen=True)
class ManifestOrigin:
    """The place of a subscription in the manifests."""

    file: str
    where: str  # file and line
    namespace: str  # of its KafkaChannel
    name: str
    path: str  # of the subscriber in its object
    uid: str

    @property
    def channel(self) -> str:
        """The name of the `KafkaChannel`, as in `ChannelManifest.name`."""
        return f"{self.namespace}.{self.name}"

    def refused(self, problem: str) -> RefusedManifest:
        """Return the refusal of this subscription for `problem`."""
        return RefusedManifest(
            kind=KIND, file=self.file, where=self.where, problem=problem, namespace=self.namespace, name=self.name,
            path=self.path, uid=self.uid,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RefusedManifest:
    """One unusable manifest or subscriber, which alone does not run."""

    kind: str | None  # None: the file, or a document of it, cannot be read
    file: str
    where: str  # file and line
    problem: str  # a line for each problem, with file, line, path, and what to do
    namespace: str | None = None
    name: str | None = None
    path: str | None = None  # of the subscriber in its object; None: the whole object
    uid: str | None = None  # of the subscriber, if it can be read

    @property
    def channel(self) -> str | None:
        """The name of the `KafkaChannel`; None: another kind, or not known."""
        known = self.kind == KIND and self.namespace and self.name
        return f"{self.namespace}.{self.name}" if known else None

    @property
    def subject(self) -> str:
        """The name for people: `KafkaChannel shop/orders, subscriber u-1`."""
        subscriber = f", subscriber {self.uid or self.path}" if self.path is not None else ""
        return f"{self.kind} {self.namespace}/{self.name}{subscriber}" if self.kind and self.name else self.file

    def covers(self, origin: ManifestOrigin, read: Collection[str]) -> bool:
        """Return whether this refusal may be why an earlier subscription is missing.

        `read` are the names of the readable channels: a subscription that one of them has no longer is gone.
        """
        if self.channel is None:
            return self.kind in (None, KIND) and self.file == origin.file and origin.channel not in read
        return self.channel == origin.channel and self.uid in (None, origin.uid)


RESET, SUBSCRIPTION = "ResetOffset", "Subscription"
EARLIEST, LATEST = "earliest", "latest"

#: RFC 3339, with the offset from UTC: without it, each machine would read another time.
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def parse_time(given: str) -> float:
    """Return the Unix time of `2026-01-31T02:40:00Z` (RFC 3339). Raises ValueError."""
    try:
        if _TIME.fullmatch(given):
            return datetime.fromisoformat(given.upper()).timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"need a time with its offset from UTC, such as 2026-01-31T02:40:00Z, got {shown(given)}")


def _time(value: Any) -> str:
    given = text(value)
    if given not in (EARLIEST, LATEST):
        try:
            parse_time(given)
        except ValueError as error:
            raise wrong(f"{error}; or {EARLIEST} or {LATEST}") from None
    return given


class OffsetTarget(StrictModel):
    """The offset that a reset moves to."""

    time: Annotated[str, BeforeValidator(_time)]


class ResetSpecPart(StrictModel):
    """The `spec` of a reset."""

    offset: OffsetTarget
    ref: TargetRef


class ResetOffset(StrictModel):
    """A command that moves the offsets of the object in `spec.ref`."""

    apiVersion: Literal["kafka.eventing.knative.dev/v1alpha1"]
    kind: Literal["ResetOffset"]
    metadata: ObjectMetadata
    spec: ResetSpecPart
    status: Any = None


@dataclass(frozen=True)
class ResetManifest:
    """One `ResetOffset`, and its place in a file."""

    name: str  # namespace/name
    where: str  # file and line
    reset: ResetOffset | None
    problem: str | None = None  # why it is not usable, with file and line; then it does nothing


class SubscriptionSpec(StrictModel):
    """A subscription's channel, which decides topic and group; the rest is unused."""

    channel: ChannelRef
    subscriber: Any = None
    reply: Any = None
    delivery: Any = None


class SubscriptionMetadata(ObjectMetadata):
    """The metadata of a subscription: its uid is in its group's name."""

    uid: Name


class SubscriptionManifest(StrictModel):
    """A `Subscription` of `messaging.knative.dev`."""

    apiVersion: Version
    kind: Literal["Subscription"]
    metadata: SubscriptionMetadata
    spec: SubscriptionSpec
    status: Any = None

"""Knative's `KafkaChannel` manifests: who subscribes to a channel, as `kubectl get kafkachannels -o yaml` prints it.

Only their form is checked here: which keys there are, and that text is text. What a subscriber may ask for is checked
with the dispatcher's options, in `inbound.subscriptions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from inbound.config.document import Places
from inbound.config.units import shown
from inbound.config.values import Part, path_part, text, whole, wrong

KIND = "KafkaChannel"
VERSIONS = ("messaging.knative.dev/v1beta1", "messaging.knative.dev/v1")
#: Where subscribers stand in the object, and where they did in older versions.
SUBSCRIBERS, OLDER_SUBSCRIBERS = "spec.subscribers", "spec.subscribable.subscribers"
#: In the status: where the channel's dead letters go, who may sign that receiver's certificate, whom its token is for.
RESOLVED_SINK = ("deadLetterSinkUri", "deadLetterSinkCACerts", "deadLetterSinkAudience")
#: Annotations that say what Knative's schema has no field for: `inbound.dev/ordering: key`.
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


class Reference(Part):
    """Another object of the cluster."""

    apiVersion: Text | None = None
    group: Text | None = None
    kind: Text
    name: Name
    namespace: Name | None = None
    address: Text | None = None


class Destination(Part):
    """Where events go: an object, or a URI."""

    ref: Reference | None = None
    uri: Text | None = None
    CACerts: Text | None = None
    audience: Text | None = None


class Delivery(Part):
    """What is done about an event that the subscriber does not take. None: not said here."""

    retry: Any = None
    timeout: Any = None
    backoffPolicy: Any = None
    backoffDelay: Any = None
    retryAfterMax: Any = None
    format: Any = None
    deadLetterSink: Destination | None = None


class Subscriber(Part):
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
    delivery: Delivery | None = None
    deadLetterSinkUri: Text | None = None


class Subscribable(Part):
    """Where the subscribers stood in older versions."""

    subscribers: Annotated[tuple[Subscriber, ...], BeforeValidator(_list)] = ()


class Spec(Part):
    """What is asked for."""

    numPartitions: Number | None = None
    replicationFactor: Number | None = None
    retentionDuration: Text | None = None
    delivery: Delivery | None = None
    subscribers: Annotated[tuple[Subscriber, ...], BeforeValidator(_list)] = ()
    subscribable: Subscribable | None = None


class Metadata(Part):
    """Kubernetes' own; most of it is of no use here."""

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


class KafkaChannel(Part):
    """A channel and its subscribers."""

    apiVersion: Literal["messaging.knative.dev/v1beta1", "messaging.knative.dev/v1"]
    kind: Literal["KafkaChannel"]
    metadata: Metadata
    spec: Annotated[Spec, BeforeValidator(_mapping)] = Field(default_factory=Spec)
    status: Any = None


#: Knative's names of what a subscription may say: keys that a variable's name, which has no case, must find.
CAMEL_CASE = (
    *(key for model in (Subscriber, Delivery) for key in model.model_fields if key != key.lower()),
    "CACerts",
    "ceOverrides",
)


@dataclass(frozen=True)
class Manifest:
    """One channel, and where it stands."""

    channel: KafkaChannel
    places: Places
    prefix: str  # dotted path of the object in its document; empty for the whole of it
    #: Subscribers that cannot be used, as they are written, by their path in the object: `channel` is without them.
    left_out: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Namespace and name, as Knative's topics are named."""
        return f"{self.channel.metadata.namespace}.{self.channel.metadata.name}"

    @property
    def subscribers(self) -> list[tuple[str, Subscriber]]:
        """The subscribers that can be used as far as their form goes, each with its dotted path."""
        spec = self.channel.spec
        older = spec.subscribable.subscribers if spec.subscribable is not None else ()
        return [*self._placed(SUBSCRIBERS, spec.subscribers), *self._placed(OLDER_SUBSCRIBERS, older)]

    @property
    def resolved_sink(self) -> dict[str, str]:
        """What the cluster says of the channel's own `deadLetterSink`, under its names; empty: not where it listens."""
        status = self.channel.status if isinstance(self.channel.status, Mapping) else {}
        found = {key: status[key] for key in RESOLVED_SINK if isinstance(status.get(key), str)}
        return found if RESOLVED_SINK[0] in found else {}

    def at(self, path: str) -> str:
        """Return the dotted path in the document of what has `path` in the object."""
        return f"{self.prefix}.{path}" if self.prefix else path

    def annotations(self) -> dict[str, Any]:
        """Return the annotations that are meant for inbound, without what they begin with."""
        found = self.channel.metadata.annotations.items()
        return {key.removeprefix(ANNOTATION): value for key, value in found if key.startswith(ANNOTATION)}

    def _placed(self, path: str, subscribers: tuple[Subscriber, ...]) -> Iterator[tuple[str, Subscriber]]:
        written = (f"{path}[{i}]" for i in count())
        good = (one for one in written if one not in self.left_out)
        return ((self.at(where), subscriber) for where, subscriber in zip(good, subscribers, strict=False))

"""RefMappers find the topic and group that a reset names.

Any callable that takes `Known` and returns a RefMapper can be configured. One for a Knative installation that names its
topics and groups in its own way, and keeps the rest:

    def mapper(known: Known) -> RefMapper:
        return subscription_ref_mapper(
            topic_name=lambda channel: f"knative-{channel.metadata.namespace}-{channel.metadata.name}",
            group_id=lambda subscription: f"sub-{subscription.uid}",
        )(known)

Nothing here waits or reads files; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

from inbound.config.manifest_models import KIND as KAFKA_CHANNEL
from inbound.config.manifest_models import SUBSCRIPTION, KafkaChannel
from inbound.controller.reset_offset.model import Ref, RefInfo, RefMapper
from inbound.coordinators.rights import named
from inbound.errors import UnknownRefError
from inbound.runtime.patterns import chooser

T = TypeVar("T")

#: Kinds of references: channels and subscriptions of the configuration, and Knative's.
CHANNEL = "Channel"
#: A reference to Knative's objects has a version that begins so; one to the configuration's objects has none.
KNATIVE = "messaging.knative.dev/"
#: Names given in one message.
NAMED = 12


@dataclass(frozen=True, kw_only=True)
class ReadChannel:
    """A channel of the configuration, with the topics that its group reads."""

    name: str
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    uid: str | None = None  # of the subscription that it serves; None: it serves none


@dataclass(frozen=True, kw_only=True)
class KnativeSubscription:
    """A Subscription of a KafkaChannel."""

    namespace: str
    name: str
    uid: str
    channel: str  # its name; it is in the same namespace


@dataclass(frozen=True, kw_only=True)
class UnusableManifest:
    """A manifest that cannot be used: its objects are not known."""

    namespace: str | None  # None: not known, nor is its name
    name: str | None
    problem: str  # a line for each, with file and line


@dataclass(frozen=True, kw_only=True)
class Known:
    """The objects that a reset can name."""

    channels: tuple[ReadChannel, ...] = ()
    kafka_channels: tuple[KafkaChannel, ...] = ()
    subscriptions: tuple[KnativeSubscription, ...] = ()
    #: How the configuration names topic and group: `manifests.topic` and `manifests.group`.
    topic_pattern: str = "{namespace}.{name}"
    group_pattern: str = "kafka.{uid}"
    #: `reset.options`, for a configured mapper.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: An unknown reference may be to an object in one of these.
    unusable: tuple[UnusableManifest, ...] = ()

    def topic_of(self, channel: KafkaChannel) -> str:
        """Return the topic of a KafkaChannel, as `manifests.topic` names it."""
        return self.topic_pattern.format(namespace=channel.metadata.namespace, name=channel.metadata.name)

    def group_of(self, one: KnativeSubscription) -> str:
        """Return the group of a subscription, as `manifests.group` names it."""
        return self.group_pattern.format(namespace=one.namespace, name=one.channel, uid=one.uid)

    def maybe_in(self, namespace: str | None) -> str:
        """Return a refusal's hint at unusable manifests of a namespace (None: any)."""
        found = [one for one in self.unusable if namespace is None or one.namespace in (None, namespace)]
        if not found:
            return ""
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        first = found[0].problem.partition("\n")[0]
        return f"; it may be in a manifest that cannot be used{more}, which has to be mended first: {first}"


class RefMapperFactory(Protocol):
    """Makes a RefMapper of the known objects, again after each reload."""

    def __call__(self, known: Known) -> RefMapper: ...


TopicNameMapper = Callable[[KafkaChannel], str]
GroupIdMapper = Callable[[KnativeSubscription], str]
ConnectionPoolKeyMapper = Callable[[KafkaChannel], str]
DataPlaneNamespaceMapper = Callable[[KafkaChannel], str]
DataPlaneLabelsMapper = Callable[[KafkaChannel], Mapping[str, str]]


def subscription_ref_mapper(
    *,
    topic_name: TopicNameMapper | None = None,
    group_id: GroupIdMapper | None = None,
    connection_pool_key: ConnectionPoolKeyMapper = lambda channel: "",
    data_plane_namespace: DataPlaneNamespaceMapper = lambda channel: "",
    data_plane_labels: DataPlaneLabelsMapper = lambda channel: {},
) -> RefMapperFactory:
    """Return a factory of mappers for Subscriptions of KafkaChannels (Knative).

    Each argument names its part; None: as `manifests.topic` and `manifests.group` of the configuration say.
    """

    def make(known: Known) -> RefMapper:
        return SubscriptionRefMapper(
            known, topic_name or known.topic_of, group_id or known.group_of,
            connection_pool_key, data_plane_namespace, data_plane_labels,
        )  # fmt: skip

    return make


class SubscriptionRefMapper:
    """Finds topic and group of a Knative Subscription and its KafkaChannel."""

    def __init__(
        self,
        known: Known,
        topic_name: TopicNameMapper,
        group_id: GroupIdMapper,
        connection_pool_key: ConnectionPoolKeyMapper,
        data_plane_namespace: DataPlaneNamespaceMapper,
        data_plane_labels: DataPlaneLabelsMapper,
    ) -> None:
        self._known = known
        self._subscriptions = {f"{one.namespace}/{one.name}": one for one in known.subscriptions}
        self._channels = _by_name(known.kafka_channels)
        self._topic_name = topic_name
        self._group_id = group_id
        self._connection_pool_key = connection_pool_key
        self._data_plane_namespace = data_plane_namespace
        self._data_plane_labels = data_plane_labels

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group of a Subscription, in namespace `default` without one.

        Raises:
            UnknownRefError: `ref` is of another kind, there is no such Subscription, or its channel is not known.
        """
        if ref.kind != SUBSCRIPTION or not (ref.api_version or KNATIVE).startswith(KNATIVE):
            raise UnknownRefError(f"{ref}: need a {SUBSCRIPTION} of {KNATIVE.rstrip('/')}")
        namespace = ref.namespace or "default"
        maybe = self._known.maybe_in(namespace)
        subscription = _found(
            f"{namespace}/{ref.name}", self._subscriptions, "Subscription of the manifests", f"{ref}: ", maybe
        )
        channel = _found(
            f"{namespace}/{subscription.channel}", self._channels, "KafkaChannel of the manifests",
            f"{ref}: its channel: ", maybe,
        )  # fmt: skip
        return RefInfo(
            topic=self._topic_name(channel),
            group=self._group_id(subscription),
            connection_pool_key=self._connection_pool_key(channel),
            data_plane_namespace=self._data_plane_namespace(channel),
            data_plane_labels=dict(self._data_plane_labels(channel)),
        )


class ChannelRefMapper:
    """Finds channels and subscriptions of the configuration.

    `Channel orders` is the channel of that name; if it reads several topics, `Channel orders/payments` names one.
    `Subscription 5c3f…` is the subscription of that uid, or the one whose channel has that name.
    """

    def __init__(self, channels: Iterable[ReadChannel], maybe: str = "") -> None:
        """`maybe` is added to the refusal of an unknown reference."""
        self._maybe = maybe
        self._channels = {channel.name: channel for channel in channels}
        served = [channel for channel in self._channels.values() if channel.uid is not None]
        #: By uid, and by channel name, unless that is another one's uid.
        self._subscriptions = {channel.uid or "": channel for channel in served}
        self._subscriptions |= {one.name: one for one in served if one.name not in self._subscriptions}

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group of a channel or subscription.

        Raises:
            UnknownRefError: there is none; or it reads several topics, and the reference names none of them.
        """
        if ref.kind not in (CHANNEL, SUBSCRIPTION):
            raise UnknownRefError(f"{ref}: need a {CHANNEL} or {SUBSCRIPTION} of the configuration")
        name, slash, topic = ref.name.partition("/")
        there_are = self._channels if ref.kind == CHANNEL else self._subscriptions
        channel = _found(name, there_are, f"{ref.kind.lower()} of this configuration", f"{ref}: ", self._maybe)
        return RefInfo(topic=_one_topic(ref, channel, topic if slash else None), group=channel.group)


class ReadyRefMapper:
    """The default mapper: Knative's Subscriptions, and names of the configuration."""

    def __init__(self, known: Known) -> None:
        self._knative = subscription_ref_mapper()(known)
        self._own = ChannelRefMapper(known.channels, known.maybe_in(None))
        self._known = known

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group.

        A reference with a version of Knative's, or with a namespace, is to Knative's objects; a KafkaChannel stands for
        its only subscription.

        Raises:
            UnknownRefError: there is no such thing; the message says what there is.
        """
        knative = (ref.api_version or "").startswith(KNATIVE) or ref.namespace is not None
        if ref.kind == KAFKA_CHANNEL:
            return self._knative.map(self._only_subscription(ref))
        if ref.kind == SUBSCRIPTION and knative:
            return self._knative.map(ref)
        if ref.kind in (CHANNEL, SUBSCRIPTION) and not knative:
            return self._own.map(ref)
        raise UnknownRefError(
            f"{ref}: only a {CHANNEL} or {SUBSCRIPTION} of the configuration, and a {SUBSCRIPTION} or {KAFKA_CHANNEL} of the "
            "manifests can be named; name one of those, or give topic and group"
        )

    def _only_subscription(self, ref: Ref) -> Ref:
        namespace = ref.namespace or "default"
        _found(
            f"{namespace}/{ref.name}", _by_name(self._known.kafka_channels), "KafkaChannel of the manifests",
            f"{ref}: ", self._known.maybe_in(namespace),
        )  # fmt: skip
        found = [s.name for s in self._known.subscriptions if (s.namespace, s.channel) == (namespace, ref.name)]
        if len(found) != 1:
            raise UnknownRefError(
                f"{ref}: has {named(found, NAMED) or 'no subscriptions that have a name'}; each is a group of its own: name a "
                f"{SUBSCRIPTION}"
            )
        return Ref(kind=SUBSCRIPTION, name=found[0], namespace=namespace)


def unknown(name: str, there_are: Sequence[str], what: str) -> str:
    """Return `no channel 'oders'; did you mean orders? There are: orders, payments`."""
    names = list(dict.fromkeys(there_are))
    near = get_close_matches(name, names, n=1)
    hint = f" did you mean {near[0]}?" if near else ""
    there = f"there are: {named(names, NAMED)}" if names else "there is none at all"
    return f"no {what} is called {name!r};{hint} {there}"


def _found(name: str, there_are: Mapping[str, T], what: str, before: str, after: str) -> T:
    """Return the named object; UnknownRefError, with `before` and `after`, if none."""
    if name not in there_are:
        raise UnknownRefError(f"{before}{unknown(name, list(there_are), what)}{after}")
    return there_are[name]


def _by_name(channels: Iterable[KafkaChannel]) -> dict[str, KafkaChannel]:
    return {f"{one.metadata.namespace}/{one.metadata.name}": one for one in channels}


def _one_topic(ref: Ref, channel: ReadChannel, wanted: str | None) -> str:
    if wanted is not None:
        if chooser(channel.topics, channel.pattern)(wanted):
            return wanted
        reads = f"the topics that match {channel.pattern}" if channel.pattern else named(channel.topics, NAMED)
        raise UnknownRefError(f"{ref}: channel {channel.name} does not read topic {wanted}; it reads {reads}")
    if channel.pattern is not None:
        raise UnknownRefError(
            f"{ref}: channel {channel.name} reads all topics that match {channel.pattern}; name one: {channel.name}/TOPIC"
        )
    if len(channel.topics) != 1:
        raise UnknownRefError(
            f"{ref}: channel {channel.name} reads {named(channel.topics, NAMED)}; name one: {channel.name}/{channel.topics[0]}"
        )
    return channel.topics[0]

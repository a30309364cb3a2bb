"""From what a reset names to topic and group: the ready RefMappers, and what others are made of.

A RefMapper of one's own is any callable that is given `Known` and returns a RefMapper. One for a Knative installation that
names its topics and groups in its own way, with the ready rest:

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
from typing import Any, Protocol

from inbound.config.kafka_channel import KIND as KAFKA_CHANNEL
from inbound.config.kafka_channel import KafkaChannel
from inbound.config.reset_offset import SUBSCRIPTION
from inbound.controller.reset_offset.model import Ref, RefInfo, RefMapper
from inbound.errors import UnknownRefError
from inbound.topic_names import chooser

#: Kinds of references: channels and subscriptions of the configuration, and Knative's.
CHANNEL = "Channel"
#: What refers to Knative's objects has a version that begins so; what refers to the configuration's has none.
KNATIVE = "messaging.knative.dev/"
#: So many names are given in a message.
NAMED = 12


@dataclass(frozen=True, kw_only=True)
class ReadChannel:
    """A channel of the configuration, as it runs: which topics its group reads."""

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
    """A manifest that cannot be used at the moment, so what it names is not known."""

    namespace: str | None  # None: not known, nor is its name
    name: str | None
    problem: str  # a line for each, with file and line


@dataclass(frozen=True, kw_only=True)
class Known:
    """What there is that a reset can name."""

    channels: tuple[ReadChannel, ...] = ()
    kafka_channels: tuple[KafkaChannel, ...] = ()
    subscriptions: tuple[KnativeSubscription, ...] = ()
    #: How the configuration names topic and group: `manifests.topic` and `manifests.group`.
    topic_pattern: str = "{namespace}.{name}"
    group_pattern: str = "kafka.{uid}"
    #: `reset.options`: what a mapper of one's own is given.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: What else there would be: a reference that is not known may be to something in these.
    unusable: tuple[UnusableManifest, ...] = ()

    def maybe_in(self, namespace: str | None) -> str:
        """Return what to add to the refusal of a reference: manifests of the namespace that cannot be used; None: of any."""
        found = [one for one in self.unusable if namespace is None or one.namespace in (None, namespace)]
        if not found:
            return ""
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        first = found[0].problem.partition("\n")[0]
        return f"; it may be in a manifest that cannot be used{more}, which has to be mended first: {first}"


class RefMapperFactory(Protocol):
    """Makes a RefMapper of what there is; called anew when the configuration changes."""

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
    """Return what makes a mapper for Knative Subscriptions of KafkaChannels, with names of one's own.

    None: as `manifests.topic` and `manifests.group` of the configuration say.
    """

    def make(known: Known) -> RefMapper:
        return SubscriptionRefMapper(
            known,
            topic_name or _topic_of(known),
            group_id or _group_of(known),
            connection_pool_key,
            data_plane_namespace,
            data_plane_labels,
        )

    return make


class SubscriptionRefMapper:
    """Finds a Knative Subscription (`messaging.knative.dev`), its KafkaChannel, and from these topic and group."""

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
        self._subscriptions = {(one.namespace, one.name): one for one in known.subscriptions}
        self._channels = {(one.metadata.namespace, one.metadata.name): one for one in known.kafka_channels}
        self._topic_name = topic_name
        self._group_id = group_id
        self._connection_pool_key = connection_pool_key
        self._data_plane_namespace = data_plane_namespace
        self._data_plane_labels = data_plane_labels

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group of a Subscription; its namespace is `default` where none is given.

        Raises:
            UnknownRefError: `ref` is of another kind, there is no such Subscription, or its channel is not known.
        """
        if ref.kind != SUBSCRIPTION or not (ref.api_version or KNATIVE).startswith(KNATIVE):
            raise UnknownRefError(f"{ref}: need a {SUBSCRIPTION} of {KNATIVE.rstrip('/')}")
        key = (ref.namespace or "default", ref.name)
        subscription = self._subscriptions.get(key)
        if subscription is None:
            names = [f"{namespace}/{name}" for namespace, name in self._subscriptions]
            told = unknown("/".join(key), names, "Subscription of the manifests")
            raise UnknownRefError(f"{ref}: {told}{self._known.maybe_in(key[0])}")
        channel = self._channels.get((subscription.namespace, subscription.channel))
        if channel is None:
            names = [f"{namespace}/{name}" for namespace, name in self._channels]
            wanted = f"{subscription.namespace}/{subscription.channel}"
            told = unknown(wanted, names, "KafkaChannel of the manifests")
            raise UnknownRefError(f"{ref}: its channel: {told}{self._known.maybe_in(subscription.namespace)}")
        return RefInfo(
            topic=self._topic_name(channel),
            group=self._group_id(subscription),
            connection_pool_key=self._connection_pool_key(channel),
            data_plane_namespace=self._data_plane_namespace(channel),
            data_plane_labels=dict(self._data_plane_labels(channel)),
        )


class ChannelRefMapper:
    """Finds channels and subscriptions of the configuration.

    `Channel orders` is the channel of that name; where it reads several topics, `Channel orders/payments` says which one.
    `Subscription 5c3f…` is the subscription of that uid, or the one whose channel has that name.
    """

    def __init__(self, channels: Iterable[ReadChannel], maybe: str = "") -> None:
        """`maybe` is added to the refusal of what is not known."""
        self._maybe = maybe
        self._channels = {channel.name: channel for channel in channels}
        self._by_uid = {channel.uid: channel for channel in self._channels.values() if channel.uid is not None}

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group of a channel or subscription.

        Raises:
            UnknownRefError: there is none, or it reads several topics and none is named, or another one.
        """
        if ref.kind not in (CHANNEL, SUBSCRIPTION):
            raise UnknownRefError(f"{ref}: need a {CHANNEL} or {SUBSCRIPTION} of the configuration")
        name, slash, topic = ref.name.partition("/")
        if ref.kind == CHANNEL:
            channel = self._channels.get(name)
            if channel is None:
                told = unknown(name, list(self._channels), "channel of this configuration")
                raise UnknownRefError(f"{ref}: {told}{self._maybe}")
        else:
            served = [one for one in self._channels.values() if one.uid is not None]
            channel = self._by_uid.get(name) or next((one for one in served if one.name == name), None)
            if channel is None:
                names = [*self._by_uid, *(one.name for one in served if one.name not in self._by_uid)]
                raise UnknownRefError(
                    f"{ref}: {unknown(name, names, 'subscription of this configuration')}{self._maybe}"
                )
        return RefInfo(topic=_one_topic(ref, channel, topic if slash else None), group=channel.group)


class ReadyRefMapper:
    """The mapper that is used where no other is configured: Knative's Subscriptions, and all that the configuration names."""

    def __init__(self, known: Known) -> None:
        self._knative = subscription_ref_mapper()(known)
        self._own = ChannelRefMapper(known.channels, known.maybe_in(None))
        self._known = known

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group.

        A reference with a version of Knative's, or with a namespace, is to Knative's objects; a KafkaChannel stands for its
        subscription, if it has one only.

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
        names = [f"{one.metadata.namespace}/{one.metadata.name}" for one in self._known.kafka_channels]
        if f"{namespace}/{ref.name}" not in names:
            told = unknown(f"{namespace}/{ref.name}", names, "KafkaChannel of the manifests")
            raise UnknownRefError(f"{ref}: {told}{self._known.maybe_in(namespace)}")
        found = [s.name for s in self._known.subscriptions if (s.namespace, s.channel) == (namespace, ref.name)]
        if len(found) != 1:
            raise UnknownRefError(
                f"{ref}: has {_list(found) or 'no subscriptions that have a name'}; each is a group of its own: name a "
                f"{SUBSCRIPTION}"
            )
        return Ref(kind=SUBSCRIPTION, name=found[0], namespace=namespace)


def unknown(name: str, there_are: Sequence[str], what: str) -> str:
    """Return `no channel 'oders'; did you mean orders? There are: orders, payments`."""
    names = list(dict.fromkeys(there_are))
    near = get_close_matches(name, names, n=1)
    hint = f" did you mean {near[0]}?" if near else ""
    there = f"there are: {_list(names)}" if names else "there is none at all"
    return f"no {what} is called {name!r};{hint} {there}"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _one_topic(ref: Ref, channel: ReadChannel, wanted: str | None) -> str:
    if wanted is not None:
        if chooser(channel.topics, channel.pattern)(wanted):
            return wanted
        reads = f"the topics that match {channel.pattern}" if channel.pattern else _list(channel.topics)
        raise UnknownRefError(f"{ref}: channel {channel.name} does not read topic {wanted}; it reads {reads}")
    if channel.pattern is not None:
        raise UnknownRefError(
            f"{ref}: channel {channel.name} reads all topics that match {channel.pattern}; name one: {channel.name}/TOPIC"
        )
    if len(channel.topics) != 1:
        raise UnknownRefError(
            f"{ref}: channel {channel.name} reads {_list(channel.topics)}; name one: {channel.name}/{channel.topics[0]}"
        )
    return channel.topics[0]


def _topic_of(known: Known) -> TopicNameMapper:
    return lambda channel: known.topic_pattern.format(namespace=channel.metadata.namespace, name=channel.metadata.name)


def _group_of(known: Known) -> GroupIdMapper:
    return lambda one: known.group_pattern.format(namespace=one.namespace, name=one.channel, uid=one.uid)

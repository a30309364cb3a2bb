"""Each subscription is a channel of its own, with the dispatcher."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from pydantic import Field, ValidationError

from inbound.config import ChannelConfig, ChannelManifest, Loaded, ManifestOrigin, RefusedManifest, validation_problems
from inbound.config.channel_models import DISPATCH
from inbound.config.manifest_models import Subscriber
from inbound.config.values import WRITTEN, PathPart, whole
from inbound.errors import ConfigError
from inbound.plan.destinations import posted_to
from inbound.plan.manifest_options import Given, check_defaults, dispatch_options, options_given
from inbound.processors.dispatch.options import DispatchOptions

_ITS_OWN = "each subscription needs its own, for a group shares its events out"


class SubscriptionOptions(DispatchOptions):
    """A subscriber under `subscriptions` has the dispatcher's options and an identity."""

    uid: PathPart | None = Field(default=None, description="its name in the status; default: channel.subscription")
    generation: Annotated[int, whole(0)] | None = Field(
        default=None,
        description="counts up with each edit: ready when all members run it; without, they compare the options",
    )
    group: PathPart | None = Field(default=None, description="default: the channel's group.subscription")


@dataclass(frozen=True)
class SubscriberRef:
    """A version of a subscriber."""

    uid: str
    generation: int | None
    digest: str  # of the options: members compare it where no generation is given


@dataclass(frozen=True)
class Subscription:
    """One subscriber as a channel of its own."""

    name: str  # of the channel
    config: ChannelConfig
    options: DispatchOptions
    ref: SubscriberRef
    where: str  # `inbound.yaml:12`
    settings: str  # dotted path of the channel's settings in the configuration
    manifest: ManifestOrigin | None = None  # None: the configuration itself names it


@dataclass(frozen=True)
class Subscriptions:
    """The subscriptions by channel name, and the manifests that cannot be used."""

    found: dict[str, Subscription]  # by the name of the channel
    refused: tuple[RefusedManifest, ...]


def read_subscriptions(loaded: Loaded) -> Subscriptions:
    """Return every subscription; connects to nothing.

    A manifest that cannot be used stops alone. Subscribers of manifests that share a name or a group are all refused: which of
    them is meant is unknown. The configuration itself takes precedence over manifests.

    Raises:
        ConfigError: the configuration itself cannot be used; a line for each problem, with its place in the file.
    """
    problems: list[str] = []
    plain = plain_channels(loaded)
    names = set(plain)
    groups = {channel.group: f"channel {name}" for name, channel in plain.items()}
    found: dict[str, Subscription] = {}
    for made in _from_channels(loaded, problems):
        if (problem := _taken(made, names, groups)) is not None:
            problems.append(problem)
            continue
        found[made.name] = made
        names.add(made.name)
        groups[made.config.group] = f"subscription {made.name}"
    if problems:
        raise ConfigError("\n".join(problems))
    check_defaults(loaded)
    refused = list(loaded.refused)
    for origin, made in _alone(list(_from_manifests(loaded, refused)), refused):
        if (problem := _taken(made, names, groups)) is not None:
            refused.append(origin.refused(problem))
        else:
            found[made.name] = made
    return Subscriptions(found, tuple(refused))


def _taken(made: Subscription, names: Collection[str], groups: Mapping[str, str]) -> str | None:
    name, group = made.name, made.config.group
    if name in names:
        return f"{made.where}: another channel is called {name} already; rename one of the two"
    if group in groups:
        return f"{made.where}: {groups[group]} has group {group!r} already; {_ITS_OWN}"
    if (problem := sink_problem(made.config, made.options)) is not None:
        return f"{made.where}: subscription {name}: {problem}"
    return None


def sink_problem(channel: ChannelConfig, options: object) -> str | None:
    """Return the problem of a dead letter sink that its channel reads."""
    sink = options.delivery.deadLetterSink if isinstance(options, DispatchOptions) else None
    problem = channel.circle(sink.topic) if sink is not None and sink.topic is not None else None
    return None if problem is None else f"delivery.deadLetterSink: {problem}"


def plain_channels(loaded: Loaded) -> dict[str, ChannelConfig]:
    """Return the channels that have a processor of their own."""
    return {
        name: with_topics(channel, _retry_topics(channel))
        for name, channel in loaded.config.channels.items()
        if not channel.subscriptions
    }


def _retry_topics(channel: ChannelConfig) -> tuple[str, ...]:
    """Return the topics of a plain dispatcher's delayed retries.

    There is none if its options are wrong.
    """
    if channel.processor.type != DISPATCH.type:
        return ()
    try:
        return DispatchOptions.model_validate(channel.processor.options, context=WRITTEN).retry_topics
    except ValidationError:  # said where the channel is planned
        return ()


def with_topics(channel: ChannelConfig, topics: Iterable[str]) -> ChannelConfig:
    """Return the channel, reading `topics` too, unless it reads by a pattern."""
    more = [topic for topic in topics if topic not in channel.topics]
    if not more or channel.topics_pattern is not None:
        return channel
    return channel.model_copy(update={"topics": (*channel.topics, *more)})


def channels_of(loaded: Loaded) -> dict[str, ChannelConfig]:
    """Return all channels that run; each subscription is one.

    Raises:
        ConfigError: as `read_subscriptions`.
    """
    found = read_subscriptions(loaded).found
    return {**plain_channels(loaded), **{name: made.config for name, made in found.items()}}


# -- of the configuration itself -------------------------------------------------------------------------------------


def _from_channels(loaded: Loaded, problems: list[str]) -> Iterator[Subscription]:
    for name, channel in loaded.config.channels.items():
        for short, given in channel.subscriptions.items():
            where = f"channels.{name}.subscriptions.{short}"
            try:
                options = loaded.validate(SubscriptionOptions, where, given)
            except ConfigError as error:
                problems.append(str(error))
                continue
            values = {key: getattr(options, key) for key in DispatchOptions.model_fields}
            dispatch = DispatchOptions.model_construct(options.model_fields_set & values.keys(), **values)
            reads = with_topics(channel, dispatch.retry_topics)
            config = reads.model_copy(
                update={"subscriptions": {}, "group": options.group or f"{channel.group}.{short}"}
            )
            ref = _ref(options.uid or f"{name}.{short}", options.generation, dispatch)
            yield Subscription(f"{name}.{short}", config, dispatch, ref, loaded.locate(where), f"channels.{name}")


def _ref(uid: str, generation: int | None, options: DispatchOptions) -> SubscriberRef:
    return SubscriberRef(uid, generation, f"{zlib.crc32(options.model_dump_json().encode()):08x}")


# -- of Knative's manifests ------------------------------------------------------------------------------------------


#: The subscriber's place in the manifests, and its channel.
_Read: TypeAlias = tuple[ManifestOrigin, Subscription]


def _from_manifests(loaded: Loaded, refused: list[RefusedManifest]) -> Iterator[_Read]:
    names = {manifest.name: manifest.channel.metadata for manifest in loaded.manifests}
    topics = {name: _topic(loaded, metadata.namespace, metadata.name) for name, metadata in names.items()}
    for one in loaded.refused:  # its topic is known, and stays a possible dead letter sink
        if one.channel is not None and one.namespace and one.name:
            topics.setdefault(one.channel, _topic(loaded, one.namespace, one.name))
    for manifest in loaded.manifests:
        try:
            shared = options_given(manifest, manifest.at("spec.delivery"), manifest.channel.spec.delivery)
        except ConfigError as error:
            whole = _origin(manifest, manifest.at("metadata.name"), "")
            refused.append(replace(whole.refused(str(error)), path=None, uid=None))
            continue
        for path, subscriber in manifest.subscribers:
            origin = _origin(manifest, path, subscriber.uid)
            try:
                made = _from_manifest(loaded, manifest, path, posted_to(subscriber), topics, shared)
            except ConfigError as error:
                problem = str(error)
                if subscriber.subscriberUri is None:  # the manifest has a reply alone
                    problem = problem.replace(f"{path}.subscriber", f"{path}.reply")
                refused.append(origin.refused(problem))
            else:
                yield origin, replace(made, manifest=origin)


def _alone(read: list[_Read], refused: list[RefusedManifest]) -> Iterator[_Read]:
    """Yield the subscriptions whose name and group are unique; refuse the others."""
    names, groups = defaultdict[str, list[Subscription]](list), defaultdict[str, list[Subscription]](list)
    for _, made in read:
        names[made.name].append(made)
        groups[made.config.group].append(made)
    for origin, made in read:
        twin, sharer = _other(names[made.name], made), _other(groups[made.config.group], made)
        if twin is not None:
            problem = f"subscriber {made.name} is given twice, also in {twin.where}; keep one"
        elif sharer is not None:
            problem = f"subscription {sharer.name} ({sharer.where}) has group {made.config.group!r}, too; {_ITS_OWN}"
        else:
            yield origin, made
            continue
        refused.append(origin.refused(f"{made.where}: {origin.path}: {problem}"))


def _other(of_one_name: list[Subscription], made: Subscription) -> Subscription | None:
    return next((other for other in of_one_name[:2] if other is not made), None)


def _origin(manifest: ChannelManifest, path: str, uid: str) -> ManifestOrigin:
    metadata, places = manifest.channel.metadata, manifest.places
    return ManifestOrigin(places.filename, places.locate(path), metadata.namespace, metadata.name, path, uid)


def _topic(loaded: Loaded, namespace: str, name: str) -> str:
    return loaded.config.manifests.topic.format(namespace=namespace, name=name)


def _from_manifest(
    loaded: Loaded,
    manifest: ChannelManifest,
    path: str,
    subscriber: Subscriber,
    topics: Mapping[str, str],
    shared: Given,
) -> Subscription:
    metadata, places = manifest.channel.metadata, manifest.places
    config = loaded.config.manifests
    where = places.locate(path)
    if subscriber.subscriberUri is None:
        raise ConfigError(
            f"{where}: {path}: needs a subscriberUri, or a replyUri, which events themselves are posted to"
        )
    options = dispatch_options(loaded, manifest, path, subscriber, topics, shared)
    group = config.group.format(namespace=metadata.namespace, name=metadata.name, uid=subscriber.uid)
    settings = {key: getattr(config.settings, key) for key in config.settings.model_fields_set | {"workers"}}
    try:
        channel = ChannelConfig.model_validate(
            {
                **settings,
                "topics": [*dict.fromkeys((topics[manifest.name], *options.retry_topics))],
                "group": group,
                "processor": {"type": "dispatch"},
            }
        )
    except ValidationError as error:
        lines = validation_problems(error, path, lambda _: where, model=ChannelConfig)
        raise ConfigError("\n".join(lines)) from None
    ref = _ref(subscriber.uid, subscriber.generation, options)
    return Subscription(f"{manifest.name}.{subscriber.uid}", channel, options, ref, where, "manifests.settings")

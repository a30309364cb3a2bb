"""Subscriptions: each subscriber as a channel of its own."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

from pydantic import Field, ValidationError

from inbound.config import ChannelConfig, ChannelManifest, Loaded, ManifestOrigin, RefusedManifest, validation_problems
from inbound.config.channel_models import DISPATCH
from inbound.config.document import resolve
from inbound.config.http_values import AUDIENCE
from inbound.config.loader import validated
from inbound.config.manifest_models import ANNOTATION, KnativeDelivery, Subscriber
from inbound.config.values import WRITTEN, PathPart, whole
from inbound.errors import ConfigError
from inbound.plan.destinations import dead_letter_sink, posted_to
from inbound.processors.dispatch.options import DeliverySpec, DispatchOptions

_ITS_OWN = "each subscription needs its own, for a group shares its events out"
#: What an annotation may say, of all subscribers of a channel (`inbound.dev/ordering`) or of one (`inbound.dev/ordering.<uid>`).
#: No option that names a file: the right to write a manifest is no right to have files read.
ANNOTATIONS = (
    "batch",
    "connect_timeout",
    "connections",
    "filters",
    "limits",
    "max_in_flight",
    "mode",
    "on_undecodable",
    "ordering",
)
#: What else of a subscriber goes to the dispatcher under the same name; audiences where the options say where their tokens are.
_CERTIFICATES, _AUDIENCES = ("subscriberCACerts", "replyCACerts"), ("subscriberAudience", "replyAudience")
_FORMATS = {"json": "structured", "binary": "binary"}


class SubscriptionOptions(DispatchOptions):
    """A subscriber under `subscriptions`: what the dispatcher takes, and whose subscription it is."""

    uid: PathPart | None = Field(default=None, description="its name in the status; default: channel.subscription")
    generation: Annotated[int, whole(0)] | None = Field(
        default=None,
        description="counts up with each edit: ready when all members run it; without, they compare the options",
    )
    group: PathPart | None = Field(default=None, description="default: the channel's group.subscription")


@dataclass(frozen=True)
class SubscriberRef:
    """Which subscriber, in which of its versions."""

    uid: str
    generation: int | None
    digest: str  # of the options: what members compare where no generation is given


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

    What of the manifests cannot be used stops alone. Of subscribers of manifests that share a name or a group none counts: which
    of them is meant is unknown. What the configuration itself says goes before them.

    Raises:
        ConfigError: what the configuration itself says cannot be used: a line for each problem, with its place in the file.
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
    _check_defaults(loaded)
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
    """Return why a dispatcher's events cannot go to its dead letter sink: its channel reads it. None: they can."""
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
    """Return the topics in which events of a plain channel wait to be dispatched again; none where its options are wrong."""
    if channel.processor.type != DISPATCH.type:
        return ()
    try:
        return DispatchOptions.model_validate(channel.processor.options, context=WRITTEN).retry_topics
    except ValidationError:  # said where the channel is planned
        return ()


def with_topics(channel: ChannelConfig, topics: Iterable[str]) -> ChannelConfig:
    """Return a channel that reads these topics too; one that reads by a pattern stays as it is."""
    more = [topic for topic in topics if topic not in channel.topics]
    if not more or channel.topics_pattern is not None:
        return channel
    return channel.model_copy(update={"topics": (*channel.topics, *more)})


def channels_of(loaded: Loaded) -> dict[str, ChannelConfig]:
    """Return all channels as they run: each subscription is one.

    Raises:
        ConfigError: as `read_subscriptions`.
    """
    found = read_subscriptions(loaded).found
    return {**plain_channels(loaded), **{name: made.config for name, made in found.items()}}


# -- the configuration's own -----------------------------------------------------------------------------------------


def _from_channels(loaded: Loaded, problems: list[str]) -> Iterator[Subscription]:
    for name, channel in loaded.config.channels.items():
        for short, given in channel.subscriptions.items():
            where = f"channels.{name}.subscriptions.{short}"
            try:
                options = loaded.validate(SubscriptionOptions, where, given)
            except ConfigError as error:
                problems.append(str(error))
                continue
            dispatch = _dispatch_options(options)
            reads = with_topics(channel, dispatch.retry_topics)
            values = reads.model_copy(
                update={"subscriptions": {}, "group": options.group or f"{channel.group}.{short}"}
            )
            ref = _ref(options.uid or f"{name}.{short}", options.generation, dispatch)
            yield Subscription(f"{name}.{short}", values, dispatch, ref, loaded.locate(where), f"channels.{name}")


def _dispatch_options(options: SubscriptionOptions) -> DispatchOptions:
    values = {key: getattr(options, key) for key in DispatchOptions.model_fields}
    return DispatchOptions.model_construct(options.model_fields_set & values.keys(), **values)


def _ref(uid: str, generation: int | None, options: DispatchOptions) -> SubscriberRef:
    return SubscriberRef(uid, generation, f"{zlib.crc32(options.model_dump_json().encode()):08x}")


# -- Knative's -------------------------------------------------------------------------------------------------------


#: Where a subscriber stands in the manifests, and its channel.
_Read: TypeAlias = tuple[ManifestOrigin, Subscription]


@dataclass(frozen=True)
class _Shared:
    """What a channel says for all of its subscribers."""

    options: Mapping[str, Any]  # those that annotations give
    delivery: Mapping[str, Any]  # without a sink


def _check_defaults(loaded: Loaded) -> None:
    """Raise ConfigError if what the configuration says for the subscribers of all manifests cannot be used."""
    options = dict(loaded.config.manifests.options)
    if isinstance(options.get("delivery"), dict):
        options["delivery"] = {key: value for key, value in options["delivery"].items() if key != "format"}
    loaded.validate(DispatchOptions, "manifests.options", {**options, "subscriberUri": "http://localhost"})


def _from_manifests(loaded: Loaded, refused: list[RefusedManifest]) -> Iterator[_Read]:
    names = {manifest.name: manifest.channel.metadata for manifest in loaded.manifests}
    topics = {name: _topic(loaded, metadata.namespace, metadata.name) for name, metadata in names.items()}
    for one in loaded.refused:  # its topic is known, and stays one to dead-letter to
        if one.channel is not None and one.namespace and one.name:
            topics.setdefault(one.channel, _topic(loaded, one.namespace, one.name))
    for manifest in loaded.manifests:
        try:
            delivery = _delivery(manifest, manifest.at("spec.delivery"), manifest.channel.spec.delivery)
            shared = _Shared(_annotations(manifest), delivery)
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
                if subscriber.subscriberUri is None:  # what is wrong with it stands there
                    problem = problem.replace(f"{path}.subscriber", f"{path}.reply")
                refused.append(origin.refused(problem))
            else:
                yield origin, replace(made, manifest=origin)


def _alone(read: list[_Read], refused: list[RefusedManifest]) -> Iterator[_Read]:
    """Yield those that share neither name nor group with another one; refuse the others, each with the name of that one."""
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
    shared: _Shared,
) -> Subscription:
    metadata, places = manifest.channel.metadata, manifest.places
    config = loaded.config.manifests
    where = places.locate(path)
    if subscriber.subscriberUri is None:
        raise ConfigError(
            f"{where}: {path}: needs a subscriberUri, or a replyUri, which events themselves are posted to"
        )
    options = _options(loaded, manifest, path, subscriber, topics, shared)
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


def _options(
    loaded: Loaded,
    manifest: ChannelManifest,
    path: str,
    subscriber: Subscriber,
    topics: Mapping[str, str],
    shared: _Shared,
) -> DispatchOptions:
    own = _delivery(manifest, f"{path}.delivery", subscriber.delivery)
    its_own = _annotations(manifest, subscriber.uid)
    given: dict[str, Any] = {**loaded.config.manifests.options, **shared.options, **its_own}
    has_tokens = str(given.get("token_file", "")).endswith(f"/{AUDIENCE}")
    delivery = {**given.get("delivery", {}), **shared.delivery, **own}
    if (sink := dead_letter_sink(manifest, path, subscriber, topics)) is not None:
        delivery["deadLetterSink"] = sink if has_tokens else {key: sink[key] for key in sink if key != "audience"}
    if (format := delivery.pop("format", None)) is not None:
        given["mode"] = format
    given |= {"subscriberUri": subscriber.subscriberUri, "delivery": delivery}
    if subscriber.replyUri is not None:
        given["replyUri"] = subscriber.replyUri
    for key in _CERTIFICATES + (_AUDIENCES if has_tokens else ()):
        if (value := getattr(subscriber, key)) is not None:
            given[key] = value
    try:
        return DispatchOptions.model_validate(given, context=WRITTEN)
    except ValidationError as error:

        def locate(name: str) -> str:
            key = name.removeprefix(f"{path}.").partition(".")[0].partition("[")[0]
            if key in its_own:
                return manifest.places.locate(manifest.at(f"metadata.annotations.{ANNOTATION}{key}.{subscriber.uid}"))
            if key in shared.options:
                return manifest.places.locate(manifest.at(f"metadata.annotations.{ANNOTATION}{key}"))
            if key in loaded.config.manifests.options and name not in manifest.places.where:
                return loaded.locate(f"manifests.options.{key}")
            return manifest.places.locate(name)

        raise ConfigError("\n".join(validation_problems(error, path, locate, model=DispatchOptions))) from None


def _delivery(manifest: ChannelManifest, path: str, said: KnativeDelivery | None) -> dict[str, Any]:
    """Return what one `delivery` says, checked, but for its sink; the keys that it does not have are not in it."""
    given = {} if said is None else said.model_dump(exclude_none=True)
    result = {key: value for key, value in given.items() if key not in ("deadLetterSink", "format")}
    format, where = given.get("format"), f"{path}.format"
    mode = _FORMATS.get(str(format).lower())
    if format is not None and mode is None:
        raise ConfigError(f"{manifest.places.locate(where)}: {where}: need one of json, binary, got {format!r}")
    validated(DeliverySpec, path, result, manifest.places)
    return result if mode is None else {**result, "format": mode}


def _annotations(manifest: ChannelManifest, uid: str = "") -> dict[str, Any]:
    """Return the options that annotations give to all subscribers, or to the one of this uid alone, read as YAML reads them.

    Raises:
        ConfigError: one of them names no option.
    """
    found = {}
    for name, value in manifest.annotations().items():
        key, _, of = name.partition(".")
        if of != uid:
            continue
        where = manifest.at(f"metadata.annotations.{ANNOTATION}{name}")
        if key not in ANNOTATIONS:
            raise ConfigError(f"{manifest.places.locate(where)}: {where}: unknown; allowed: {', '.join(ANNOTATIONS)}")
        try:
            found[key] = resolve(value) if isinstance(value, str) else value
        except ConfigError as error:
            raise ConfigError(f"{manifest.places.locate(where)}: {where}: {error}") from None
    return found

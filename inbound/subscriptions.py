"""From the subscribers that a configuration and its manifests name to channels of their own."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from inbound.config import ChannelConfig, Loaded, Manifest, validation_problems
from inbound.config.document import resolve
from inbound.config.kafka_channel import ANNOTATION, KIND, Destination, Subscriber
from inbound.config.loader import validated
from inbound.config.values import WRITTEN, PathPart, path_part, whole
from inbound.errors import ConfigError
from inbound.processors.dispatch.options import DeliverySpec, DispatchOptions

#: What an annotation may say. Not more: whoever may write a manifest is not thereby allowed to have files read.
ANNOTATIONS = ("batch", "connect_timeout", "connections", "max_in_flight", "mode", "on_undecodable", "ordering")
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

    config: ChannelConfig
    options: DispatchOptions
    ref: SubscriberRef
    where: str  # `inbound.yaml:12`
    settings: str  # dotted path of the channel's settings in the configuration


def subscriptions_of(loaded: Loaded) -> dict[str, Subscription]:
    """Return every subscription by the name of its channel; connects to nothing.

    Raises:
        ConfigError: a line for each problem, with its place in the file.
    """
    found: dict[str, Subscription] = {}
    problems: list[str] = []
    plain = plain_channels(loaded)
    groups = {channel.group: f"channel {name}" for name, channel in plain.items()}
    for name, made in [*_from_channels(loaded, problems), *_from_manifests(loaded, problems)]:
        group = made.config.group
        if name in found or name in plain:
            problems.append(f"{made.where}: another channel is called {name} already; rename one of the two")
        elif group in groups:
            problems.append(
                f"{made.where}: {groups[group]} has group {group!r} already; each subscription needs its own, "
                "for a group shares its events out"
            )
        elif (problem := sink_problem(made.config, made.options)) is not None:
            problems.append(f"{made.where}: subscription {name}: {problem}")
        else:
            found[name] = made
            groups[group] = f"subscription {name}"
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def sink_problem(channel: ChannelConfig, options: object) -> str | None:
    """Return why a dispatcher's events cannot go to its dead letter sink: its channel reads it. None: they can."""
    sink = options.delivery.deadLetterSink if isinstance(options, DispatchOptions) else None
    problem = channel.circle(sink.topic) if sink is not None and sink.topic is not None else None
    return None if problem is None else f"delivery.deadLetterSink: {problem}"


def plain_channels(loaded: Loaded) -> dict[str, ChannelConfig]:
    """Return the channels that have a processor of their own."""
    return {name: channel for name, channel in loaded.config.channels.items() if not channel.subscriptions}


def channels_of(loaded: Loaded) -> dict[str, ChannelConfig]:
    """Return all channels as they run: each subscription is one.

    Raises:
        ConfigError: as `subscriptions_of`.
    """
    subscriptions = subscriptions_of(loaded)
    return {**plain_channels(loaded), **{name: made.config for name, made in subscriptions.items()}}


# -- the configuration's own -----------------------------------------------------------------------------------------


def _from_channels(loaded: Loaded, problems: list[str]) -> Iterator[tuple[str, Subscription]]:
    for name, channel in loaded.config.channels.items():
        for short, given in channel.subscriptions.items():
            where = f"channels.{name}.subscriptions.{short}"
            try:
                options = loaded.validate(SubscriptionOptions, where, given)
            except ConfigError as error:
                problems.append(str(error))
                continue
            values = channel.model_copy(
                update={"subscriptions": {}, "group": options.group or f"{channel.group}.{short}"}
            )
            dispatch = _dispatch_options(options)
            ref = _ref(options.uid or f"{name}.{short}", options.generation, dispatch)
            yield f"{name}.{short}", Subscription(values, dispatch, ref, loaded.locate(where), f"channels.{name}")


def _dispatch_options(options: SubscriptionOptions) -> DispatchOptions:
    values = {key: getattr(options, key) for key in DispatchOptions.model_fields}
    return DispatchOptions.model_construct(options.model_fields_set & values.keys(), **values)


def _ref(uid: str, generation: int | None, options: DispatchOptions) -> SubscriberRef:
    return SubscriberRef(uid, generation, f"{zlib.crc32(options.model_dump_json().encode()):08x}")


# -- Knative's -------------------------------------------------------------------------------------------------------


def _from_manifests(loaded: Loaded, problems: list[str]) -> Iterator[tuple[str, Subscription]]:
    topics = {manifest.name: _topic(loaded, manifest) for manifest in loaded.manifests}
    for manifest in loaded.manifests:
        for path, subscriber in manifest.subscribers:
            try:
                yield _name(manifest, subscriber), _from_manifest(loaded, manifest, path, subscriber, topics)
            except ConfigError as error:
                problems.append(str(error))


def _name(manifest: Manifest, subscriber: Subscriber) -> str:
    return f"{manifest.name}.{subscriber.uid}"


def _topic(loaded: Loaded, manifest: Manifest) -> str:
    metadata = manifest.channel.metadata
    return loaded.config.manifests.topic.format(namespace=metadata.namespace, name=metadata.name)


def _from_manifest(
    loaded: Loaded, manifest: Manifest, path: str, subscriber: Subscriber, topics: Mapping[str, str]
) -> Subscription:
    metadata, places = manifest.channel.metadata, manifest.places
    config = loaded.config.manifests
    where = places.locate(path)
    options = _options(loaded, manifest, path, subscriber, topics)
    group = config.group.format(namespace=metadata.namespace, name=metadata.name, uid=subscriber.uid)
    settings = {key: getattr(config.settings, key) for key in config.settings.model_fields_set | {"workers"}}
    try:
        channel = ChannelConfig.model_validate(
            {
                **settings,
                "topics": [topics[manifest.name]],
                "group": path_part(group),
                "processor": {"type": "dispatch"},
            }
        )
    except ValidationError as error:
        lines = validation_problems(error, path, lambda _: where, model=ChannelConfig)
        raise ConfigError("\n".join(lines)) from None
    ref = _ref(subscriber.uid, subscriber.generation, options)
    return Subscription(channel, options, ref, where, "manifests.settings")


def _options(
    loaded: Loaded, manifest: Manifest, path: str, subscriber: Subscriber, topics: Mapping[str, str]
) -> DispatchOptions:
    own = subscriber.delivery.model_dump(exclude_none=True) if subscriber.delivery else {}
    spec = manifest.channel.spec
    shared = spec.delivery.model_dump(exclude_none=True) if spec.delivery else {}
    parts = [
        _delivery(manifest, manifest.at("spec.delivery"), shared, topics),
        _delivery(manifest, f"{path}.delivery", own, topics),
    ]
    given: dict[str, Any] = {**loaded.config.manifests.options, **_annotations(manifest)}
    defaults = given.get("delivery")
    delivery = {**(defaults if isinstance(defaults, dict) else {}), **parts[0], **parts[1]}
    if (format := delivery.pop("format", None)) is not None:
        given["mode"] = format
    given |= {"subscriberUri": subscriber.subscriberUri, "delivery": delivery}
    if subscriber.replyUri is not None:
        given["replyUri"] = subscriber.replyUri
    try:
        return DispatchOptions.model_validate(given, context=WRITTEN)
    except ValidationError as error:

        def locate(name: str) -> str:
            key = name.removeprefix(f"{path}.").split(".")[0]
            if key in _annotations(manifest):
                return manifest.places.locate(manifest.at(f"metadata.annotations.{ANNOTATION}{key}"))
            if key in loaded.config.manifests.options and name not in manifest.places.where:
                return loaded.locate(f"manifests.options.{key}")
            return manifest.places.locate(name)

        raise ConfigError("\n".join(validation_problems(error, path, locate, model=DispatchOptions))) from None


def _delivery(manifest: Manifest, path: str, given: Mapping[str, Any], topics: Mapping[str, str]) -> dict[str, Any]:
    """Return what one `delivery` says, checked; the keys that it does not have are not in it."""
    result = dict(given)
    result.pop("retryAfterMax", None)  # the dispatcher has a bound of its own
    mode = _format(manifest, path, result.pop("format", None))
    if (sink := result.get("deadLetterSink")) is not None:
        result["deadLetterSink"] = _sink(manifest, f"{path}.deadLetterSink", Destination.model_validate(sink), topics)
    validated(DeliverySpec, path, result, manifest.places)
    return result if mode is None else {**result, "format": mode}


def _format(manifest: Manifest, path: str, given: Any) -> str | None:
    if given is None:
        return None
    if str(given).lower() not in _FORMATS:
        where = f"{path}.format"
        raise ConfigError(f"{manifest.places.locate(where)}: {where}: need one of json, binary, got {given!r}")
    return _FORMATS[str(given).lower()]


def _sink(manifest: Manifest, path: str, sink: Destination, topics: Mapping[str, str]) -> dict[str, str]:
    """Return a dead letter sink as the dispatcher takes it: a URI goes before a reference."""
    if sink.uri is not None and "://" in sink.uri:
        return {"uri": sink.uri}
    where = f"{manifest.places.locate(path)}: {path}"
    if sink.ref is None:
        raise ConfigError(f"{where}: needs a uri with http:// or https://, or a ref to a {KIND} of the manifests")
    named = f"{sink.ref.namespace or manifest.channel.metadata.namespace}.{sink.ref.name}"
    if sink.ref.kind == KIND and sink.uri is None and named in topics:
        return {"topic": topics[named]}
    raise ConfigError(
        f"{where}: the {sink.ref.kind} {named} is not in the manifests, so where it listens is not known; give its uri"
    )


def _annotations(manifest: Manifest) -> dict[str, Any]:
    """Return the options that annotations give, read as YAML reads them.

    Raises:
        ConfigError: one of them names no option.
    """
    found = {}
    for key, value in manifest.annotations().items():
        where = manifest.at(f"metadata.annotations.{ANNOTATION}{key}")
        if key not in ANNOTATIONS:
            raise ConfigError(f"{manifest.places.locate(where)}: {where}: unknown; allowed: {', '.join(ANNOTATIONS)}")
        try:
            found[key] = resolve(value) if isinstance(value, str) else value
        except ConfigError as error:
            raise ConfigError(f"{manifest.places.locate(where)}: {where}: {error}") from None
    return found

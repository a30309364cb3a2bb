"""What resets of this configuration can name: its channels, its manifests, and the RefMapper that it asks for."""

from __future__ import annotations

from importlib.metadata import entry_points

from inbound.config import Loaded
from inbound.controller.reset_offset.model import RefMapper
from inbound.controller.reset_offset.ref_mappers import (
    KnativeSubscription,
    Known,
    ReadChannel,
    ReadyRefMapper,
    RefMapperFactory,
    UnusableManifest,
)
from inbound.errors import ConfigError
from inbound.plugins import load
from inbound.subscriptions import plain_channels, read_subscriptions

#: Distributions offer RefMappers by a name of their own in this group of entry points.
GROUP = "inbound.ref_mappers"


def ref_mapper_of(loaded: Loaded) -> RefMapper:
    """Return the RefMapper that `reset.ref_mapper` names, or the ready one.

    Raises:
        ConfigError: it cannot be loaded or made; with the place in the file. Or the channels cannot be used.
    """
    known = known_of(loaded)
    name = loaded.config.reset.ref_mapper
    if name is None:
        return ReadyRefMapper(known)
    where = f"{loaded.locate('reset.ref_mapper')}: reset.ref_mapper"
    try:
        made = _factory(name)(known)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except Exception as error:
        raise ConfigError(f"{where}: {name} cannot be made: {type(error).__name__}: {error}") from error
    if not callable(getattr(made, "map", None)):
        raise ConfigError(
            f"{where}: {name} made {made!r}, which has no method map(ref); write it: it returns a RefInfo"
        )
    return made


def known_of(loaded: Loaded) -> Known:
    """Return what there is that a reset can name.

    Raises:
        ConfigError: the subscriptions cannot be used; a line for each problem.
    """
    config = loaded.config
    channels = [
        ReadChannel(name=name, group=channel.group, topics=channel.topics, pattern=channel.topics_pattern)
        for name, channel in plain_channels(loaded).items()
    ]
    subscriptions = read_subscriptions(loaded)
    for name, made in subscriptions.found.items():
        one = made.config
        channels.append(
            ReadChannel(name=name, group=one.group, topics=one.topics, pattern=one.topics_pattern, uid=made.ref.uid)
        )
    return Known(
        channels=tuple(channels),
        kafka_channels=tuple(manifest.channel for manifest in loaded.manifests),
        subscriptions=tuple(_subscriptions(loaded).values()),
        topic_pattern=config.manifests.topic,
        group_pattern=config.manifests.group,
        options=config.reset.options,
        unusable=tuple(
            UnusableManifest(namespace=one.namespace, name=one.name, problem=one.problem)
            for one in subscriptions.refused
        ),
    )


def _subscriptions(loaded: Loaded) -> dict[tuple[str, str], KnativeSubscription]:
    """Return Knative's subscriptions: as their channels name them, and as their own manifests say, which go before."""
    found = {}
    for manifest in loaded.manifests:
        metadata = manifest.channel.metadata
        for _, subscriber in manifest.subscribers:
            if subscriber.name is not None:
                found[metadata.namespace, subscriber.name] = KnativeSubscription(
                    namespace=metadata.namespace, name=subscriber.name, uid=subscriber.uid, channel=metadata.name
                )
    for one in loaded.subscriptions:
        if one.spec.channel.kind == "KafkaChannel":
            namespace, name = one.metadata.namespace, one.metadata.name
            found[namespace, name] = KnativeSubscription(
                namespace=namespace, name=name, uid=one.metadata.uid, channel=one.spec.channel.name
            )
    return found


def _factory(name: str) -> RefMapperFactory:
    """Return what `name` stands for.

    Raises:
        ConfigError: there is no such module, class or entry point, or it cannot be called.
    """
    target = name if ":" in name else _offered(name)
    found = load(target)
    if not callable(found):
        raise ConfigError(
            f"{name} is {found!r}, which cannot be called; name a class or function that takes what is known"
        )
    return found  # type: ignore[no-any-return]  # what it makes is looked at


def _offered(name: str) -> str:
    offers = {point.name: point.value.partition("[")[0].strip() for point in entry_points(group=GROUP)}
    if name not in offers:
        there = f"those are installed: {', '.join(sorted(offers))}" if offers else "none is installed"
        raise ConfigError(f"no RefMapper is called {name!r}; {there}, or write module:Class")
    return offers[name]

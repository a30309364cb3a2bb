"""Resets come from `ResetOffset` manifests; a RefMapper resolves their references."""

from __future__ import annotations

import hashlib
import json

from inbound.config import ChannelConfig, Loaded, ResetManifest, ResetOffset, parse_time
from inbound.controller.reset_offset import Ref, RefMapper, ResetCommand, ResetSpec, To
from inbound.controller.reset_offset.ref_mappers import (
    KnativeSubscription,
    Known,
    ReadChannel,
    ReadyRefMapper,
    RefMapperFactory,
    UnusableManifest,
)
from inbound.errors import ConfigError
from inbound.plan.plugins import load, offers
from inbound.plan.subscriptions import plain_channels, read_subscriptions


def command_of(manifest: ResetManifest, mapper: RefMapper, *, created: float, by: str) -> ResetCommand:
    """Return the reset of a manifest; `created` is in seconds since 1970.

    The same manifest always gives the same name, and a name is used once: the reset runs once, however many members submit
    it. Another content, uid or generation is another reset.

    Raises:
        ConfigError: the manifest cannot be used.
        UnknownRefError: its reference is unknown.
    """
    if manifest.reset is None:
        raise ConfigError(manifest.problem or f"{manifest.where}: {manifest.name} cannot be used")
    reset = manifest.reset
    given, time = reset.spec.ref, reset.spec.offset.time
    # A Kubernetes object is in the reset's namespace unless it names another one.
    namespace = given.namespace or (reset.metadata.namespace if given.apiVersion else None)
    ref = Ref(kind=given.kind, name=given.name, namespace=namespace, api_version=given.apiVersion)
    to = To(time) if time in (To.EARLIEST.value, To.LATEST.value) else To.TIME
    return ResetCommand(
        name=name_of(reset),
        ref=ref,
        info=mapper.map(ref),
        spec=ResetSpec(to=to, time=parse_time(time) if to is To.TIME else None),
        created=created,
        by=by,
        once=True,
    )


def name_of(reset: ResetOffset) -> str:
    """Return the name of a manifest's reset: `<namespace>.<name>.<digest of its content>`."""
    metadata = reset.metadata
    content = [metadata.uid, metadata.generation, reset.spec.model_dump(mode="json")]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{metadata.namespace}.{metadata.name}.{digest[:12]}"


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
    """Return the channels and subscriptions that a reset can name.

    Raises:
        ConfigError: the subscriptions cannot be used; a line for each problem.
    """
    config = loaded.config
    subscriptions = read_subscriptions(loaded)
    found: list[tuple[str, ChannelConfig, str | None]] = [(*item, None) for item in plain_channels(loaded).items()]
    found += [(name, made.config, made.ref.uid) for name, made in subscriptions.found.items()]
    return Known(
        channels=tuple(
            ReadChannel(name=name, group=one.group, topics=one.topics, pattern=one.topics_pattern, uid=uid)
            for name, one, uid in found
        ),
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
    """Return Knative's subscriptions; their own manifests take precedence over their channels'."""
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
    """Return the factory of RefMappers called `name`.

    Raises:
        ConfigError: there is no such module, class or entry point, or it cannot be called.
    """
    known = {offer.name: offer.target for offer in offers(GROUP)}
    if ":" not in name and name not in known:
        there = f"those are installed: {', '.join(known)}" if known else "none is installed"
        raise ConfigError(f"no RefMapper is called {name!r}; {there}, or write module:Class")
    found = load(known.get(name, name))
    if not callable(found):
        raise ConfigError(
            f"{name} is {found!r}, which cannot be called; name a class or function that takes what is known"
        )
    return found  # type: ignore[no-any-return]  # its result is checked

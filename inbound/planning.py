"""What a configuration stands for: its channels, each with the code behind the names in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from inbound.config import ChannelConfig, LedgerConfig, Loaded
from inbound.coordinators.base import ZkCoordinator
from inbound.errors import ConfigError
from inbound.kafka.access import resolve, warnings
from inbound.kafka.clients import check_installed, check_properties
from inbound.plugins import coordinator_of, find_processor, options_of
from inbound.processors.base import BatchEventProcessor
from inbound.subscriptions import SubscriberRef, Subscription, plain_channels, sink_problem, subscriptions_of
from inbound.tracing.settings import settings_of

log = logging.getLogger(__name__)


#: What of the ledger's configuration changes without another ledger.
LIVE_LEDGER_KEYS = ("retention", "compact", "ship_interval", "on_failure")


@dataclass(frozen=True)
class PlannedChannel:
    """What a channel's configuration stands for, as far as code of plugins is concerned."""

    config: ChannelConfig
    processor: type[BatchEventProcessor]
    origin: str  # where the processor came from, in words
    options: object  # validated, for the processor's `open`
    coordinator: ZkCoordinator
    subscriber: SubscriberRef | None = None  # None: the channel is no subscription
    #: What it stands on, by name: the channel is made anew when that changes.
    base: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: How it gets at Kafka: its clients are made anew when that changes.
    kafka: Any = field(default=None, repr=False)
    #: What stands for the content of the files that its options name.
    files: str = ""


def plan_channels(loaded: Loaded) -> dict[str, PlannedChannel]:
    """Return what stands behind the names in each channel's configuration; connects to nothing.

    Raises:
        ConfigError: a plugin or its options cannot be used; a line for each problem.
    """
    planned: dict[str, PlannedChannel] = {}
    problems: list[str] = []
    for name, channel in plain_channels(loaded).items():
        try:
            planned[name] = _planned(name, channel, loaded)
        except ConfigError as error:
            problems.append(str(error))
    try:
        for name, subscription in subscriptions_of(loaded).items():
            planned[name] = _subscribed(subscription, loaded)
    except ConfigError as error:
        problems.append(str(error))
    problems += _ledger_problems(planned, loaded)
    problems += _client_problems(loaded)
    problems += _mirror_problems(planned, loaded)
    problems += tracing_problems(loaded)
    if problems:
        raise ConfigError("\n".join(problems))
    return {name: _standing(one, loaded) for name, one in planned.items()}


def _standing(planned: PlannedChannel, loaded: Loaded) -> PlannedChannel:
    config = loaded.config
    kafka = (config.kafka, loaded.contents.get("kafka", ""))
    base: dict[str, Any] = {"zookeeper": config.zookeeper, "ledger": structure(config.ledger)}
    if config.ledger.type == "kafka":  # what is on its way to it must have arrived before it is left
        base["kafka"] = kafka
    return replace(planned, base=base, kafka=kafka)


def structure(ledger: LedgerConfig) -> Mapping[str, Any]:
    """Return what of a ledger's configuration cannot change while something is written to it."""
    return ledger.model_dump(exclude=set(LIVE_LEDGER_KEYS))


def _planned(name: str, channel: ChannelConfig, loaded: Loaded) -> PlannedChannel:
    where = f"channels.{name}.processor"
    problems = []
    coordinator = None
    try:
        coordinator = coordinator_of(channel.coordinator, f"channels.{name}.coordinator", loaded)
    except ConfigError as error:
        problems.append(str(error))
    try:
        found = find_processor(channel.processor.type)
    except ConfigError as error:
        problems.append(f"{loaded.locate(f'{where}.type')}: {where}.type: {error}")
        raise ConfigError("\n".join(problems)) from None
    try:
        options = options_of(found.cls, channel.processor.options, f"{where}.options", loaded)
        if (problem := sink_problem(channel, options)) is not None:
            problems.append(f"{loaded.locate(f'{where}.options.delivery.deadLetterSink')}: {where}.options.{problem}")
    except ConfigError as error:
        problems.append(str(error))
    if coordinator is None or problems:
        raise ConfigError("\n".join(problems))
    files = loaded.contents.get(f"channels.{name}", "")
    return PlannedChannel(fitted(channel, found.cls), found.cls, found.origin, options, coordinator, files=files)


def fitted(channel: ChannelConfig, processor: type[BatchEventProcessor]) -> ChannelConfig:
    """Return a channel's configuration with what its processor wants where nobody has said anything."""
    wanted, reader = processor.prefetch_bytes, channel.reader
    if wanted is None or "prefetch_bytes" in reader.model_fields_set:
        return channel
    reader = reader.model_copy(update={"prefetch_bytes": max(wanted, reader.batch_bytes)})
    return channel.model_copy(update={"reader": reader})


def _subscribed(made: Subscription, loaded: Loaded) -> PlannedChannel:
    found = find_processor(made.config.processor.type)
    coordinator = coordinator_of(made.config.coordinator, f"{made.settings}.coordinator", loaded)
    files = loaded.contents.get(made.settings.removesuffix(".settings"), "")
    return PlannedChannel(
        fitted(made.config, found.cls), found.cls, found.origin, made.options, coordinator, made.ref, files=files
    )


def tracing_problems(loaded: Loaded) -> list[str]:
    """Return what is wrong with `tracing`, and with what its folders hold; nothing is made."""
    try:
        settings_of(loaded.config.tracing)
    except ConfigError as error:
        return [f"{loaded.locate('tracing')}: {error}"]
    return []


def _ledger_problems(planned: Mapping[str, PlannedChannel], loaded: Loaded) -> list[str]:
    """Return which channels name the ledger's topic; a pattern does not mean it."""
    ledger = loaded.config.ledger
    if ledger.type != "kafka":
        return []
    return [
        f"{loaded.locate('ledger.topic')}: ledger.topic: {ledger.topic} is read by channel {name}; each record of it would have "
        "others written to it, for ever; leave it out of the channel's topics, or give the ledger another one"
        for name, one in planned.items()
        if ledger.topic in one.config.topics
    ]


def _mirror_problems(planned: Mapping[str, PlannedChannel], loaded: Loaded) -> list[str]:
    """Return which channels would overwrite each other's offsets: groups of the same topics with one mirror."""
    problems = []
    mirrors: dict[str, list[tuple[str, ChannelConfig]]] = {}
    for name, one in planned.items():
        kafka_group = one.config.offsets.kafka_group(one.config.group)
        if kafka_group is None:
            continue
        for other, before in mirrors.setdefault(kafka_group, []):
            if before.group != one.config.group and _may_share_topics(before, one.config):
                problems.append(
                    f"{loaded.locate('channels')}: channels {other} (group {before.group}) and {name} (group "
                    f"{one.config.group}) would both write the offsets of Kafka group {kafka_group}, of the same topics; "
                    "give each its own offsets.group, or none"
                )
                break
        mirrors[kafka_group].append((name, one.config))
    return problems


def _may_share_topics(one: ChannelConfig, other: ChannelConfig) -> bool:
    if one.topics_pattern is not None and other.topics_pattern is not None:
        return True  # what they match is not known here
    if one.topics_pattern is not None:
        one, other = other, one
    if other.topics_pattern is not None:
        return any(re.fullmatch(other.topics_pattern, topic) for topic in one.topics)
    return not set(one.topics).isdisjoint(other.topics)


def _client_problems(loaded: Loaded) -> list[str]:
    problems = []
    usable = set()
    readers = {f"channels.{name}.reader.client": c.reader.client for name, c in loaded.config.channels.items()}
    if loaded.config.manifests.paths:
        readers["manifests.settings.reader.client"] = loaded.config.manifests.settings.reader.client
    for where, client in readers.items():
        try:
            check_installed(client)
            usable.add(client)
        except ConfigError as error:
            problems.append(f"{loaded.locate(where)}: {where}: {error}")
    for client in sorted(usable):
        try:
            check_properties(client, loaded.config.kafka)
        except ConfigError as error:
            problems.append(f"{loaded.locate('kafka')}: {error}")
    if not problems:
        for line in warnings(resolve(loaded.config.kafka)):
            log.warning("%s: %s", loaded.locate("kafka"), line)
    return problems

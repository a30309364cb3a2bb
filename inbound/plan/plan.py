"""A plan holds a configuration's channels and the code they name."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inbound.config import ChannelConfig, Config, LedgerConfig, Loaded, ManifestOrigin, RefusedManifest
from inbound.coordinators.base import ZkCoordinator
from inbound.errors import ConfigError
from inbound.kafka.auth.access import resolve, warnings
from inbound.kafka.clients.choice import check_installed, check_properties
from inbound.observe.tracing.settings import settings_of
from inbound.plan.plugins import coordinator_of, find_processor, options_of
from inbound.plan.subscriptions import (
    SubscriberRef,
    Subscription,
    plain_channels,
    read_subscriptions,
    sink_problem,
    with_topics,
)
from inbound.processors.base import BatchEventProcessor
from inbound.processors.http_headers import is_never
from inbound.runtime.patterns import chooser

log = logging.getLogger(__name__)
#: The ledger's keys that can change without another ledger.
LIVE_LEDGER_KEYS = ("retention", "compact", "ship_interval", "on_failure")


@dataclass(frozen=True)
class PlannedChannel:
    """A channel's configuration, with the classes and options behind its names."""

    config: ChannelConfig
    processor: type[BatchEventProcessor]
    origin: str  # of the processor, in words
    options: object  # validated, for the processor's `open`
    coordinator: ZkCoordinator
    subscriber: SubscriberRef | None = None  # None: the channel is no subscription
    #: Its foundation, by section: the channel restarts when that changes.
    base: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Its access to Kafka: its clients are replaced when that changes.
    kafka: Any = field(default=None, repr=False)
    #: A digest of the files that its options name.
    files: str = ""

    def registration(self) -> dict[str, Any]:
        """Return what the coordinator writes into the id node; see `ZkCoordinator.registration`."""
        return self.coordinator.registration()

    #: The manifest that it comes from; None: the configuration itself.
    manifest: ManifestOrigin | None = None


@dataclass(frozen=True)
class Planned:
    """The channels of a configuration and its manifests."""

    channels: dict[str, PlannedChannel]
    refused: tuple[RefusedManifest, ...]  # these cannot be used; each stops alone


def plan_all(loaded: Loaded) -> Planned:
    """Return the plan of each channel; connects to nothing.

    Raises:
        ConfigError: the configuration itself, a plugin or its options cannot be used; a line for each problem.
    """
    planned: dict[str, PlannedChannel] = {}
    problems: list[str] = []
    refused: list[RefusedManifest] = []
    for name, channel in plain_channels(loaded).items():
        try:
            planned[name] = _planned(name, channel, loaded)
        except ConfigError as error:
            problems.append(str(error))
    try:
        subscriptions = read_subscriptions(loaded)
        refused += subscriptions.refused
        for name, subscription in subscriptions.found.items():
            planned[name] = _subscribed(subscription, loaded)
    except ConfigError as error:
        problems.append(str(error))
    problems += _ledger_problems(planned, loaded)
    problems += _client_problems(loaded)
    problems += _mirror_problems(planned, loaded, refused)
    problems += tracing_problems(loaded)
    problems += ingress_problems(loaded)
    if problems:
        raise ConfigError("\n".join(problems))
    channels = {name: standing(one, loaded.config, loaded.contents) for name, one in planned.items()}
    return Planned(channels, tuple(refused))


def plan_channels(loaded: Loaded) -> dict[str, PlannedChannel]:
    """Return the channels that can be used; raises ConfigError as `plan_all`."""
    return plan_all(loaded).channels


def check_runs(planned: Planned, config: Config) -> None:
    """Raise ConfigError if no manifest can be used and nothing else runs."""
    if planned.refused and not planned.channels and config.ingress is None:
        problems = "\n".join(one.problem for one in planned.refused)
        raise ConfigError(f"{problems}\nno manifest can be used, and nothing else is configured to run")


def standing(planned: PlannedChannel, config: Config, contents: Mapping[str, str]) -> PlannedChannel:
    """Return the channel with its foundation.

    It consists of sections of `config`, and of the contents of their files.
    """
    kafka = (config.kafka, contents.get("kafka", ""))
    base: dict[str, Any] = {"zookeeper": config.zookeeper, "ledger": structure(config.ledger)}
    if config.ledger.type == "kafka":  # its in-flight lines must arrive before the channel leaves it
        base["kafka"] = kafka
    return replace(planned, base=base, kafka=kafka)


def structure(ledger: LedgerConfig) -> Mapping[str, Any]:
    """Return the ledger's keys that cannot change while lines are written."""
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
    else:
        channel = with_topics(channel, found.cls.own_topics(options))
        problems += _unread(channel, found.cls.own_topics(options), loaded.locate(f"channels.{name}"))
    if coordinator is None or problems:
        raise ConfigError("\n".join(problems))
    files = loaded.contents.get(f"channels.{name}", "")
    return PlannedChannel(fitted(channel, found.cls), found.cls, found.origin, options, coordinator, files=files)


def _unread(channel: ChannelConfig, own_topics: Sequence[str], where: str) -> list[str]:
    """Return the problem of a pattern without the processor's own topics."""
    reads = chooser(channel.topics, channel.topics_pattern)
    missing = [topic for topic in own_topics if channel.topics_pattern is not None and not reads(topic)]
    if not missing:
        return []
    return [
        f"{where}: topics_pattern does not match {', '.join(missing)}, which the processor needs to be read too; give a "
        "pattern that does, or topics"
    ]


def fitted(channel: ChannelConfig, processor: type[BatchEventProcessor]) -> ChannelConfig:
    """Return a channel's configuration with its processor's default for `prefetch_bytes`."""
    wanted, reader = processor.prefetch_bytes, channel.reader
    if wanted is None or "prefetch_bytes" in reader.model_fields_set:
        return channel
    reader = reader.model_copy(update={"prefetch_bytes": max(wanted, reader.batch_bytes)})
    return channel.model_copy(update={"reader": reader})


def _subscribed(made: Subscription, loaded: Loaded) -> PlannedChannel:
    found = find_processor(made.config.processor.type)
    coordinator = coordinator_of(made.config.coordinator, f"{made.settings}.coordinator", loaded)
    if problems := _unread(made.config, found.cls.own_topics(made.options), made.where):
        raise ConfigError("\n".join(problems))
    files = loaded.contents.get(made.settings.removesuffix(".settings"), "")
    config = fitted(made.config, found.cls)
    return PlannedChannel(
        config, found.cls, found.origin, made.options, coordinator, made.ref, files=files, manifest=made.manifest
    )


def tracing_problems(loaded: Loaded) -> list[str]:
    """Return the problems of `tracing` and of the files in its folders."""
    try:
        settings_of(loaded.config.tracing)
    except ConfigError as error:
        return [f"{loaded.locate('tracing')}: {error}"]
    return []


def _ledger_problems(planned: Mapping[str, PlannedChannel], loaded: Loaded) -> list[str]:
    """Return a problem for each channel that names the ledger's topic.

    A pattern that matches the topic does not read it.
    """
    ledger = loaded.config.ledger
    if ledger.type != "kafka":
        return []
    return [
        f"{loaded.locate('ledger.topic')}: ledger.topic: {ledger.topic} is read by channel {name}; each record of it would have "
        "others written to it, without end; leave it out of the channel's topics, or give the ledger another one"
        for name, one in planned.items()
        if ledger.topic in one.config.topics
    ]


def ingress_problems(loaded: Loaded) -> list[str]:
    """Return a problem for each of `ingress.pass_headers` that never goes on."""
    ingress = loaded.config.ingress
    return [
        f"{loaded.locate(f'ingress.pass_headers[{number}]')}: ingress.pass_headers: {pattern} is a credential, or belongs to one "
        "connection, message or sender: it never goes on; take it out"
        for number, pattern in enumerate(ingress.pass_headers if ingress is not None else ())
        if is_never(pattern)
    ]


def _mirror_problems(planned: dict[str, PlannedChannel], loaded: Loaded, refused: list[RefusedManifest]) -> list[str]:
    """Return which channels would overwrite each other's offsets.

    These are channels of different groups that read the same topics and mirror to one Kafka group. Those from manifests move
    from `planned` to `refused`.
    """
    problems = []
    mirrors: dict[str, list[tuple[str, ChannelConfig]]] = {}
    dropped: dict[str, str] = {}
    for name, one in planned.items():
        kafka_group = one.config.offsets.kafka_group(one.config.group)
        if kafka_group is None:
            continue
        for other, before in mirrors.setdefault(kafka_group, []):
            if before.group != one.config.group and _may_share_topics(before, one.config):
                problem = (
                    f"channels {other} (group {before.group}) and {name} (group {one.config.group}) would both write the "
                    f"offsets of Kafka group {kafka_group}, of the same topics; give each its own offsets.group, or none"
                )
                of_manifests = [each for each in (other, name) if planned[each].manifest is not None]
                dropped |= dict.fromkeys(of_manifests, f"{loaded.locate('manifests.settings')}: {problem}")
                if not of_manifests:
                    problems.append(f"{loaded.locate('channels')}: {problem}")
                break
        mirrors[kafka_group].append((name, one.config))
    for name, problem in dropped.items():
        origin = planned.pop(name).manifest
        assert origin is not None
        refused.append(origin.refused(problem))
    return problems


def _may_share_topics(one: ChannelConfig, other: ChannelConfig) -> bool:
    if one.topics_pattern is not None and other.topics_pattern is not None:
        return True  # the topics that they match are not known here
    if one.topics_pattern is not None:
        one, other = other, one
    return any(map(chooser(other.topics, other.topics_pattern), one.topics))


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

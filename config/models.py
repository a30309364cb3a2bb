"""The whole configuration as frozen models; the channels are in `channel_models.py`.

Durations are floats of seconds and sizes ints of bytes, under the names that the file uses.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from inbound.config.admin_models import AdminConfig
from inbound.config.channel_models import ChannelConfig, SubscriberSettings
from inbound.config.explain_models import ExplainConfig
from inbound.config.ingress_models import IngressConfig
from inbound.config.kafka_properties import DEFAULT_SERVERS, Scalar, canonical
from inbound.config.kafka_values import check, json_schema
from inbound.config.ledger_models import LedgerConfig
from inbound.config.logging_models import LoggingConfig
from inbound.config.profiling_models import ProfilingConfig
from inbound.config.reset_models import ResetConfig
from inbound.config.tracing_models import TracingConfig
from inbound.config.units import shown
from inbound.config.values import (
    ChannelName,
    Outside,
    Part,
    Problem,
    duration,
    entries,
    folder,
    path_part,
    wrong,
    wrong_at,
)
from inbound.config.zookeeper_models import ZooKeeperConfig


def _kafka(value: Any) -> dict[str, Scalar]:
    if not isinstance(value, dict):
        raise wrong(f"need a mapping of Kafka client properties, got {shown(value)}")
    properties: dict[str, Scalar] = {}
    problems: list[Problem] = []
    for given, setting in value.items():
        name = canonical(given) if isinstance(given, str) else str(given)
        try:
            if name in properties:
                raise wrong("given twice, in different spellings; keep one")
            properties[name] = check(name, setting)
        except PydanticCustomError as error:
            problems.append(((given,), error, setting))
    if problems:
        raise wrong_at("kafka", problems)
    # A mounted folder may say where the brokers are.
    if "secret" not in properties:
        properties.setdefault("bootstrap.servers", DEFAULT_SERVERS)
    return properties


def _paths(value: Any) -> list[Path]:
    if isinstance(value, str) and not isinstance(value, Outside):
        value = [value]
    return [folder(path) for path in entries(value)]


def _texts(paths: tuple[Path, ...]) -> list[str]:
    return [str(path) for path in paths]


def _named(*names: str, needed: str | None = None) -> Callable[[Any], str]:
    """Return a validator for text in which each of `names` may stand in braces."""
    allowed = ", ".join(f"{{{name}}}" for name in names)

    def check(value: Any) -> str:
        pattern = path_part(value)
        try:
            pattern.format(**dict.fromkeys(names, "x"))
        except (KeyError, IndexError, ValueError, AttributeError):
            raise wrong(f"need text that may hold {allowed}, got {shown(pattern)}") from None
        if needed and f"{{{needed}}}" not in pattern:
            raise wrong(f"need text that holds {{{needed}}}, for each has its own, got {shown(pattern)}")
        return pattern

    return check


class ControllerConfig(Part):
    """When partitions move between the members of a group."""

    rebalance_interval: Annotated[float, duration(1)] = Field(
        default=60.0, description="Shares are looked at so often, even if nothing triggers it."
    )
    rebalance_delay: Annotated[float, duration()] = Field(
        default=0.3, description="Changes are collected so long, then one rebalance answers them all."
    )
    join_delay: Annotated[float, duration()] = Field(
        default=3.0, description="How long a new session waits before it claims partitions that it did not hold before."
    )
    commit_interval: Annotated[float, duration(at_most=1.0)] = Field(
        default=0.02,
        description="Commits of all channels are collected so long, then one transaction writes them; the first one at once.",
    )


class ManifestsConfig(Part):
    """Channels as Knative describes them: a consumer group for each subscriber of a `KafkaChannel`."""

    paths: Annotated[
        tuple[Path, ...],
        BeforeValidator(_paths),
        PlainSerializer(_texts, when_used="json"),
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
    ] = Field(
        default=(),
        description="Files, or folders with .yaml, .yml and .json files, beside the configuration: `KafkaChannel`s, and "
        "`ResetOffset`s with the `Subscription`s that they name; other kinds in them are ignored.",
    )
    topic: Annotated[str, BeforeValidator(_named("namespace", "name"))] = Field(
        default="{namespace}.{name}", description="Topic of a channel; {namespace} and {name} are its own."
    )
    group: Annotated[str, BeforeValidator(_named("namespace", "name", "uid", needed="uid"))] = Field(
        default="kafka.{uid}",
        description="Group of a subscriber; {uid} is its own, {namespace} and {name} its channel's.",
    )
    # Not in repr: headers can hold tokens.
    options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="What every subscriber gets besides what its manifest says, such as ca_file, headers or ordering.",
    )
    settings: SubscriberSettings = Field(default_factory=SubscriberSettings)


class Config(Part):
    """Everything that `inbound.yaml` says."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("channels", "manifests", "ingress")]},
    )

    zookeeper: ZooKeeperConfig = Field(default_factory=ZooKeeperConfig)
    # Not in repr: properties can hold passwords.
    kafka: Annotated[dict[str, Scalar], BeforeValidator(_kafka), WithJsonSchema(json_schema())] = Field(
        default_factory=lambda: _kafka({}),
        repr=False,
        description="Kafka client properties under their Java names, the same for all channels; `secret` names a mounted "
        "folder with credentials under Knative's names.",
    )
    controller: ControllerConfig = Field(default_factory=ControllerConfig)
    admin: AdminConfig = Field(default_factory=AdminConfig)
    logging: LoggingConfig = Field(default_factory=LoggingConfig)
    explain: ExplainConfig = Field(default_factory=ExplainConfig)
    ledger: LedgerConfig = Field(default_factory=LedgerConfig)
    reset: ResetConfig = Field(default_factory=ResetConfig)
    tracing: TracingConfig = Field(default_factory=TracingConfig)
    channels: dict[ChannelName, ChannelConfig] = Field(
        default_factory=dict,
        description="The channels by name; at least one, if there are neither manifests nor an ingress.",
        json_schema_extra={"minProperties": 1},
    )
    manifests: ManifestsConfig = Field(default_factory=ManifestsConfig)
    ingress: IngressConfig | None = Field(default=None, description="Takes CloudEvents in over HTTP; default: none.")
    profiling: ProfilingConfig | None = Field(
        default=None, description="Takes profiles of the process, over HTTP; default: none."
    )

    @model_validator(mode="after")
    def _check(self) -> Config:
        if "channels" not in self.model_fields_set and not self.manifests.paths and self.ingress is None:
            raise wrong_at("Config", [(("channels",), wrong("missing; this key is required"), None)])
        if "channels" in self.model_fields_set and not self.channels and not self.manifests.paths:
            raise wrong_at("Config", [(("channels",), wrong("need at least one channel, got none"), None)])
        members: dict[tuple[str, str], str] = {}
        for name, channel in self.channels.items():
            if channel.consumer_id is None:
                continue
            other = members.setdefault((channel.group, channel.consumer_id), name)
            if other != name:
                problem = wrong(
                    f"channel {other} is already member {channel.consumer_id!r} of group {channel.group!r}; "
                    "give each its own consumer_id"
                )
                raise wrong_at("Config", [(("channels", name, "consumer_id"), problem, None)])
        return self

"""The whole configuration as frozen models.

Channels, listeners, tracing and ZooKeeper have their own files. Names are the keys of the YAML file; durations are floats
of seconds, sizes ints of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from inbound.config.channel_models import ChannelConfig, SubscriberSettings
from inbound.config.kafka_properties import DEFAULT_SERVERS, Scalar, canonical
from inbound.config.kafka_values import check, json_schema
from inbound.config.listener_models import AdminConfig, IngressConfig, ProfilingConfig
from inbound.config.tracing_models import TracingConfig
from inbound.config.units import shown
from inbound.config.values import (
    ChannelName,
    Folder,
    OutsideText,
    Problem,
    StrictModel,
    TopicName,
    duration,
    entries,
    flag,
    folder,
    path_part,
    refuse,
    text,
    text_that,
    whole,
    wrong,
    wrong_at,
)
from inbound.config.zookeeper_models import ZooKeeperConfig


def _place(value: Any) -> Path | str:
    if isinstance(value, Path) or "://" not in text(value):
        return folder(value)
    uri = text(value)
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    if not parts.scheme or not uri.isprintable() or not (parts.netloc or parts.path.strip("/")):
        raise wrong(f"need a folder, or a URI such as s3://bucket/ledger, got {shown(uri)}")
    if parts.password is not None:
        raise wrong("holds a password; leave it to the environment or role that the file system's client uses")
    return uri


class LedgerConfig(StrictModel):
    """The record of deliveries and commits, which proves that nothing is lost."""

    type: Literal["files", "kafka", "none"] = Field(
        default="files", description="Where the ledger is kept: in files, or in a Kafka topic; `none` keeps no ledger."
    )
    path: Annotated[
        Path | str,
        BeforeValidator(_place),
        PlainSerializer(str, when_used="json"),
        WithJsonSchema({"type": "string"}),
    ] = Field(
        default=Path("ledger"),
        description="Folder of the files, relative to the working directory; or a URI such as s3://bucket/ledger, where "
        "whole files are shipped to (needs pyarrow, extra `ledger`).",
    )
    retention: Annotated[float, duration(over=True)] = Field(
        default=7 * 86400.0, description="How long entries are kept."
    )
    compact: Annotated[bool, BeforeValidator(flag)] | None = Field(
        default=None,
        description="Convert finished files to Parquet. Default: if pyarrow is installed.",
    )
    spool: Folder | None = Field(
        default=None,
        description="With a URI: local folder that files are written to before they are shipped. Default: "
        "ledger-spool below inbound's state folder.",
    )
    ship_interval: Annotated[float, duration(1)] = Field(
        default=30.0, description="With a URI: how long entries stay in the spool at most, while shipping works."
    )
    topic: TopicName = Field(
        default="inbound-ledger", description="With type kafka: the topic, which is created if it is missing."
    )
    partitions: Annotated[int, whole(1, 10_000)] = Field(
        default=8, description="With type kafka: partitions of the topic, if it is created."
    )
    replication_factor: Annotated[int, whole(1, 100)] | None = Field(
        default=None,
        description="With type kafka: copies of each partition, if the topic is created. Default: 3, or one for each broker "
        "if there are fewer.",
    )
    on_failure: Literal["hold", "degrade"] = Field(
        default="hold", description="If the ledger cannot be written: deliver nothing more, or go on without proof."
    )

    @property
    def uri(self) -> str | None:
        """The URI that files are shipped to; None: they stay local."""
        return self.path if self.type == "files" and isinstance(self.path, str) else None

    @model_validator(mode="after")
    def _check(self) -> LedgerConfig:
        only = "is only used where ledger.path is a URI; leave it out"
        refuse("LedgerConfig", (self.spool is not None and self.uri is None, "spool", only))
        return self


class ExplainConfig(StrictModel):
    """The stall detector."""

    interval: Annotated[float, duration(0.5, 3600.0)] = Field(
        default=2.0,
        description="How often partitions are checked. A partition that has something to read and has not advanced for two "
        "intervals, although it is neither paused nor waiting, is reported as stalled.",
    )


class ResetConfig(StrictModel):
    """Resets of offsets."""

    ref_mapper: (
        Annotated[str, text_that(str.strip, "module:Class, or the name of an entry point in inbound.ref_mappers")]
        | None
    ) = Field(
        default=None,
        description="Class that finds topic and group of a reset's reference: `module:Class`, or an entry point of the group "
        "`inbound.ref_mappers`; default: the channels and subscriptions of this configuration and its manifests are searched.",
    )
    # Not in repr: only the mapper knows whether there are secrets.
    options: dict[str, Any] = Field(default_factory=dict, repr=False, description="The mapper's options.")


def _level(value: Any) -> str:
    return text(value).lower()


def _is_logger(name: str) -> bool:
    return all(name.split(".")) and name.isprintable() and " " not in name


Level = Annotated[Literal["debug", "info", "warning", "error", "critical"], BeforeValidator(_level)]
LoggerName = Annotated[str, text_that(_is_logger, "the name of a logger, such as inbound or kafka.conn")]


class LoggingConfig(StrictModel):
    """What is logged to standard error, and how."""

    format: Literal["console", "json"] = Field(
        default="console", description="console: lines for people; json: one object a line, for machines."
    )
    level: Level = Field(default="info", description="The lowest level that is logged.")
    levels: dict[LoggerName, Level] = Field(
        default_factory=dict,
        description="Levels of single loggers and the loggers below them, such as {kafka: warning}. The loggers of the clients "
        "(kafka, kazoo, py4j, confluent_kafka, watchfiles) have level critical unless named here: inbound logs what their "
        "problems mean for a channel.",
    )
    repeat_interval: Annotated[float, duration(0, 3600)] = Field(
        default=5.0,
        description="A repeated line is written once per interval, with the number of lines left out; 0: each time.",
    )


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
    # A mounted folder may name the brokers.
    if "secret" not in properties:
        properties.setdefault("bootstrap.servers", DEFAULT_SERVERS)
    return properties


def _paths(value: Any) -> list[Path]:
    if isinstance(value, str) and not isinstance(value, OutsideText):
        value = [value]
    return [folder(path) for path in entries(value)]


def _named(*names: str, needed: str | None = None) -> Callable[[Any], str]:
    """Return a validator of text with `names` in braces; `needed` must occur."""
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


class ControllerConfig(StrictModel):
    """When partitions move between the members of a group."""

    rebalance_interval: Annotated[float, duration(1)] = Field(
        default=60.0, description="How often the members' shares are checked, even if nothing triggers a check."
    )
    rebalance_delay: Annotated[float, duration()] = Field(
        default=0.3, description="How long changes are collected before one rebalance answers them all."
    )
    join_delay: Annotated[float, duration()] = Field(
        default=3.0, description="How long a new session waits before it claims partitions that it did not hold before."
    )
    commit_interval: Annotated[float, duration(at_most=1.0)] = Field(
        default=0.02,
        description="How long commits of all channels are collected before one transaction writes them; the first one is written "
        "at once.",
    )


class ManifestsConfig(StrictModel):
    """Channels from Knative's manifests.

    Each subscriber of a `KafkaChannel` is a consumer group.
    """

    paths: Annotated[
        tuple[Path, ...],
        BeforeValidator(_paths),
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
    ] = Field(
        default=(),
        description="Files, or folders with .yaml, .yml and .json files, beside the configuration: `KafkaChannel`s, and "
        "`ResetOffset`s with the `Subscription`s that they name; other kinds in them are ignored.",
    )
    topic: Annotated[str, BeforeValidator(_named("namespace", "name"))] = Field(
        default="{namespace}.{name}", description="Topic of a channel; {namespace} and {name} are the channel's."
    )
    group: Annotated[str, BeforeValidator(_named("namespace", "name", "uid", needed="uid"))] = Field(
        default="kafka.{uid}",
        description="Group of a subscriber; {uid} is the subscriber's, {namespace} and {name} are its channel's.",
    )
    # Not in repr: headers can hold tokens.
    options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="Options of every subscriber besides those of its manifest, such as ca_file, headers or ordering.",
    )
    settings: SubscriberSettings = Field(default_factory=SubscriberSettings)


class Config(StrictModel):
    """The whole of `inbound.yaml`."""

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
        description="The channels by name; at least one, unless there are manifests or an ingress.",
        json_schema_extra={"minProperties": 1},
    )
    manifests: ManifestsConfig = Field(default_factory=ManifestsConfig)
    ingress: IngressConfig | None = Field(default=None, description="Accepts CloudEvents over HTTP; default: none.")
    profiling: ProfilingConfig | None = Field(
        default=None, description="Serves profiles of the process over HTTP; default: none."
    )

    @model_validator(mode="after")
    def _check(self) -> Config:
        given, has_manifests = "channels" in self.model_fields_set, bool(self.manifests.paths)
        refuse(
            "Config",
            (
                not given and not has_manifests and self.ingress is None,
                "channels",
                "missing; this key is required",
            ),
            (
                given and not self.channels and not has_manifests,
                "channels",
                "need at least one channel, got none",
            ),
        )
        members: dict[tuple[str, str], str] = {}
        for name, channel in self.channels.items():
            if channel.consumer_id is None:
                continue
            other = members.setdefault((channel.group, channel.consumer_id), name)
            refuse(
                "Config",
                (
                    other != name,
                    ("channels", name, "consumer_id"),
                    f"channel {other} is already member {channel.consumer_id!r} of group {channel.group!r}; "
                    "give each its own consumer_id",
                ),
            )
        return self

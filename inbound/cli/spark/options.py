"""The options of the Spark commands, and a lazy session."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbound.cli.shared.command import (
    CONFIG,
    PARTITIONS,
    argument,
    check_channel,
    flag,
    key_value,
    offset_number,
    one_of,
    several,
)
from inbound.cli.shared.files import jar_cache, java_command
from inbound.config import ChannelConfig, LedgerConfig, Loaded, OnErrorConfig
from inbound.errors import ConfigError
from inbound.kafka.auth.access import contents, read, resolve
from inbound.ledger.places import FilePath, place_of
from inbound.plan.plan import PlannedChannel, plan_channels
from inbound.plan.plugins import find_processor, options_of
from inbound.processors.base import BatchEventProcessor
from inbound.spark.kafka_source import for_java, inline
from inbound.spark.replay.plan import RequestedOffsets
from inbound.spark.session import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inbound.spark.cluster_state import Subject
    from inbound.spark.ledger_topic import LedgerTopicName

#: The configuration, the master, and the settings of Spark.
SPARK = (
    *CONFIG,
    argument("--master", default="local[*]", help="Spark master; default: local[*], all cores of this machine"),
    several("--conf", "a setting of Spark; may be given several times", metavar="KEY=VALUE"),
    argument(
        "--wheel",
        type=Path,
        metavar="FILE",
        help="the wheel of inbound for executors on other machines; default: made from the installed package",
    ),
    several(
        "--py-files",
        "another .py, .zip or .whl for executors on other machines; may be given several times",
        type=Path,
        metavar="FILE",
    ),
)


def spark_settings(args: argparse.Namespace) -> SparkSettings:
    """Return how to get a session.

    Raises:
        ConfigError: a --conf is not KEY=VALUE, or there is no such file.
    """
    conf = dict(key_value("--conf", item, "KEY=VALUE, such as spark.executor.memory=2g") for item in args.conf)
    for option, path in (("--wheel", args.wheel), *(("--py-files", path) for path in args.py_files)):
        if path is not None and not path.is_file():
            raise ConfigError(f"{option} {path}: there is no such file")
    return SparkSettings(jar_cache(), java_command(), args.master, conf, args.wheel, tuple(args.py_files))


def kafka_for_spark(properties: Mapping[str, object]) -> dict[str, object]:
    """Return Kafka properties for executors, with the content of files.

    Executors have none of this machine's files.

    Raises:
        ConfigError: a file of certificates or keys can't be read, or Java could not use it.
    """
    contents(properties)  # its errors name the property
    resolved = resolve(properties)
    for_java(resolved)
    return inline(resolved, lambda path: read("ssl", Path(path)))


@contextmanager
def lazy_session(
    settings: SparkSettings,
    name: str,
    say: Callable[[str], None],
    around: Callable[[SparkSession], AbstractContextManager[None]] | None = None,
) -> Iterator[Callable[[], SparkSession]]:
    """Give a function whose first call starts the session, within `around`."""
    from inbound.spark.session import spark_session

    with ExitStack() as stack:

        @cache
        def session() -> SparkSession:
            spark = stack.enter_context(spark_session(settings, name, say))
            if around is not None:
                stack.enter_context(around(spark))
            return spark

        yield session


def subjects_of(channels: Iterable[ChannelConfig]) -> dict[str, Subject]:
    """Return each group's topics; the channels of a group add up."""
    from inbound.spark.cluster_state import Subject

    found: dict[str, Subject] = {}
    for channel in channels:
        subject = Subject.of(channel)
        before = found.get(subject.group)
        if before is not None:
            patterns = dict.fromkeys(one for one in (before.pattern, subject.pattern) if one is not None)
            pattern = "|".join(f"(?:{one})" for one in patterns) if len(patterns) > 1 else next(iter(patterns), None)
            subject = replace(before, topics=tuple(dict.fromkeys((*before.topics, *subject.topics))), pattern=pattern)
        found[subject.group] = subject
    return found


def ledger_place(ledger: LedgerConfig) -> FilePath | LedgerTopicName | None:
    """Return where the ledger is; None: there is none."""
    from inbound.spark.ledger_topic import LedgerTopicName

    if ledger.type == "none":
        return None
    if ledger.type == "kafka":
        return LedgerTopicName(ledger.topic)
    return place_of(ledger.path)


# -- replay: which processor, and which offsets ------------------------------------------------------------------------


def channel_of(args: argparse.Namespace, loaded: Loaded) -> PlannedChannel:
    """Return the channel with the processor and the options of this replay.

    Raises:
        ConfigError: there is no such channel, or the processor or its options cannot be used.
    """
    planned = plan_channels(loaded)
    check_channel(args.channel, planned)
    channel = planned[args.channel]
    cls, config = channel.processor, channel.config
    kind, written = config.processor.type, dict(config.processor.options)
    if args.processor is not None:
        try:
            cls = find_processor(args.processor).cls
        except ConfigError as error:
            raise ConfigError(f"--processor {args.processor}: {error}") from None
        kind = args.processor
    if args.options is not None:
        written = _json_object(args.options)
    if args.shadow is not None:
        written = _captured(cls, kind, written, args.shadow)
    options = channel.options
    if (args.processor, args.options, args.shadow) != (None, None, None):
        try:
            options = options_of(cls, written, "options", loaded)
        except ConfigError as error:
            raise ConfigError(f"--processor {kind}: {error}") from None
    given = config.processor.model_copy(update={"type": kind, "options": written})
    config = config.model_copy(update={"processor": given, "on_error": _on_error(args, config)})
    return replace(channel, config=config, processor=cls, options=options)


def _captured(cls: type[BatchEventProcessor], kind: str, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    fields = getattr(cls.Options, "model_fields", {})
    if "sinks" not in fields:
        raise ConfigError(
            f"--shadow: processor {kind} has no option `sinks`, so its output cannot be captured; leave --shadow out, or "
            "give options for a trial by --options"
        )
    sink = {"type": "inbound.spark.replay.shadow:CaptureSink", "folder": str(folder.absolute())}
    return {**options, "sinks": [sink]}


def _on_error(args: argparse.Namespace, config: ChannelConfig) -> OnErrorConfig:
    if args.dead_letters is None:
        return config.on_error
    if config.on_error.then != "dead-letter":
        setting = f"channels.{args.channel}.on_error.then"
        raise ConfigError(
            f"--dead-letters {args.dead_letters}: {setting} is {config.on_error.then}, so nothing is sent there; "
            f"add --set {setting}=dead-letter"
        )
    return config.on_error.model_copy(update={"dead_letter_topic": args.dead_letters})


def digest_of(options: Mapping[str, Any]) -> str:
    """Return a digest of options; it reveals no secret."""
    return hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--options: no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"--options: need a JSON object, got {type(value).__name__}")
    return value


def asked_of(args: argparse.Namespace, topics: tuple[str, ...]) -> RequestedOffsets:
    """Return the offsets that the flags ask for, of `topics`.

    Raises:
        ConfigError: flags exclude each other, or the channel does not read a topic.
    """
    for topic in args.topics:
        if topic not in topics:
            raise ConfigError(
                f"--topic {topic}: the channel does not read it; it reads {', '.join(topics) or 'none that exists'}"
            )
    chosen = tuple(topic for topic in topics if topic in args.topics) if args.topics else topics
    if not chosen:
        raise ConfigError("the channel's topics_pattern matches no topic that exists; there is nothing to replay")
    bounds = (args.from_offset, args.from_time, args.to_offset, args.to_time, args.partitions)
    if args.ranges:
        if args.from_earliest or args.to_latest or any(bound is not None for bound in bounds):
            raise ConfigError("--range names partitions and offsets itself; leave --from…, --to… and --partitions out")
        given = tuple(sorted(_range(text, chosen) for text in args.ranges))
        return RequestedOffsets(tuple(sorted({topic for topic, *_ in given})), "", "", None, given)
    start = args.from_offset if args.from_offset is not None else args.from_time or "earliest"
    end = args.to_offset if args.to_offset is not None else args.to_time or "latest"
    if isinstance(start, int) and isinstance(end, int) and start >= end:
        raise ConfigError(f"--from-offset {start} --to-offset {end}: the range is empty; --to-offset must be larger")
    if start == args.from_time and end == args.to_time and _moment(start) >= _moment(end):
        raise ConfigError(f"--from-time {start[1:]} --to-time {end[1:]}: the range is empty; --to-time must be later")
    return RequestedOffsets(chosen, start, end, args.partitions)


def _range(text: str, topics: tuple[str, ...]) -> tuple[str, int, int, int]:
    match = re.fullmatch(r"(?:(.+)/)?(\d+):(\d+):(\d+)", text, re.ASCII)
    if match is None:
        raise ConfigError(
            f"--range {text}: need PARTITION:FIRST:NEXT, such as 0:100:200, or TOPIC/PARTITION:FIRST:NEXT"
        )
    topic, *numbers = match.groups()
    if topic is None:
        if len(topics) != 1:
            raise ConfigError(f"--range {text}: the channel reads {', '.join(topics)}; choose one: TOPIC/{text}")
        topic = topics[0]
    if topic not in topics:
        raise ConfigError(f"--range {text}: the channel does not read {topic}; it reads {', '.join(topics)}")
    partition, first, end = map(int, numbers)
    return topic, partition, first, end


def _time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or "T" not in text.upper():
        raise argparse.ArgumentTypeError(f"need a time with its zone, such as 2025-01-31T12:00:00Z, got {text}")
    return f"@{text}"


def _moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text)[1:])


CHANNEL = (
    argument("--channel", required=True, metavar="NAME", help="the channel of the configuration"),
    argument("--processor", metavar="TYPE", help="another processor than the channel's, such as module:Class"),
    argument("--options", metavar="JSON", help="other options than the channel's, all of them"),
    argument("--dead-letters", metavar="TOPIC", help="another topic than the channel's dead_letter_topic"),
    argument(
        "--shadow", type=Path, metavar="FOLDER", help="send nothing; write there what the sinks would have received"
    ),
)
RANGE = (
    one_of(
        flag("--from-earliest", "from the first offset in the log; the default"),
        argument("--from-offset", type=offset_number, metavar="N", help="from this offset of each partition"),
        argument("--from-time", type=_time, metavar="RFC3339", help="from the first record of this time or later"),
    ),
    one_of(
        flag("--to-latest", "up to the present last offset, included; the default"),
        argument("--to-offset", type=offset_number, metavar="N", help="up to this offset of each partition, excluded"),
        argument(
            "--to-time", type=_time, metavar="RFC3339", help="up to the first record of this time or later, excluded"
        ),
    ),
    several(
        "--range",
        "these offsets of one partition, NEXT excluded, instead of --from and --to; may be given several times",
        dest="ranges",
        metavar="[TOPIC/]P:FIRST:NEXT",
    ),
    PARTITIONS,
    several("--topic", "only this topic of the channel; may be given several times", dest="topics"),
)

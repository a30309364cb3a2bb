"""`inbound spark archive`: topics to Parquet."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbound.cli.shared.command import Command, argument, check_channel, flag, several, stopping
from inbound.cli.shared.files import known_channels, load_config
from inbound.cli.shared.output import Cell, first_of, note, table
from inbound.cli.spark.options import SPARK, kafka_for_spark, spark_settings
from inbound.config import Loaded, parse_duration
from inbound.errors import ConfigError
from inbound.runtime.signals import Latch
from inbound.spark.session import spark_session

if TYPE_CHECKING:
    from inbound.spark.archive.job import ArchiveSummary

_EVERY, _LATE, _NEVER = "10s", "1d", "never"
#: Hadoop reads these characters as patterns.
_PATTERNS = re.compile(r"[*?\[\]{}]")


def run(args: argparse.Namespace) -> int:
    """Archive, and print what was archived."""
    every = _every(args)
    late = None if args.late == _NEVER else _duration("--late", args.late)
    to = _uri(args.to)
    settings = spark_settings(args)
    loaded = load_config(args)
    spark_kafka = kafka_for_spark(loaded.config.kafka)
    names, patterns = ([], []) if args.compact else _topics_of(loaded, args.channel, args.topic)
    stop = Latch()
    # Without --continuous signals end the process as usual.
    tell = partial(note, "stopping after the batches in flight")
    ended_by_signals = stopping(stop, tell) if args.continuous else nullcontext()
    with spark_session(settings, "archive", note) as spark, ended_by_signals:
        # This imports PySpark: only now, because spark_session reports that it is missing.
        from inbound.spark.archive.job import ArchiveJob, ArchivePlan

        topics = () if args.compact else _resolved(names, patterns, loaded.config.kafka)
        plan = ArchivePlan(to, loaded.config.kafka, topics, spark_kafka, late, every)
        job = ArchiveJob(spark, plan, say=note, stop=stop)
        summary = job.compact() if args.compact else job.run()
    print(json.dumps(as_json(summary, args.to)) if args.json else shown(summary, args.to), flush=True)
    return 1 if any(topic.gaps for topic in summary.topics) else 0


def _topics_of(loaded: Loaded, channels: list[str], topics: list[str]) -> tuple[list[str], list[str]]:
    """Return names and patterns of the chosen topics, by default all.

    Raises ConfigError: there is no such channel, or no channel at all.
    """
    known = known_channels(loaded)
    for name in channels:
        check_channel(name, known)
    if not (known or topics):
        raise ConfigError("the configuration has no channels, so nothing says what to archive; give --topic")
    chosen = [known[name] for name in channels] if channels or topics else list(known.values())
    names = [*topics, *(topic for channel in chosen for topic in channel.topics)]
    return names, [channel.topics_pattern for channel in chosen if channel.topics_pattern]


def _resolved(names: list[str], patterns: list[str], kafka: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the topics; only patterns ask the brokers.

    Raises ConfigError: no topic matches. BrokerUnavailableError: no broker answers.
    """
    found = dict.fromkeys(names)
    if patterns:
        from inbound.spark.cluster_state import KafkaLogs

        with KafkaLogs(kafka) as logs:
            found |= dict.fromkeys(sorted(topic for p in patterns for topic in logs.topics((), p)))
    if not found:
        raise ConfigError(f"no topic matches {', '.join(patterns)}; check topics_pattern, or give --topic")
    return tuple(found)


def shown(summary: ArchiveSummary, to: str) -> str:
    """Return the summary for people."""
    rows: list[list[Cell]] = [
        [
            t.topic,
            t.counts.events,
            t.counts.late,
            t.counts.undecodable,
            t.counts.files,
            t.counts.bytes,
            _offsets(t.until),
        ]
        for t in summary.topics
    ]
    lines = []
    if rows:
        headers = ["topic", "events", "late", "undecodable", "files", "bytes", "archived up to (partition: offset)"]
        lines += [table(headers, rows), ""]
    for topic in summary.topics:
        lines += [
            f"missing: {topic.topic}/{gap.partition}, offsets {gap.first} to {gap.next - 1}: Kafka deleted them before they were "
            "archived; archive more often, or let the topic keep its records longer"
            for gap in topic.gaps
        ]
    compacted = summary.compacted
    if compacted.folders:
        lines.append(f"compacted: {compacted.before:,} files in {compacted.folders:,} folders to {compacted.after:,}")
    lines.append(f"archive: {to} ({summary.seconds:.1f} s)")
    return "\n".join(lines)


def as_json(summary: ArchiveSummary, to: str) -> dict[str, Any]:
    """Return the summary for programs."""
    compacted = summary.compacted
    return {
        "to": to,
        "seconds": round(summary.seconds, 3),
        "topics": {
            t.topic: {
                "events": t.counts.events,
                "late": t.counts.late,
                "undecodable": t.counts.undecodable,
                "files": t.counts.files,
                "bytes": t.counts.bytes,
                "until": {str(partition): offset for partition, offset in sorted(t.until.items())},
                "gaps": [{"partition": gap.partition, "first": gap.first, "next": gap.next} for gap in t.gaps],
                "ever": {"events": t.totals.events, "late": t.totals.late, "undecodable": t.totals.undecodable},
            }
            for t in summary.topics
        },
        "compacted": {"folders": compacted.folders, "files_before": compacted.before, "files_after": compacted.after},
    }


def _offsets(until: Mapping[int, int], most: int = 12) -> str:
    return ", ".join(first_of([f"{partition}: {offset}" for partition, offset in sorted(until.items())], most))


def _every(args: argparse.Namespace) -> float | None:
    if args.compact and (args.continuous or args.channel or args.topic):
        raise ConfigError("--compact archives nothing: --continuous, --channel and --topic do not go with it")
    if not args.continuous:
        if args.every is not None:
            raise ConfigError("--every goes with --continuous; without, everything up to now is archived, once")
        return None
    return _duration("--every", args.every or _EVERY)


def _duration(option: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None
    if seconds <= 0:
        raise ConfigError(f"{option}: need more than 0, got {text}")
    return seconds


def _uri(to: str) -> str:
    if _PATTERNS.search(to):
        raise ConfigError(f"--to {to}: Spark reads *, ?, brackets and braces as patterns; give a folder without")
    return to if "://" in to else f"file://{Path(to).absolute()}"


COMMAND = Command(
    "archive",
    "keep topics as Parquet, each offset once",
    run,
    "Write topics as Parquet files of CloudEvents, by date and type: each offset once, also after crashes. It continues where the "
    "last run ended. Records that are no CloudEvents, and late events, are kept apart. Exit code 0: all is archived; 1: not all, "
    "or Kafka had deleted records before they were archived; 2: wrong options.",
    examples=(
        "inbound spark archive --to ./archive",
        "inbound spark archive --to s3a://bucket/archive --topic orders --continuous --every 30s",
        "inbound spark archive --to ./archive --compact",
    ),
    arguments=(
        *SPARK,
        argument("--to", required=True, metavar="FOLDER", help="a folder, or a URI that Spark can write to"),
        several("--channel", "the topics of this channel; default: of all channels", metavar="NAME"),
        several("--topic", "this topic; --channel and --topic add up", metavar="NAME"),
        flag("--continuous", "go on until SIGTERM or Ctrl-C"),
        argument("--every", metavar="TIME", help=f"with --continuous: time between two batches; default: {_EVERY}"),
        argument(
            "--late",
            default=_LATE,
            metavar="TIME",
            help="an event is late, and goes to a folder of its own, if its time is more than TIME before its record's. A day's "
            f"files are compacted TIME after the day ends. {_NEVER}: no event is late. Default: {_LATE}",
        ),
        flag("--compact", "archive nothing; only compact (a batch run does it at its end)"),
        flag("--json", "print the summary as one JSON object"),
    ),
)

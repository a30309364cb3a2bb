"""`inbound spark archive`: topics to Parquet."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from inbound.cli.files import known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.spark_options import add_spark_options, kafka_for_spark, spark_settings
from inbound.cli.table import Cell, table
from inbound.config import Loaded, parse_duration
from inbound.errors import ConfigError
from inbound.latch import Latch
from inbound.signals import handled
from inbound.spark.session import spark_session
from inbound.topic_names import chooser

if TYPE_CHECKING:
    from inbound.spark.archive.job import Summary

_EVERY, _LATE, _NEVER = "10s", "1d", "never"
#: Hadoop reads them as patterns.
_PATTERNS = re.compile(r"[*?\[\]{}]")


def add_parser(commands: Any) -> None:
    """Add the command to `inbound spark`."""
    parser = commands.add_parser(
        "archive",
        help="keep topics as Parquet, each offset once",
        description="Writes topics as Parquet files of CloudEvents, by date and type: each offset once, whatever dies. It goes "
        "on where it ended the last time. Records that are no CloudEvents, and events that came late, are kept apart. Exit "
        "code 0: all is archived; 1: not, or Kafka had deleted records before they were archived; 2: wrong options.",
        **examples(
            "inbound spark archive --to ./archive",
            "inbound spark archive --to s3a://bucket/archive --topic orders --continuous --every 30s",
            "inbound spark archive --to ./archive --compact",
        ),
    )
    add_spark_options(parser)
    parser.add_argument("--to", required=True, metavar="FOLDER", help="a folder, or a URI that Spark can write to")
    parser.add_argument(
        "--channel",
        action="append",
        default=[],
        metavar="NAME",
        help="the topics of this channel; default: of all channels",
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="this topic; --channel and --topic add up"
    )
    parser.add_argument("--continuous", action="store_true", help="go on until SIGTERM or Ctrl-C")
    parser.add_argument("--every", metavar="TIME", help=f"with --continuous: from batch to batch; default: {_EVERY}")
    parser.add_argument(
        "--late",
        default=_LATE,
        metavar="TIME",
        help="an event is late, and kept apart, if its time is so long before its record's; a day's files are compacted "
        f"when it is over for so long. {_NEVER}: no event is late. Default: {_LATE}",
    )
    parser.add_argument(
        "--compact", action="store_true", help="archive nothing; only compact (a batch run does it at its end)"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Archive, and print what was archived."""
    every, late = _every(args), _late(args.late)
    to = _uri(args.to)
    settings = spark_settings(args)
    loaded = load_config(args)
    spark_kafka = kafka_for_spark(loaded.config.kafka)
    named = None if args.compact else wanted(loaded, args.channel, args.topic)
    with spark_session(settings, "archive", _say) as spark, _stopping(args.continuous) as stop:
        # What follows imports PySpark, so not before spark_session has said whether it is here.
        from inbound.spark.archive.job import ArchiveJob, ArchivePlan

        topics = () if named is None else named.resolve(loaded.config.kafka)
        plan = ArchivePlan(to, loaded.config.kafka, topics, spark_kafka, late, every)
        job = ArchiveJob(spark, plan, say=_say, stop=stop)
        summary = job.compact() if args.compact else job.run()
    if args.json:
        print(json.dumps(as_json(summary, args.to)), flush=True)
    else:
        print(shown(summary, args.to), flush=True)
    return 1 if any(topic.gaps for topic in summary.topics) else 0


class Wanted:
    """Topics by name and by pattern."""

    def __init__(self, names: list[str], patterns: list[str]) -> None:
        self._names = names
        self._patterns = patterns

    def resolve(self, kafka: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the topics; the brokers are asked only where there is a pattern.

        Raises ConfigError: no topic fits. BrokerUnavailableError: no broker answers.
        """
        found = dict.fromkeys(self._names)
        if self._patterns:
            from inbound.spark.archive.topics import Topics

            with Topics(kafka) as topics:
                found |= dict.fromkeys(t for t in topics.names() if any(chooser((), p)(t) for p in self._patterns))
        if not found:
            raise ConfigError(f"no topic matches {', '.join(self._patterns)}; check topics_pattern, or give --topic")
        return tuple(found)


def wanted(loaded: Loaded, channels: list[str], topics: list[str]) -> Wanted:
    """Return the topics that the flags name; without any, those of all channels.

    Raises ConfigError: there is no such channel, or no channel at all.
    """
    known = known_channels(loaded)
    for name in channels:
        if name not in known:
            raise ConfigError(f"--channel {name}: there is none of that name; there are {', '.join(known) or 'none'}")
    if not (known or topics):
        raise ConfigError("the configuration has no channels, so nothing says what to archive; give --topic")
    chosen = [known[name] for name in channels] if channels or topics else list(known.values())
    names = [topic for channel in chosen for topic in channel.topics]
    return Wanted([*topics, *names], [channel.topics_pattern for channel in chosen if channel.topics_pattern])


def shown(summary: Summary, to: str) -> str:
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


def as_json(summary: Summary, to: str) -> dict[str, Any]:
    """Return the summary as a JSON object."""
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
    texts = [f"{partition}: {offset}" for partition, offset in sorted(until.items())]
    return ", ".join(texts[:most] + ([f"and {len(texts) - most} more"] if len(texts) > most else []))


def _every(args: argparse.Namespace) -> float | None:
    if args.compact and (args.continuous or args.channel or args.topic):
        raise ConfigError("--compact archives nothing: --continuous, --channel and --topic do not go with it")
    if not args.continuous:
        if args.every is not None:
            raise ConfigError("--every goes with --continuous; without, everything up to now is archived, once")
        return None
    return _duration("--every", args.every or _EVERY)


def _late(text: str) -> float | None:
    return None if text == _NEVER else _duration("--late", text)


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


@contextmanager
def _stopping(continuous: bool) -> Iterator[Latch]:
    """Give a latch that SIGTERM and Ctrl-C set; without `continuous` they end the process as ever."""
    stop = Latch()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt  # asked twice: at once; what is archived stays
        _say("stopping after the batches under way")
        stop.set()

    if not continuous:
        yield stop
        return
    with handled(ask):
        yield stop


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

"""`inbound spark report`: throughput, lag and delivery latency over time, from ledger and log."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inbound
from inbound.cli.files import known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.spark_options import add_spark_options, kafka_for_spark, spark_settings
from inbound.config import Loaded
from inbound.config.units import parse_duration
from inbound.errors import ConfigError, InboundError
from inbound.ledger.places import FilePath, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inbound.spark.gather import Subject
    from inbound.spark.ledger_topic import LedgerTopic

OK, FAILED, BAD_INPUT, NOTHING = 0, 1, 2, 3


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="throughput, lag and delivery latency of groups over time",
        description="Show how fast, how far behind and how late each group was over time: a table here, charts in an HTML page. "
        "Exit code 0: reported, 1: a failure, 2: bad input, 3: there is nothing to report from.",
        **examples(
            "inbound spark report --output report.html",
            "inbound spark report --channel orders --from 6h --bucket 5m",
            "inbound spark report --from 2025-01-31T00:00:00Z --to 2025-02-01T00:00:00Z --json report.json",
        ),
    )
    add_spark_options(parser)
    parser.add_argument(
        "--channel", action="append", default=[], dest="channels", metavar="NAME",
        help="only this channel of the configuration; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--topic", action="append", default=[], dest="topics", metavar="TOPIC",
        help="only this topic; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--from", type=_moment, dest="begin", metavar="TIME",
        help="RFC 3339, or how long ago, such as 6h; default: as far back as the ledger goes",
    )  # fmt: skip
    parser.add_argument(
        "--to", type=_moment, dest="end", metavar="TIME", help="likewise; default: the end of what happened"
    )
    parser.add_argument(
        "--bucket", type=_width, metavar="DURATION", help="steps of time, such as 1m; default: about 60"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the HTML page there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON there; - is the terminal")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the report and show it."""
    loaded = load_config(args)
    settings = spark_settings(args)
    now = time.time()
    begin, end = (None if one is None else one(now) for one in (args.begin, args.end))
    if begin is not None and end is not None and begin >= end:
        raise ConfigError("--from and --to: the time ends before it begins; --to must be later")
    for option, path in (("--output", args.output), ("--json", args.json)):
        if path is not None and str(path) != "-" and not path.absolute().parent.is_dir():
            raise ConfigError(f"{option} {path}: there is no such folder; make it, or give another")

    try:
        import pyspark

        from inbound.spark.ledger_source import SMALL
        from inbound.spark.report.job import NothingToReportError, Wanted, make_report
        from inbound.spark.session import spark_session
    except ImportError as error:
        raise InboundError(
            f"spark report: {error.name} is not installed. Install it: pip install 'inbound-kafka[spark]'"
        ) from error
    from inbound.cli.report_text import shown
    from inbound.report.figures import to_json
    from inbound.report.report_page import report_page

    place = _ledger(loaded)
    subjects = _subjects(args.channels, loaded)
    topics = set(args.topics)
    if args.channels and not topics and all(one.pattern is None for one in subjects):
        topics = {topic for one in subjects for topic in one.topics}
    wanted = Wanted(subjects, frozenset(topics), begin, end, args.bucket)
    with ExitStack() as stack:
        started: list[SparkSession] = []

        def session() -> SparkSession:
            if not started:
                started.append(stack.enter_context(spark_session(settings, "report", progress=_say)))
            return started[0]

        try:
            report = make_report(
                wanted,
                place,
                loaded.config.kafka,
                session,
                made=now,
                writer=f"inbound {inbound.__version__}, Spark {pyspark.__version__}",
                spark_kafka=kafka_for_spark(loaded.config.kafka),
                small=SMALL if settings.local or not isinstance(place, Path) else None,
            )
        except NothingToReportError as error:
            print(f"nothing to report: {error}", file=sys.stderr)
            return NOTHING
    if str(args.json) == "-":
        print(to_json(report), end="")
    else:
        wide = os.get_terminal_size().columns if sys.stdout.isatty() else None
        bars = (sys.stdout.encoding or "").lower().startswith("utf")
        print(shown(report, width=wide, bars=bars))
        if args.json is not None:
            _write("--json", args.json, to_json(report))
    if args.output is not None:
        _write("--output", args.output, report_page(report))
        print(f"charts: {args.output}", file=sys.stderr)
    return OK


def _ledger(loaded: Loaded) -> FilePath | LedgerTopic:
    from inbound.spark.ledger_topic import LedgerTopic

    ledger = loaded.config.ledger
    if ledger.type == "none":
        raise ConfigError("ledger.type: none: a report is made from the ledger; keep one, in files or in a topic")
    return LedgerTopic(ledger.topic) if ledger.type == "kafka" else place_of(ledger.path)


def _subjects(names: Sequence[str], loaded: Loaded) -> list[Subject]:
    from inbound.spark.gather import Subject

    channels = known_channels(loaded)  # without their code: it need not be installed here
    for name in names:
        if name not in channels:
            raise ConfigError(f"--channel {name}: there is no such channel; there are {', '.join(sorted(channels))}")
    found: dict[str, Subject] = {}
    for name in names or channels:
        subject = Subject.of(channels[name])
        before = found.get(subject.group)
        if before is not None:  # several channels of one group
            topics = tuple(dict.fromkeys((*before.topics, *subject.topics)))
            subject = replace(before, topics=topics, pattern=before.pattern or subject.pattern)
        found[subject.group] = subject
    return list(found.values())


def _write(option: str, path: Path, text: str) -> None:
    """Put a file there, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InboundError(f"{option} {path}: cannot be written ({error.strerror}); give another file") from None


def _moment(text: str) -> Callable[[float], float]:
    """Read a time; what it returns tells the seconds since 1970, given the time now."""
    try:
        ago = parse_duration(text)
    except ValueError:
        pass
    else:
        return lambda now: now - ago
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"need a time such as 2025-01-31T12:00:00Z (UTC if no zone is given), or how long ago, such as 6h; got {text}"
        ) from None
    at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return lambda now: at


def _width(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"need at least 1s, got {text}")
    return seconds


def _say(line: str) -> None:
    print(line, file=sys.stderr)

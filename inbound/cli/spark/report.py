"""`inbound spark report` shows throughput, lag and delivery latency over time."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import inbound
from inbound.cli.shared.command import Command, argument, check_channel, parsed, several
from inbound.cli.shared.files import known_channels, load_config
from inbound.cli.shared.output import note
from inbound.cli.spark.options import SPARK, kafka_for_spark, lazy_session, ledger_place, spark_settings, subjects_of
from inbound.config.units import parse_duration
from inbound.errors import ConfigError, InboundError
from inbound.ledger.disk import replace_file

OK, NOTHING = 0, 3


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
        from inbound.spark.report.job import NothingToReportError, ReportRequest, make_report
    except ImportError as error:
        raise InboundError(
            f"spark report: {error.name} is not installed. Install it: pip install 'inbound-kafka[spark]'"
        ) from error
    from inbound.cli.spark.report_text import shown
    from inbound.report.figures import to_json
    from inbound.report.report_page import report_page

    place = ledger_place(loaded.config.ledger)
    if place is None:
        raise ConfigError("ledger.type: none: a report is made from the ledger; keep one, in files or in a topic")
    channels = known_channels(loaded)  # without their code: it need not be installed here
    for name in args.channels:
        check_channel(name, channels)
    subjects = list(subjects_of(channels[name] for name in args.channels or channels).values())
    topics = set(args.topics)
    if args.channels and not topics and all(one.pattern is None for one in subjects):
        topics = {topic for one in subjects for topic in one.topics}
    try:
        with lazy_session(settings, "report", note) as session:
            report = make_report(
                ReportRequest(subjects, frozenset(topics), begin, end, args.bucket),
                place,
                loaded.config.kafka,
                session,
                made=now,
                writer=f"inbound {inbound.__version__}, Spark {pyspark.__version__}",
                spark_kafka=kafka_for_spark(loaded.config.kafka),
                small=SMALL if settings.local or not isinstance(place, Path) else None,
            )
    except NothingToReportError as error:
        note(f"nothing to report: {error}")
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
        note(f"charts: {args.output}")
    return OK


def _write(option: str, path: Path, text: str) -> None:
    """Write a file, completely or not at all."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise InboundError(f"{option} {path}: cannot be written ({error.strerror}); give another file") from None


def _moment(text: str) -> Callable[[float], float]:
    """Return a function from the present to the named Unix time."""
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
    seconds = parse_duration(text)
    if seconds < 1:
        raise ValueError(f"need at least 1s, got {text}")
    return seconds


COMMAND = Command(
    "report",
    "show throughput, lag and delivery latency of groups over time",
    run,
    "Show the throughput, the lag and the delivery latency of each group over time: a table here, charts in an HTML page. Exit "
    "code 0: reported, 1: a failure, 2: bad input, 3: there is nothing to report from.",
    examples=(
        "inbound spark report --output report.html",
        "inbound spark report --channel orders --from 6h --bucket 5m",
        "inbound spark report --from 2025-01-31T00:00:00Z --to 2025-02-01T00:00:00Z --json report.json",
    ),
    arguments=(
        *SPARK,
        several(
            "--channel",
            "only this channel of the configuration; may be given several times",
            dest="channels",
            metavar="NAME",
        ),
        several("--topic", "only this topic; may be given several times", dest="topics", metavar="TOPIC"),
        argument(
            "--from",
            type=_moment,
            dest="begin",
            metavar="TIME",
            help="RFC 3339, or how long ago, such as 6h; default: the beginning of the ledger",
        ),
        argument("--to", type=_moment, dest="end", metavar="TIME", help="likewise; default: the last entry"),
        argument(
            "--bucket", type=parsed(_width), metavar="DURATION", help="steps of time, such as 1m; default: about 60"
        ),
        argument("--output", type=Path, metavar="FILE", help="write the HTML page there"),
        argument("--json", type=Path, metavar="FILE", help="write the figures as JSON there; - is the terminal"),
    ),
)

"""`inbound spark replay`: a channel's processor over a range of its log once more, the group left alone."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from inbound.cli.argument_types import whole
from inbound.cli.files import load_config
from inbound.cli.help import examples
from inbound.cli.progress import Progress
from inbound.cli.spark_options import add_spark_options, kafka_for_spark, spark_settings
from inbound.cli.spark_replay_channel import add_channel_options, channel_of, digest_of
from inbound.cli.spark_replay_range import add_range_options, asked_of
from inbound.cli.spark_replay_text import as_json, plan_text, summary_text
from inbound.config import Loaded
from inbound.errors import ConfigError, InboundError
from inbound.planning import PlannedChannel
from inbound.processors.base import BatchEventProcessor
from inbound.spark.replay.kafka_log import KafkaLog, open_log
from inbound.spark.replay.marks import ReplayFolder, Standing
from inbound.spark.replay.plan import ReplayPlan, chosen, cut, resolved
from inbound.spark.replay.task import Job

OK, FAILED = 0, 1


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "replay",
        help="run a channel's processor over a range of its log again",
        description="Run a channel's processor, unchanged, over a range of its log on Spark's executors: each partition in "
        "order, what is marked done never again, the group's offsets untouched. Exit code 0: all done, 1: not all, or the "
        "outputs differ, 2: bad input.",
        **examples(
            "inbound spark replay --channel orders --from-time 2025-01-31T00:00:00Z --name january",
            "inbound spark replay --channel orders --shadow out/ --against live.jsonl",
        ),
    )
    add_spark_options(parser)
    add_channel_options(parser)
    add_range_options(parser)
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="what this replay is called: the same name goes on where it was; default: a new one",
    )
    parser.add_argument(
        "--tasks",
        type=whole(1, 100_000, "1 to 100000 tasks"),
        metavar="N",
        help="split into N tasks; only where ordered = False",
    )
    parser.add_argument(
        "--marks", type=Path, metavar="FOLDER",
        help="where marks are kept, on storage that all executors share; default: replays/ in the ledger's folder",
    )  # fmt: skip
    parser.add_argument(
        "--against", type=Path, action="append", default=[], metavar="PATH",
        help="compare with --shadow: a file of the jsonl sink, or another shadow's folder; may be given several times",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print what would be replayed, and do nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the summary there; - is the terminal")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay, and say what it came to."""
    if args.against and args.shadow is None:
        raise ConfigError("--against compares what --shadow captures; give --shadow FOLDER too")
    missing = [str(path) for path in args.against if not path.exists()]
    if missing:
        raise ConfigError(f"--against {missing[0]}: there is no such file or folder")
    loaded = load_config(args)
    channel = channel_of(args, loaded)
    settings = spark_settings(args)
    if settings.conf.get("spark.speculation", "false").lower() != "false":
        raise ConfigError("--conf spark.speculation: a replay runs each task once at a time; leave it false")
    root = _marks_folder(args, loaded)
    name = args.name or f"{args.channel}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}"
    folder = ReplayFolder(root, name)
    if args.dry_run:
        plan, standings = _planned(args, loaded, channel, folder)
        print(plan_text(plan, standings))
        return OK
    folder.claim()
    try:
        return _replay(args, loaded, channel, folder)
    finally:
        folder.lock.release()


def _replay(args: argparse.Namespace, loaded: Loaded, channel: PlannedChannel, folder: ReplayFolder) -> int:
    from inbound.spark.replay.diff import compare
    from inbound.spark.replay.job import Ended, replay
    from inbound.spark.replay.shipping import shipped_plugins
    from inbound.spark.session import spark_session

    plan, before = _planned(args, loaded, channel, folder)
    folder.write_plan(plan)
    print(plan_text(plan, before), file=sys.stderr)
    if args.shadow is not None:
        _make_folder(args.shadow)
    kafka = kafka_for_spark(loaded.config.kafka)
    job = Job(
        folder.root, plan.name, plan.units, args.channel, channel.config, plan.processor, channel.options,
        kafka,
    )  # fmt: skip
    total = sum(unit.next - unit.first for unit in plan.units)
    done_before = sum(one.mark - one.unit.first for one in before)
    if done_before == total and not args.against:
        return _told(args, as_json(plan, before, Ended(tuple(before), {}), 0.0, None))
    settings, plugins = spark_settings(args), args.config.resolve().parent
    difference = None
    with ExitStack() as stack:
        spark = stack.enter_context(spark_session(settings, f"replay {plan.name}", progress=_say))
        if not settings.local:
            stack.enter_context(shipped_plugins(spark, plugins))
        began = time.monotonic()
        progress = Progress("replayed", total)

        def show(done: int) -> None:
            spent = time.monotonic() - began
            speed = (done - done_before) / spent if spent else 0.0
            left = f", {(total - done) / speed:.0f} s left" if speed > 0 and done < total else ""
            progress.update(done, f"{speed:,.0f}/s{left}")

        try:
            ended = replay(spark, job, folder, kafka, [str(plugins)] if settings.local else [], show)
        finally:
            progress.close()
        if args.against:
            difference = compare(spark, args.shadow, args.against, plan.units, args.shadow / "diff.json")
    return _told(args, as_json(plan, before, ended, time.monotonic() - began, difference))


def _told(args: argparse.Namespace, summary: Mapping[str, Any]) -> int:
    """Print and write the summary; returns the exit code that it comes to."""
    if args.json is not None:
        _write_json(args.json, summary)
    if str(args.json) != "-":
        print(summary_text(summary))
    difference = summary["difference"]
    same = difference is None or not (difference["only_here"] or difference["only_there"] or difference["different"])
    return OK if summary["complete"] and same else FAILED


def _planned(
    args: argparse.Namespace, loaded: Loaded, channel: PlannedChannel, folder: ReplayFolder
) -> tuple[ReplayPlan, list[Standing]]:
    """Return the plan of this name, and how far it is; the plan that stands if there is one and it is the same."""
    stands = folder.plan()
    config = channel.config
    with open_log(loaded.config.kafka, config.isolation) as log:
        topics = log.topics(config.topics, config.topics_pattern)
        if config.topics_pattern is not None and loaded.config.ledger.type == "kafka":
            topics.pop(loaded.config.ledger.topic, None)  # the channel does not read it
        # A topic that came to match the pattern since is none of this replay's.
        matching = tuple(topics) if stands is None else stands.asked.topics
        asked = asked_of(args, config.topics or matching)
        wanted = ReplayPlan(
            name=folder.name,
            channel=args.channel,
            group=config.group,
            asked=asked,
            processor=config.processor.type,
            options=digest_of(config.processor.options),
            shadow=None if args.shadow is None else str(args.shadow.absolute()),
            units=(),
        )
        if stands is None:
            return _new(args, wanted, channel.processor, topics, log), []
        standings = [folder.standing(unit) for unit in stands.units]
        stands.refuse_other(wanted, marked=any(one.mark > one.unit.first for one in standings))
        _still_there(standings, topics, log)
        return replace(stands, processor=wanted.processor, options=wanted.options), standings


def _new(
    args: argparse.Namespace,
    wanted: ReplayPlan,
    processor: type[BatchEventProcessor],
    topics: Mapping[str, int],
    log: KafkaLog,
) -> ReplayPlan:
    partitions = chosen(wanted.asked, topics)
    ranges = resolved(wanted.asked, partitions, log.ranges(partitions), lambda at: log.at_time(partitions, at))
    return replace(wanted, units=cut(ranges, args.tasks, ordered=processor.ordered))


def _still_there(standings: list[Standing], topics: Mapping[str, int], log: KafkaLog) -> None:
    """Raise ConfigError if what is left of a replay is not in the log any more."""
    left = [one for one in standings if not one.complete]
    for one in left:
        if one.unit.topic not in topics:
            raise ConfigError(
                f"topic {one.unit.topic}: Kafka has no such topic any more; what is left cannot be replayed"
            )
    logs = log.ranges({one.unit.tp for one in left})
    for one in left:
        held = logs[one.unit.tp]
        if one.mark < held.start or one.unit.next > held.end:
            raise ConfigError(
                f"{one.unit.tp}: offsets {one.mark} to {one.unit.next - 1} are left of this replay, but the log holds "
                f"{held.start} to {held.end - 1} (retention, or the topic was made anew); give another --name and other offsets"
            )


def _marks_folder(args: argparse.Namespace, loaded: Loaded) -> Path:
    if args.marks is not None:
        return Path(args.marks)
    ledger = loaded.config.ledger
    if ledger.type != "files" or not isinstance(ledger.path, Path):
        raise ConfigError(
            "--marks: the ledger is not in a local folder, so say where this replay keeps its marks: a folder that the driver "
            "and all executors share"
        )
    return ledger.path / "replays"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--shadow {folder}: cannot be made ({error.strerror}); give another folder") from None


def _write_json(path: Path, summary: Mapping[str, Any]) -> None:
    text = json.dumps(summary, indent=1)
    if str(path) == "-":
        print(text)
        return
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise InboundError(
            f"--json {path}: cannot be written ({error.strerror}); the replay itself has ended"
        ) from None


def _say(line: str) -> None:
    print(line, file=sys.stderr)

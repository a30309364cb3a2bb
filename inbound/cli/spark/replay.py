"""`inbound spark replay` runs a processor again; the group does not change."""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from inbound.cli.shared.command import Command, argument, flag, several, whole
from inbound.cli.shared.files import load_config
from inbound.cli.shared.output import ProgressLine, note, write_file
from inbound.cli.spark.options import (
    CHANNEL,
    RANGE,
    SPARK,
    asked_of,
    channel_of,
    digest_of,
    kafka_for_spark,
    spark_settings,
)
from inbound.cli.spark.replay_text import as_json, plan_text, summary_text
from inbound.config import Loaded
from inbound.errors import ConfigError
from inbound.plan.plan import PlannedChannel
from inbound.processors.base import BatchEventProcessor
from inbound.spark.cluster_state import KafkaLogs
from inbound.spark.replay.marks import ReplayFolder, Standing
from inbound.spark.replay.plan import ReplayPlan, chosen, cut, resolved
from inbound.spark.replay.task import ReplayJob

OK, FAILED = 0, 1


def run(args: argparse.Namespace) -> int:
    """Replay, and print the result. Returns the exit code."""
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
    from inbound.spark.replay.job import ReplayResult, replay
    from inbound.spark.replay.shadow import compare
    from inbound.spark.session import shipped_plugins, spark_session

    plan, before = _planned(args, loaded, channel, folder)
    folder.write_plan(plan)
    note(plan_text(plan, before))
    if args.shadow is not None:
        _make_folder(args.shadow)
    kafka = kafka_for_spark(loaded.config.kafka)
    job = ReplayJob(
        folder.root, plan.name, plan.units, args.channel, channel.config, plan.processor, channel.options,
        kafka,
    )  # fmt: skip
    total = sum(unit.next - unit.first for unit in plan.units)
    done_before = sum(one.mark - one.unit.first for one in before)
    if done_before == total and not args.against:
        return _told(args, as_json(plan, before, ReplayResult(tuple(before), {}), 0.0, None))
    settings, plugins = spark_settings(args), args.config.resolve().parent
    difference = None
    with ExitStack() as stack:
        spark = stack.enter_context(spark_session(settings, f"replay {plan.name}", progress=note))
        if not settings.local:
            stack.enter_context(shipped_plugins(spark, plugins))
        began = time.monotonic()
        progress = ProgressLine("replayed", total)

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
    """Print and write the summary. Returns the exit code."""
    text = json.dumps(summary, indent=1)
    if str(args.json) == "-":
        print(text)
    else:
        if args.json is not None:
            write_file(
                "--json",
                args.json,
                f"{text}\n",
                advice="the replay itself has ended; for its summary run it again",
            )
        print(summary_text(summary))
    difference = summary["difference"]
    same = difference is None or not (difference["only_here"] or difference["only_there"] or difference["different"])
    return OK if summary["complete"] and same else FAILED


def _planned(
    args: argparse.Namespace, loaded: Loaded, channel: PlannedChannel, folder: ReplayFolder
) -> tuple[ReplayPlan, list[Standing]]:
    """Return this replay's plan and progress; an earlier plan continues."""
    earlier = folder.plan()
    config = channel.config
    with KafkaLogs(loaded.config.kafka, read_committed=config.isolation == "read_committed") as log:
        topics = {name: meta.partitions for name, meta in log.topics(config.topics, config.topics_pattern).items()}
        if config.topics_pattern is not None and loaded.config.ledger.type == "kafka":
            topics.pop(loaded.config.ledger.topic, None)  # the channel does not read it
        # A topic that matches the pattern only since then is not part of this replay.
        matching = tuple(topics) if earlier is None else earlier.asked.topics
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
        if earlier is None:
            return _new(args, wanted, channel.processor, topics, log), []
        standings = [folder.standing(unit) for unit in earlier.units]
        earlier.refuse_other(wanted, marked=any(one.mark > one.unit.first for one in standings))
        _still_there(standings, topics, log)
        return replace(earlier, processor=wanted.processor, options=wanted.options), standings


def _new(
    args: argparse.Namespace,
    wanted: ReplayPlan,
    processor: type[BatchEventProcessor],
    topics: Mapping[str, int],
    log: KafkaLogs,
) -> ReplayPlan:
    partitions = chosen(wanted.asked, topics)
    ranges = resolved(wanted.asked, partitions, log.limits(partitions), lambda at: log.offsets_at(partitions, at))
    return replace(wanted, units=cut(ranges, args.tasks, ordered=processor.ordered))


def _still_there(standings: list[Standing], topics: Mapping[str, int], log: KafkaLogs) -> None:
    """Raise ConfigError if remaining offsets are no longer in the log."""
    left = [one for one in standings if not one.complete]
    for one in left:
        if one.unit.topic not in topics:
            raise ConfigError(
                f"topic {one.unit.topic}: Kafka no longer has this topic; the offsets that are left cannot be replayed"
            )
    logs = log.limits({one.unit.tp for one in left})
    for one in left:
        held = logs[one.unit.tp]
        if one.mark < held.start or one.unit.next > held.end:
            raise ConfigError(
                f"{one.unit.tp}: offsets {one.mark} to {one.unit.next - 1} are left of this replay, but the log holds "
                f"{held.start} to {held.end - 1} (retention, or the topic was recreated); give another --name and other offsets"
            )


def _marks_folder(args: argparse.Namespace, loaded: Loaded) -> Path:
    if args.marks is not None:
        return Path(args.marks)
    ledger = loaded.config.ledger
    if ledger.type != "files" or not isinstance(ledger.path, Path):
        raise ConfigError(
            "--marks: the ledger is not in a local folder, so name the folder for the marks of this replay, which the driver and "
            "all executors share"
        )
    return ledger.path / "replays"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--shadow {folder}: cannot be made ({error.strerror}); give another folder") from None


COMMAND = Command(
    "replay",
    "run a channel's processor over a range of its log again",
    run,
    "Run a channel's processor, unchanged, over a range of its log on Spark's executors: each partition in order, without "
    "offsets that are marked done. The group's offsets stay as they are. Exit code 0: all done, 1: not all, or the outputs "
    "differ, 2: bad input.",
    examples=(
        "inbound spark replay --channel orders --from-time 2025-01-31T00:00:00Z --name january",
        "inbound spark replay --channel orders --shadow out/ --against live.jsonl",
    ),
    arguments=(
        *SPARK,
        *CHANNEL,
        *RANGE,
        argument(
            "--name", metavar="NAME", help="name of this replay: a replay of this name continues; default: a new one"
        ),
        argument(
            "--tasks",
            type=whole(1, 100_000, "1 to 100000 tasks"),
            metavar="N",
            help="split into N tasks; only if the processor has ordered = False",
        ),
        argument(
            "--marks",
            type=Path,
            metavar="FOLDER",
            help="folder for the marks, on storage that all executors share; default: replays/ in the ledger's folder",
        ),
        several(
            "--against",
            "compare with --shadow: a file of the jsonl sink, or another shadow's folder; may be given several times",
            type=Path,
            metavar="PATH",
        ),
        flag("--dry-run", "print the offsets to replay, and do nothing"),
        argument("--json", type=Path, metavar="FILE", help="also write the summary there; - is the terminal"),
    ),
)

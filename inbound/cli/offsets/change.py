"""`inbound offsets import` and `delete`: change the offsets of a stopped group."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from inbound.cli.offsets.options import GROUPS, TOPICS, Chosen, chosen
from inbound.cli.shared.command import CONFIG, EXECUTION, Command, argument
from inbound.cli.shared.output import count, note, table
from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.clock import SystemClock
from inbound.config import read_text
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.observe.explain.facts import duration
from inbound.offsets.changes import Change, OffsetsError, TopicOffsets, outside
from inbound.offsets.csv_file import WantedOffset, read_csv
from inbound.offsets.gather import Reads, ask_logs
from inbound.offsets.kafka_group import read_kafka_group
from inbound.offsets.model import Logs, PartitionSelection
from inbound.offsets.nodes import read_group
from inbound.offsets.removal import Look, delete_group, disturbed, look

#: The changes of offsets, each with its group.
Changes = list[tuple[str, list[Change]]]
#: Offsets by group, topic and partition; None: none.
Wishes = dict[tuple[str, str], dict[int, int | None]]

_CHANGES = ("GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET")
_NOTHING_DONE = "dry run: nothing was changed; do it with --execute"


# -- import ------------------------------------------------------------------------------------------------------------


def run_import(args: argparse.Namespace) -> int:
    """Set offsets, or print the plan. Returns the exit code."""
    if (args.file is None) == (args.from_kafka_group is None):
        raise ConfigError("give a CSV file, or --from-kafka-group NAME, and not both")
    if len(args.group) > 1:
        raise ConfigError("--group: give one; a CSV of several groups names the group in each line")
    what = chosen(args)
    wanted = _from_kafka(args, what) if args.file is None else _from_file(args, what)
    wishes: Wishes = {}
    for one in wanted:
        wishes.setdefault((one.group, one.topic), {})[one.partition] = one.offset
    logs = _checked(wanted, wishes, what, args)
    plan = with_zookeeper(what.config.zookeeper, lambda zk: _plan(zk, wishes))
    return _carry_out(what, wishes, logs, "set") if args.execute else _only_shown(plan)


def _from_file(args: argparse.Namespace, what: Chosen) -> list[WantedOffset]:
    name = "standard input" if str(args.file) == "-" else str(args.file)
    text = sys.stdin.read() if str(args.file) == "-" else read_text(args.file, "CSV")
    group = args.group[0] if args.group else None
    only = what.groups[0] if what.groups is not None and len(what.groups) == 1 else None
    found = read_csv(text, name, group, only)
    chosen_ones = [one for one in found if what.selection.has(one.topic, one.partition)]
    if not chosen_ones:
        raise ConfigError(f"{name}: no line is about a topic of --topic")
    return chosen_ones


def _from_kafka(args: argparse.Namespace, what: Chosen) -> list[WantedOffset]:
    source = args.from_kafka_group
    found = read_kafka_group(what.config.kafka, source, SystemClock())
    found.refuse_if_alive()
    target = args.group[0] if args.group else source
    if not args.group and source not in what.reads:
        raise ConfigError(
            f"--group: name the group that takes over the offsets of {source}; this configuration has: "
            f"{', '.join(what.reads) or 'none'}"
        )
    wanted = [
        WantedOffset(target, tp.topic, tp.partition, offset)
        for tp, offset in sorted(found.offsets.items())
        if what.selection.has(*tp)
    ]
    if not wanted:
        raise OffsetsError(f"Kafka's group {source}: has no offsets of the topics of --topic")
    return wanted


def _checked(
    wanted: Sequence[WantedOffset], wishes: Wishes, what: Chosen, args: argparse.Namespace
) -> Mapping[str, Logs]:
    """Return the logs of the topics, by group.

    Raises:
        BrokerUnavailableError: the brokers don't answer, so nothing can be checked.
        OffsetsError: offsets are not in their logs; the message names the lines of the file.
    """
    found: dict[str, Logs] = {}
    problems: list[str] = []
    lines = {(one.group, one.topic, one.partition): one.line for one in wanted}
    for group in dict.fromkeys(one.group for one in wanted):
        topics = [topic for g, topic in wishes if g == group]
        way = what.reads.get(group, Reads()).way
        found[group] = ask_logs(lambda way=way: what.connect(way), topics, SystemClock())  # type: ignore[misc]
        if found[group].silent:
            raise BrokerUnavailableError(
                f"{found[group].problem}; nothing was changed: offsets are checked against the log"
            )
        for topic in topics:
            offsets = {p: offset for p, offset in wishes[group, topic].items() if offset is not None}
            for partition, offset in sorted(offsets.items()):
                line = lines[group, topic, partition]
                where = f"{args.file}:{line}: " if line else ""
                problems += [f"{where}{one}" for one in outside(topic, {partition: offset}, found[group])]
    if problems:
        raise OffsetsError("\n".join([*problems, "nothing was changed"]))
    return found


# -- delete ------------------------------------------------------------------------------------------------------------


def run_delete(args: argparse.Namespace) -> int:
    """Delete offsets, or print the plan. Returns the exit code."""
    if not args.group:
        raise ConfigError("--group: name the group; there is no default")
    what = chosen(args)
    if args.topic:
        return _delete_offsets(args, what)
    looks = [with_zookeeper(what.config.zookeeper, lambda zk, g=group: _existing(zk, g)) for group in args.group]  # type: ignore[misc]
    seconds = max(what.config.zookeeper.session_timeout, *(one.session for one in looks))
    for one in looks:
        print(f"{one.group}: {_size(one)}: no member, and no partition has an owner")
    if not args.execute:
        note(_NOTHING_DONE)
        return 0
    print(f"waiting {duration(seconds)}, as long as a session lives: nothing may change in that time")
    sys.stdout.flush()
    time.sleep(seconds)
    for one in looks:
        deleted = with_zookeeper(what.config.zookeeper, lambda zk, one=one: _delete(zk, one))  # type: ignore[misc]
        print(f"{one.group}: deleted, {count(deleted, 'node')}")
    return 0


async def _existing(zk: ZooKeeper, group: str) -> Look:
    found = await look(zk, group)
    if not found.nodes:
        raise OffsetsError(
            f"{group}: ZooKeeper has no such group; `inbound offsets show --all-groups` lists all groups"
        )
    found.refuse()
    return found


async def _delete(zk: ZooKeeper, before: Look) -> int:
    now = await look(zk, before.group)
    now.refuse()
    changed = now.changed_since(before)
    if changed is not None:
        raise disturbed(before, changed)
    return await delete_group(zk, now)


def _size(found: Look) -> str:
    offsets = sum(path.count("/") == 5 and path.split("/")[3] == "offsets" for path in found.nodes)
    return f"{count(len(found.nodes), 'node')}, offsets of {count(offsets, 'partition')}"


def _delete_offsets(args: argparse.Namespace, what: Chosen) -> int:
    wishes = with_zookeeper(what.config.zookeeper, lambda zk: _committed(zk, args.group, what.selection))
    plan = with_zookeeper(what.config.zookeeper, lambda zk: _plan(zk, wishes))
    return _carry_out(what, wishes, {}, "withdrawn") if args.execute else _only_shown(plan)


def _only_shown(plan: Changes) -> int:
    print(changes_table(plan))
    note(_NOTHING_DONE)
    return 0


async def _committed(zk: ZooKeeper, groups: Sequence[str], selection: PartitionSelection) -> Wishes:
    wishes: Wishes = {}
    for group in groups:
        nodes = await read_group(zk, group, selection)
        missing = sorted((selection.topics or {}).keys() - nodes.topics.keys())
        if missing:
            raise OffsetsError(
                f"{group}: ZooKeeper has no offsets of {', '.join(missing)}; `inbound offsets show --group {group}` lists "
                "them"
            )
        for topic, found in nodes.topics.items():
            unknown = sorted(((selection.topics or {}).get(topic) or frozenset()) - found.partitions.keys())
            if unknown:
                raise OffsetsError(f"{group}: ZooKeeper has no offset of {topic}/{unknown[0]}; nothing was changed")
            wishes[group, topic] = dict.fromkeys(found.partitions)
    return wishes


# -- both --------------------------------------------------------------------------------------------------------------


def _carry_out(what: Chosen, wishes: Wishes, logs: Mapping[str, Logs], done: str) -> int:
    """Change one topic after the other, and print the changes made."""
    changed: Changes = []
    try:
        for (group, topic), new in wishes.items():
            meta = logs.get(group, Logs()).topics.get(topic)
            change = with_zookeeper(
                what.config.zookeeper,
                lambda zk, g=group, t=topic, n=new, m=meta: TopicOffsets(  # type: ignore[misc]
                    zk, g, t, topic_id=m.topic_id if m is not None else None
                ).change(n, m.partitions if m is not None else 0),
            )
            changed.append((group, change))
    finally:
        if changed:  # also if a later one failed: these changes are made
            print(changes_table(changed))
            partitions = sum(len(changes) for _, changes in changed)
            note(f"{count(partitions, 'offset')} {done}")
    return 0


async def _plan(zk: ZooKeeper, wishes: Wishes) -> Changes:
    return [(group, await TopicOffsets(zk, group, topic).plan(new)) for (group, topic), new in wishes.items()]


def changes_table(groups: Changes) -> str:
    """Return old and new offset of each partition."""
    rows = [(group, c.topic, c.partition, c.old, c.new) for group, changes in groups for c in changes]
    return table(_CHANGES, rows)


IMPORT = Command(
    "import",
    "set a stopped group's offsets",
    run_import,
    "Set the offsets of a group without a live member, from CSV (topic,partition,offset, or group,topic,partition,offset), or "
    "to the offsets of a consumer group in Kafka. Each topic is changed in one transaction, which fails if a member starts. "
    "Offsets outside of the log are refused. Without --execute it only prints what would be done. `offsets reset` moves the "
    "offsets of a running group.",
    examples=(
        "inbound offsets import offsets.csv --group orders-svc",
        "inbound offsets import offsets.csv --group orders-svc --execute",
        "inbound offsets import --from-kafka-group orders-old --group orders-svc --execute",
    ),
    arguments=(
        argument("file", nargs="?", type=Path, metavar="CSV", help="the file; - is standard input"),
        argument(
            "--from-kafka-group",
            metavar="NAME",
            help="take the offsets that this consumer group has committed to Kafka",
        ),
        *CONFIG,
        GROUPS,
        TOPICS,
        EXECUTION,
    ),
)
DELETE = Command(
    "delete",
    "delete a stopped group, or its offsets of a topic",
    run_delete,
    "Without --topic: delete a group with all its nodes in ZooKeeper (offsets, epochs, gates, pauses), once it has had no member "
    "and no change for as long as a session lives. With --topic: withdraw the offsets of a topic, or of some of its partitions, "
    "as if they had never been committed; the nodes stay, and a late commit of a disconnected process is void. Without --execute "
    "it only prints what would be done.",
    examples=(
        "inbound offsets delete --group orders-old",
        "inbound offsets delete --group orders-old --execute",
        "inbound offsets delete --group orders-svc --topic orders:0,1 --execute",
    ),
    arguments=(*CONFIG, GROUPS, TOPICS, EXECUTION),
)

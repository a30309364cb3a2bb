"""`inbound offsets reset` moves a group's offsets while it runs, exactly once."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from inbound.cli.offsets.options import TARGET, reset_of
from inbound.cli.shared.command import CONFIG, EXECUTION, Command, argument, flag, one_of, parsed
from inbound.cli.shared.files import known_channels, load_config
from inbound.cli.shared.output import note, one_line, table
from inbound.cli.shared.zookeeper import user_here, with_tasks, with_zookeeper
from inbound.config import Loaded, parse_duration, parse_manifests, read_text
from inbound.controller import reset_offset
from inbound.controller.reset_offset import (
    Condition,
    ControllerFactory,
    Moved,
    RefInfo,
    ResetCommand,
    State,
    cancel,
    listing,
    read,
    submit,
)
from inbound.controller.reset_offset.moves import preview
from inbound.controller.reset_offset.targets import in_words, time_text
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import ConfigError, ResetError, TransientError
from inbound.kafka.clients.topic_logs import KafkaTopicLogs
from inbound.offsets.gather import Reads, reads_of
from inbound.plan.resets import command_of, ref_mapper_of

#: Exit codes: done, or nothing to do; not done, or not yet.
DONE, NOT_DONE = 0, 1
#: How often the command reads the progress of a reset. Seconds.
LOOK = 0.1
_WITHOUT_END = float("inf")
_MANIFEST = "-f goes without --group, --topic, --ref, --partitions and the options that say where to: the manifest says all that"
_TO = ("to_earliest", "to_latest", "to_datetime", "by_duration", "shift_by", "to_offset", "from_file")
#: The version of the JSON.
FORMAT = 1
_MOVED = ("TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET", "MOVES-BY")
_LIST = ("NAME", "SUBMITTED", "GROUP", "TOPIC", "STATE", "WHAT", "BY")
_CONDITIONS = ("CONDITION", "STATUS", "REASON", "TIME", "MESSAGE")


def run(args: argparse.Namespace) -> int:
    """Move offsets, or print the plan. Returns the exit code."""
    loaded = load_config(args)
    zookeeper = loaded.config.zookeeper
    if args.list:
        commands = with_zookeeper(zookeeper, lambda zk: listing(zk, bad=lambda error: print(error, file=sys.stderr)))
        _say(args, list_table(commands), [as_json(one.info, (), one) for one in commands])
        return DONE
    if args.cancel is not None:
        return _cancel(args, loaded)
    if args.status is not None:
        return _status(args, loaded)
    if args.manifest is not None:
        return _from_manifests(args, loaded)
    return _do(args, loaded, reset_of(args, ref_mapper_of(loaded), time.time()))


# -- resets that are asked for ------------------------------------------------------------------------------------------


def _from_manifests(args: argparse.Namespace, loaded: Loaded) -> int:
    if any(getattr(args, name) for name in ("group", "topic", "ref", "partitions", *_TO)):
        raise ConfigError(_MANIFEST)
    given = parse_manifests({str(args.manifest): read_text(args.manifest, "-f")})
    loaded = replace(
        loaded,
        manifests=(*loaded.manifests, *given.channels),
        subscriptions=(*loaded.subscriptions, *given.subscriptions),
        refused=(*loaded.refused, *given.refused),
    )
    problems = [one.problem for one in given.resets if one.problem is not None]
    if problems:
        raise ConfigError("\n".join(problems))
    if not given.resets:
        raise ConfigError(
            f"-f: {args.manifest} holds no ResetOffset of kafka.eventing.knative.dev; give a file that does"
        )
    mapper = ref_mapper_of(loaded)
    commands = []
    for one in given.resets:
        try:
            commands.append(command_of(one, mapper, created=time.time(), by=user_here()))
        except ResetError as error:
            raise ConfigError(f"{one.where}: {one.name}: {error}") from None
    args.one_of_several = len(commands) > 1
    codes = [_do(args, loaded, replace(command, force_after=args.force_after)) for command in commands]
    return max(codes)


def _do(args: argparse.Namespace, loaded: Loaded, command: ResetCommand) -> int:
    """Carry out one reset, or print its plan."""
    info = command.info
    assert info is not None
    with closing(_logs_of(loaded, info.group)) as logs:
        note(f"group {info.group}, topic {info.topic}: {in_words(command.spec)}")
        moved = with_zookeeper(
            loaded.config.zookeeper, lambda zk: preview(zk, logs, info, command.spec, command.created)
        )
        if not args.execute:
            _say(args, moved_table(info.topic, moved), as_json(info, moved))
            note("dry run: nothing was changed; do it with --execute")
            return DONE
        if not with_zookeeper(loaded.config.zookeeper, lambda zk: submit(zk, command)):
            note(
                f"reset {command.name} was submitted before, and is not done a second time; a new generation or content of "
                "its manifest makes a new reset"
            )
        else:
            note(f"reset {command.name} is submitted")
        seconds = 0.0 if args.no_wait else _WITHOUT_END if args.wait is None else args.wait
        if not seconds:
            return _left_alone(command.name)
        return _carry_out(args, loaded, logs, command.name, seconds)


# -- carrying out ------------------------------------------------------------------------------------------------------


def _logs_of(loaded: Loaded, group: str | None) -> KafkaTopicLogs:
    """Return the topics' logs, read with the settings of the channel."""
    reads = reads_of(known_channels(loaded))
    way = reads.get(group or "", next(iter(reads.values()), Reads())).way
    return KafkaTopicLogs(lambda: replace(way, isolation="read_committed").connect(loaded.config.kafka))


def _carry_out(args: argparse.Namespace, loaded: Loaded, logs: KafkaTopicLogs, name: str, seconds: float) -> int:
    """Lead the resets until this one ends, or for `seconds`."""
    factory = ControllerFactory(mapper=ref_mapper_of(loaded), logs=logs, name=f"{user_here()}, at the command line")
    steps = logging.getLogger(reset_offset.__name__)
    level = steps.level
    if not args.verbose:
        steps.setLevel(logging.WARNING)  # this command prints each step, also those that another process takes
    try:
        command = with_tasks(
            loaded.config.zookeeper,
            lambda zk, tasks: _lead(zk, tasks, factory, name, seconds),
            work_seconds=None,
        )
    except KeyboardInterrupt:
        note("")
        return _left_alone(name)
    finally:
        steps.setLevel(level)
    if command is None:
        raise ResetError(
            f"reset {name}: it was carried out before, and its node is cleared away; there is nothing to do"
        )
    if not command.finished:
        return _left_alone(name)
    return _ended(args, command)


async def _lead(
    zk: ZooKeeper, tasks: Tasks, factory: ControllerFactory, name: str, seconds: float
) -> ResetCommand | None:
    """Carry out the submitted resets in their order.

    Prints the conditions of the reset `name`. Returns that reset as it is at the end.
    """
    controller = factory(zk, tasks)
    until = zk.clock.now() + seconds
    running = tasks.spawn(controller.run(), "resets of offsets")
    connection = zk.connection
    told: dict[str, str] = {}
    try:
        while True:
            if zk.connection != connection:  # the watches belong to the connection before
                connection = zk.connection
                controller.look()
            try:
                command = await read(zk, name)
            except TransientError:  # the controller goes on when ZooKeeper answers again
                await tasks.sleep(LOOK)
                continue
            if command is not None:
                _tell_conditions(command, told)
            if command is None or command.finished or zk.clock.now() >= until:
                return command
            if running.done:
                running.result()
            await tasks.sleep(LOOK)
    finally:
        controller.close()


def _tell_conditions(command: ResetCommand, told: dict[str, str]) -> None:
    """Print conditions that changed; `told` has the printed line of each."""
    for condition in command.conditions:
        line = condition_line(condition)
        if condition.reason and told.get(condition.type) != line:
            told[condition.type] = line
            note(f"  {line}")


def _left_alone(name: str) -> int:
    note(
        f"reset {name} is not done yet. It goes on as long as a process of inbound runs; see its progress with --status "
        f"{name}, carry it on with --status {name} --wait, end it with --cancel {name}"
    )
    return NOT_DONE


def _ended(args: argparse.Namespace, command: ResetCommand) -> int:
    topic = command.info.topic if command.info is not None else ""
    took = (command.ended or command.created) - command.created
    done = command.state is State.SUCCEEDED
    _say(args, moved_table(topic, command.moved) if done else "", as_json(command.info, command.moved, command))
    if done:
        note(f"reset {command.name}: succeeded after {took:.1f} s")
        return DONE
    said = next((c.message for c in command.conditions if c.type == "Succeeded"), "")
    note(f"reset {command.name}: {command.state.value}; no offset was moved: {said}")
    return NOT_DONE


# -- resets that exist --------------------------------------------------------------------------------------------------


def _status(args: argparse.Namespace, loaded: Loaded) -> int:
    command = _known(loaded, args.status)
    if not command.finished and args.wait:
        with closing(_logs_of(loaded, command.info.group if command.info is not None else None)) as logs:
            return _carry_out(args, loaded, logs, command.name, args.wait)
    topic = command.info.topic if command.info is not None else ""
    parts = [list_table([command]), conditions_table(command.conditions)]
    if command.moved:
        parts.append(moved_table(topic, command.moved))
    _say(args, "\n\n".join(parts), as_json(command.info, command.moved, command))
    return DONE if command.state is State.SUCCEEDED else NOT_DONE


def _cancel(args: argparse.Namespace, loaded: Loaded) -> int:
    _known(loaded, args.cancel)
    try:
        command = with_zookeeper(loaded.config.zookeeper, lambda zk: cancel(zk, args.cancel, by=user_here()))
    except ResetError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_DONE
    _say(args, "", as_json(command.info, (), command))
    note(
        f"reset {command.name}: {command.state.value}; no offset is moved, and the partitions that were stopped start again"
    )
    return DONE


def _known(loaded: Loaded, name: str) -> ResetCommand:
    async def look(zk: ZooKeeper) -> tuple[ResetCommand | None, Sequence[ResetCommand]]:
        found = await read(zk, name)
        return found, () if found is not None else await listing(zk, bad=lambda error: None)

    found, others = with_zookeeper(loaded.config.zookeeper, look)
    if found is None:
        there = ", ".join(one.name for one in others) or "none"
        raise ConfigError(f"reset {name}: there is no such reset (any more); there are: {there}")
    return found


# -- inside ------------------------------------------------------------------------------------------------------------


def _say(args: argparse.Namespace, text: str, data: Any) -> None:
    if args.json:
        print(json.dumps(data, indent=None if getattr(args, "one_of_several", False) else 2))
    elif text:
        print(text)


def _seconds(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text)


# -- tables, and JSON --------------------------------------------------------------------------------------------------


def moved_table(topic: str, moved: Iterable[Moved]) -> str:
    """Return a table of each partition's old and new offset."""
    rows = [(topic, m.partition, m.old, m.new, None if m.old is None else _signed(m.new - m.old)) for m in moved]
    return table(_MOVED, rows)


def list_table(commands: Sequence[ResetCommand]) -> str:
    """Return a line for each reset."""
    if not commands:
        return "no resets"
    rows = []
    for one in commands:
        group, topic = (one.info.group, one.info.topic) if one.info is not None else (str(one.ref), None)
        rows.append((one.name, time_text(one.created), group, topic, one.state.value, in_words(one.spec), one.by))
    return table(_LIST, rows)


def conditions_table(conditions: Sequence[Condition]) -> str:
    """Return a line for each condition."""
    return table(_CONDITIONS, [(c.type, c.status, c.reason, c.time, c.message) for c in conditions])


def condition_line(condition: Condition) -> str:
    """Return `ConsumerGroupsStopped: True (Stopped): no partition has an owner`."""
    reason = f" ({condition.reason})" if condition.reason else ""
    message = f": {one_line(condition.message)}" if condition.message else ""
    return f"{condition.type}: {condition.status}{reason}{message}"


def as_json(info: RefInfo | None, moved: Iterable[Moved], command: ResetCommand | None = None) -> dict[str, Any]:
    """Return a reset for programs, with the names of Knative's status."""
    return {
        "format": FORMAT,
        "dry_run": command is None,
        "name": command.name if command is not None else None,
        "group": info.group if info is not None else None,
        "topic": info.topic if info is not None else None,
        "state": command.state.value if command is not None else None,
        "created": command.created if command is not None else None,
        "ended": command.ended if command is not None else None,
        "partitions": [{"partition": m.partition, "oldOffset": m.old, "newOffset": m.new} for m in moved],
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message, "lastTransitionTime": c.time}
            for c in (command.conditions if command is not None else ())
        ],
    }


def _signed(number: int) -> str:
    return f"{number:+,}" if number else "0"


COMMAND = Command(
    "reset",
    "move a group's offsets while it runs",
    run,
    "Move the offsets of a group in one topic, on all replicas, exactly once, even if processes die: all replicas stop reading "
    "the topic, the offsets are moved, and all replicas continue from there. Works also while no replica is alive. Without "
    "--execute it only prints what would be moved. Exit code 0: done; 1: not done (yet); 2: refused.",
    examples=(
        "inbound offsets reset --group orders-svc --topic orders --to-datetime 2026-01-31T02:40:00Z",
        "inbound offsets reset --ref channel/orders --by-duration PT2H --execute",
        "inbound offsets reset -f reset.yaml --execute",
        "inbound offsets reset --list",
    ),
    arguments=(
        *CONFIG,
        *TARGET,
        argument(
            "-f",
            "--manifest",
            type=Path,
            metavar="FILE",
            help="take the resets from the ResetOffset manifests (Knative) in this file",
        ),
        EXECUTION,
        argument(
            "--wait",
            nargs="?",
            type=parsed(_seconds),
            const=_WITHOUT_END,
            metavar="SECONDS",
            help="with --execute: carry it out, and wait this long for its end; default: no limit; 0: only submit it",
        ),
        flag("--no-wait", "the same as --wait 0"),
        argument(
            "--force-after",
            type=parsed(_seconds),
            metavar="SECONDS",
            help="fence members that have not stopped after this time: their batches in flight are not committed; default: wait",
        ),
        one_of(
            flag("--list", "show the resets of the last days"),
            argument(
                "--status", metavar="NAME", help="show the progress of a reset; with --wait carry it on to its end"
            ),
            argument(
                "--cancel",
                metavar="NAME",
                help="end a reset that has not moved anything yet; its group goes on as before",
            ),
        ),
        flag("--json", "print JSON; where a file has several resets, a line for each"),
    ),
)

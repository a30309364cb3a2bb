"""`inbound offsets reset`: moves a group's offsets while its replicas run, exactly once."""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inbound.cli.argument_types import parsed
from inbound.cli.files import add_config_options, known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.offsets_options import add_execution
from inbound.cli.offsets_reset_spec import add_target_options, asked
from inbound.cli.offsets_reset_text import as_json, condition_line, conditions_table, list_table, moved_table
from inbound.cli.zookeeper import with_tasks, with_zookeeper
from inbound.config import Loaded, parse_duration, parse_manifests, read_text
from inbound.controller import reset_offset
from inbound.controller.reset_offset import (
    ControllerFactory,
    RefMapper,
    ResetCommand,
    State,
    cancel,
    listing,
    new_name,
    read,
    submit,
)
from inbound.controller.reset_offset.preview import Preview, preview
from inbound.controller.reset_offset.targets import in_words
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import ConfigError, ResetError, TransientError
from inbound.kafka.topic_logs import KafkaTopicLogs
from inbound.offsets.gather import Reads, reads_of
from inbound.reset_manifests import command_of
from inbound.reset_refs import ref_mapper_of

#: Exit codes: done (or nothing to do); not done, or not yet; what was asked for is refused.
DONE, NOT_DONE, REFUSED = 0, 1, 2
#: How often it is looked how far a reset has come. Seconds.
LOOK = 0.1
_WITHOUT_END = float("inf")
_MANIFEST = (
    "-f goes without --group, --topic, --ref, --partitions and the options that say where to: the manifest says it"
)


def add_parser(subcommands: Any) -> None:
    """Add the command to `inbound offsets`."""
    parser = subcommands.add_parser(
        "reset",
        help="move a group's offsets while it runs",
        description="Move the offsets of a group in one topic, on all replicas, exactly once, whoever dies meanwhile: all replicas "
        "stop that topic, the offsets are moved, all go on from there. Works also while no replica is alive. Without "
        "--execute it only prints what would be moved. Exit code 0: done; 1: not done (yet); 2: what was asked for is refused.",
        **examples(
            "inbound offsets reset --group orders-svc --topic orders --to-datetime 2026-01-31T02:40:00Z",
            "inbound offsets reset --ref channel/orders --by-duration PT2H --execute",
            "inbound offsets reset -f reset.yaml --execute",
            "inbound offsets reset --list",
        ),
    )
    add_config_options(parser)
    add_target_options(parser)
    parser.add_argument(
        "-f",
        "--manifest",
        type=Path,
        metavar="FILE",
        help="the resets that Knative's ResetOffset manifests in a file ask for",
    )
    add_execution(parser)
    parser.add_argument(
        "--wait",
        nargs="?",
        type=parsed(_seconds),
        const=_WITHOUT_END,
        metavar="SECONDS",
        help="with --execute: carry it out and wait so long for its end; default: as long as it takes; 0: only submit it",
    )
    parser.add_argument("--no-wait", action="store_true", help="the same as --wait 0")
    parser.add_argument(
        "--force-after",
        type=parsed(_seconds),
        metavar="SECONDS",
        help="overtake members that have not stopped after so long: what they have in hand is not committed; default: wait",
    )
    other: Any = parser.add_mutually_exclusive_group()
    other.add_argument("--list", action="store_true", help="show the resets of the last days")
    other.add_argument(
        "--status", metavar="NAME", help="show how far a reset has come; with --wait carry it on to its end"
    )
    other.add_argument(
        "--cancel", metavar="NAME", help="end a reset that has not moved anything yet; its group goes on as before"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; where a file has several resets, a line for each"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show what would be moved, or move it. Returns the exit code."""
    try:
        return _run(args, load_config(args))
    except ResetError as error:
        raise ConfigError(str(error)) from None  # refused: exit code 2


def _run(args: argparse.Namespace, loaded: Loaded) -> int:
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
    now = time.time()
    one = asked(args, ref_mapper_of(loaded), now)
    command = ResetCommand(
        name=new_name(now),
        ref=one.ref,
        info=one.info,
        spec=one.spec,
        created=now,
        by=_who(),
        force_after=args.force_after,
    )
    return _do(args, loaded, command)


# -- what is asked for -------------------------------------------------------------------------------------------------


def _from_manifests(args: argparse.Namespace, loaded: Loaded) -> int:
    if any(getattr(args, name) for name in ("group", "topic", "ref", "partitions", *_TO)):
        raise ConfigError(_MANIFEST)
    given = parse_manifests({str(args.manifest): read_text(args.manifest)})
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
        raise ConfigError(f"{args.manifest}: holds no ResetOffset of kafka.eventing.knative.dev; give a file that does")
    mapper = ref_mapper_of(loaded)
    commands = []
    for one in given.resets:
        try:
            commands.append(command_of(one, mapper, created=time.time(), by=_who()))
        except ResetError as error:
            raise ConfigError(f"{one.where}: {one.name}: {error}") from None
    args.one_of_several = len(commands) > 1
    codes = [_do(args, loaded, replace(command, force_after=args.force_after)) for command in commands]
    return max(codes)


_TO = ("to_earliest", "to_latest", "to_datetime", "by_duration", "shift_by", "to_offset", "from_file")


def _do(args: argparse.Namespace, loaded: Loaded, command: ResetCommand) -> int:
    """Show what one reset would move; with --execute submit it, and carry it out."""
    info = command.info
    assert info is not None
    with _Work(loaded, info.group) as work:
        _tell(f"group {info.group}, topic {info.topic}: {in_words(command.spec)}")
        found: Preview = with_zookeeper(
            loaded.config.zookeeper, lambda zk: preview(zk, work.logs, info, command.spec, command.created)
        )
        if not args.execute:
            _say(args, moved_table(info.topic, found.moved), as_json(info, found.moved))
            _tell("dry run: nothing was changed; do it with --execute")
            return DONE
        if not with_zookeeper(loaded.config.zookeeper, lambda zk: submit(zk, command)):
            _tell(
                f"reset {command.name} was submitted before, and is not done a second time; another generation or content of "
                "its manifest would be another reset"
            )
        else:
            _tell(f"reset {command.name} is submitted")
        seconds = 0.0 if args.no_wait else _WITHOUT_END if args.wait is None else args.wait
        if not seconds:
            return _left_alone(command.name)
        return _carry_out(args, loaded, work, command.name, seconds)


# -- carrying out ------------------------------------------------------------------------------------------------------


class _Work:
    """What a process needs to carry resets out, and that is closed again."""

    def __init__(self, loaded: Loaded, group: str | None) -> None:
        self.mapper: RefMapper = ref_mapper_of(loaded)
        reads = reads_of(known_channels(loaded))
        way = reads.get(group or "", next(iter(reads.values()), Reads())).way
        self.logs = KafkaTopicLogs(lambda: replace(way, isolation="read_committed").connect(loaded.config.kafka))

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, *of_error: object) -> None:
        self.logs.close()


def _carry_out(args: argparse.Namespace, loaded: Loaded, work: _Work, name: str, seconds: float) -> int:
    """Lead until the reset has ended, or for `seconds`. Returns the exit code."""
    factory = ControllerFactory(mapper=work.mapper, logs=work.logs, name=f"{_who()}, at the command line")
    told = _Told()
    steps = logging.getLogger(reset_offset.__name__)
    level = steps.level
    if not args.verbose:
        steps.setLevel(logging.WARNING)  # what it says of each step is told here, whoever takes the step
    try:
        command = with_tasks(
            loaded.config.zookeeper,
            lambda zk, tasks: _lead(zk, tasks, factory, name, seconds, told),
            work_seconds=None,
        )
    except KeyboardInterrupt:
        _tell("")
        return _left_alone(name)
    finally:
        steps.setLevel(level)
    if command is None:
        raise ResetError(f"reset {name}: it was carried out before, and is cleared away; there is nothing to be done")
    if not command.finished:
        return _left_alone(name)
    return _ended(args, command)


async def _lead(
    zk: ZooKeeper,
    tasks: Tasks,
    factory: ControllerFactory,
    name: str,
    seconds: float,
    told: Callable[[ResetCommand], None],
) -> ResetCommand | None:
    """Carry out whatever is to be done, for others may be before this one; return it as it is in the end."""
    controller = factory(zk, tasks)
    until = zk.clock.now() + seconds
    running = tasks.spawn(controller.run(), "resets of offsets")
    connection = zk.connection
    try:
        while True:
            if zk.connection != connection:  # what it watched was watched in the one before
                connection = zk.connection
                controller.look()
            try:
                command = await read(zk, name)
            except TransientError:  # the controller goes on when it answers again
                await tasks.sleep(LOOK)
                continue
            if command is not None:
                told(command)
            if command is None or command.finished or zk.clock.now() >= until:
                return command
            if running.done:
                running.result()
            await tasks.sleep(LOOK)
    finally:
        controller.close()


class _Told:
    """Says each condition as it turns."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __call__(self, command: ResetCommand) -> None:
        for condition in command.conditions:
            line = condition_line(condition)
            if condition.reason and self._said.get(condition.type) != line:
                self._said[condition.type] = line
                _tell(f"  {line}")


def _left_alone(name: str) -> int:
    _tell(
        f"reset {name} is not done yet. It goes on as long as a process of inbound runs; see how far it is with --status "
        f"{name}, carry it on with --status {name} --wait, end it with --cancel {name}"
    )
    return NOT_DONE


def _ended(args: argparse.Namespace, command: ResetCommand) -> int:
    topic = command.info.topic if command.info is not None else ""
    took = (command.ended or command.created) - command.created
    done = command.state is State.SUCCEEDED
    _say(args, moved_table(topic, command.moved) if done else "", as_json(command.info, command.moved, command))
    if done:
        _tell(f"reset {command.name}: succeeded after {took:.1f} s")
        return DONE
    said = next((c.message for c in command.conditions if c.type == "Succeeded"), "")
    _tell(f"reset {command.name}: {command.state.value}; no offset was moved: {said}")
    return NOT_DONE


# -- looking after -----------------------------------------------------------------------------------------------------


def _status(args: argparse.Namespace, loaded: Loaded) -> int:
    command = _known(loaded, args.status)
    if not command.finished and args.wait:
        with _Work(loaded, command.info.group if command.info is not None else None) as work:
            return _carry_out(args, loaded, work, command.name, args.wait)
    topic = command.info.topic if command.info is not None else ""
    parts = [list_table([command]), conditions_table(command.conditions)]
    if command.moved:
        parts.append(moved_table(topic, command.moved))
    _say(args, "\n\n".join(parts), as_json(command.info, command.moved, command))
    return DONE if command.state is State.SUCCEEDED else NOT_DONE


def _cancel(args: argparse.Namespace, loaded: Loaded) -> int:
    _known(loaded, args.cancel)
    try:
        command = with_zookeeper(loaded.config.zookeeper, lambda zk: cancel(zk, args.cancel, by=_who()))
    except ResetError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_DONE
    _say(args, "", as_json(command.info, (), command))
    _tell(f"reset {command.name}: {command.state.value}; no offset is moved, and what was stopped is started again")
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
    """Print the result."""
    if args.json:
        print(json.dumps(data, indent=None if getattr(args, "one_of_several", False) else 2))
    elif text:
        print(text)


def _tell(text: str) -> None:
    """Print what is going on: not on the output, which is the result alone."""
    print(text, file=sys.stderr, flush=True)


def _who() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _seconds(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text)

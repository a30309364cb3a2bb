"""`inbound pause`, `resume` and `rebalance`: by ZooKeeper alone, so they work while no consumer is alive."""

from __future__ import annotations

import argparse
import getpass
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

from inbound.cli.files import add_config_options, known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.zookeeper import with_zookeeper
from inbound.config import ChannelConfig
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import ConfigError
from inbound.operations import Operation, Target, UnknownTargetError, Verb, carry_out

_HELP = {
    Verb.PAUSE: (
        "let a group read nothing until it is resumed",
        "Batches in hand end and are committed, then nothing is read. Partitions are kept, taken and handed over as always. "
        "The pause is kept in ZooKeeper: it counts for all members of the group, also for those that start later.",
    ),
    Verb.RESUME: (
        "end a pause",
        "End the operator's pauses of a group, with --consumer that of one member only. Others (of a reset) stay.",
    ),
    Verb.REBALANCE: (
        "let all members look at their shares now",
        "Every member of the group looks at members and partitions now, without waiting for its timer.",
    ),
}

_EXAMPLES = {
    Verb.PAUSE: (
        "inbound pause",
        "inbound pause orders --reason 'database is full'",
        "inbound pause orders --consumer a-1",
    ),
    Verb.RESUME: ("inbound resume", "inbound resume orders"),
    Verb.REBALANCE: ("inbound rebalance orders",),
}


def add_parser(commands: Any) -> None:
    """Add the commands to the command line."""
    for verb, (short, long) in _HELP.items():
        parser = commands.add_parser(
            verb.value,
            help=short,
            description=f"{long} Exit code 1 if ZooKeeper does not answer.",
            **examples(*_EXAMPLES[verb]),
        )
        parser.add_argument(
            "channel", nargs="?", metavar="CHANNEL", help="a channel of the configuration; default: all of them"
        )
        add_config_options(parser)
        if verb is not Verb.REBALANCE:
            parser.add_argument("--consumer", metavar="ID", help="one member of the group only")
        if verb is Verb.PAUSE:
            parser.add_argument("--reason", metavar="TEXT", help="why, for whoever looks at the status")
        parser.set_defaults(run=run, verb=verb)


def run(args: argparse.Namespace) -> int:
    """Carry the operation out for each channel. Returns the exit code."""
    loaded = load_config(args)
    targets = _targets(known_channels(loaded), args.channel)
    operation = Operation(args.verb, getattr(args, "consumer", None), getattr(args, "reason", None))
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    lines = with_zookeeper(loaded.config.zookeeper, lambda zk: _carry_out(zk, targets, operation, by))
    print("\n".join(lines))
    return 0


async def _carry_out(zk: ZooKeeper, targets: Iterable[Target], operation: Operation, by: str) -> list[str]:
    """Return a line per channel. With one member's id only channels that know it are meant; one has to."""
    lines, unknown, groups = [], [], dict[str, str]()
    for target in targets:
        first = groups.setdefault(target.group, target.channel)
        if first != target.channel:
            lines.append(f"{target.channel}: as {first}: both are of group {target.group}")
            continue
        try:
            done = await carry_out(zk, target, operation, by=by, wall=time.time())
        except UnknownTargetError as error:
            unknown.append(error)
        else:
            lines.append(done.message)
    if unknown and not lines:
        raise UnknownTargetError("\n".join(map(str, unknown)))
    return lines


def _targets(channels: Mapping[str, ChannelConfig], channel: str | None) -> list[Target]:
    if channel is not None and channel not in channels:
        raise ConfigError(f"no channel {channel!r} in this configuration; there are: {', '.join(channels)}")
    return [Target.of(name, c) for name, c in channels.items() if channel in (None, name)]

"""`inbound pause`, `resume`, `rebalance` and `acl` use ZooKeeper alone."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from inbound.cli.shared.command import CONFIG, Command, argument, check_channel, flag
from inbound.cli.shared.files import known_channels, load_config
from inbound.cli.shared.output import first_of
from inbound.cli.shared.zookeeper import user_here, with_zookeeper
from inbound.config import ChannelConfig
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import ConfigError
from inbound.group.operations import ChannelTarget, Operation, OperationKind, UnknownTargetError, carry_out
from inbound.process.zookeeper.client import NodeRights, correct, look, roots_of

#: So many nodes are named.
_SHOWN = 20


def run(args: argparse.Namespace) -> int:
    """Carry out the operation for each channel. Returns the exit code."""
    loaded = load_config(args)
    targets = _targets(known_channels(loaded), args.channel)
    operation = Operation(args.verb, getattr(args, "consumer", None), getattr(args, "reason", None))
    lines = with_zookeeper(loaded.config.zookeeper, lambda zk: _carry_out(zk, targets, operation, user_here()))
    print("\n".join(lines))
    return 0


async def _carry_out(zk: ZooKeeper, targets: Iterable[ChannelTarget], operation: Operation, by: str) -> list[str]:
    """Return a line per channel; at least one must know the member."""
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


def _targets(channels: Mapping[str, ChannelConfig], channel: str | None) -> list[ChannelTarget]:
    if channel is not None:
        check_channel(channel, channels)
    return [ChannelTarget.of(name, c) for name, c in channels.items() if channel in (None, name)]


def run_acl(args: argparse.Namespace) -> int:
    """Look, and with `--apply` correct. Returns the exit code."""
    loaded = load_config(args)
    settings = loaded.config.zookeeper
    former: Path | None = args.former_password_file
    if former is not None and (settings.auth is None or settings.auth.scheme != "digest"):
        raise ConfigError(
            "--former-password-file: only for zookeeper.auth.scheme digest; others know users by name alone"
        )
    roots = roots_of(channel.group for channel in known_channels(loaded).values())
    own = ["/", "/consumers"] if settings.chroot else []

    async def work(zk: KazooZooKeeper) -> NodeRights:
        below, above = await look(zk, roots), [path for path in own if await zk.differs(path)]
        found = NodeRights(below.looked_at + len(own), (*above, *below.differ), below.closed)
        if args.apply:
            await correct(zk, found.differ)
        return found

    found = with_zookeeper(settings, work, former_password=former)
    closed = [f"{path}: closed to us: another user made it" for path in found.closed]
    for line in first_of([*closed, *(f"{path}: other access rights" for path in found.differ)], _SHOWN):
        print(line)
    done = "corrected" if args.apply else "to correct: inbound acl --apply"
    told = [
        f"{found.looked_at} nodes looked at",
        f"{len(found.differ)} {done}" if found.differ else "all as configured",
    ]
    if found.closed:
        told[1:] = [*(told[1:] if found.differ else []), f"{len(found.closed)} closed to us"]
    print(", ".join(told))
    return 1 if found.closed or (found.differ and not args.apply) else 0


_CHANNEL = argument(
    "channel", nargs="?", metavar="CHANNEL", help="a channel of the configuration; default: all channels"
)
_CONSUMER = argument("--consumer", metavar="ID", help="one member of the group only")

COMMANDS = (
    Command(
        OperationKind.PAUSE.value,
        "pause a group until it is resumed",
        run,
        "Batches in flight end and are committed, then nothing is read. Members keep, claim and release partitions as always. "
        "The pause is kept in ZooKeeper: it applies to all members of the group, also to members that start later. Exit code "
        "1 if ZooKeeper does not answer.",
        examples=(
            "inbound pause",
            "inbound pause orders --reason 'database is full'",
            "inbound pause orders --consumer a-1",
        ),
        arguments=(
            _CHANNEL,
            *CONFIG,
            _CONSUMER,
            argument("--reason", metavar="TEXT", help="the reason, which `inbound status` shows"),
        ),
        defaults={"verb": OperationKind.PAUSE},
    ),
    Command(
        OperationKind.RESUME.value,
        "end a pause",
        run,
        "End the operator's pauses of a group; with --consumer, only that of one member. Other pauses, such as a reset's, stay. "
        "Exit code 1 if ZooKeeper does not answer.",
        examples=("inbound resume", "inbound resume orders"),
        arguments=(_CHANNEL, *CONFIG, _CONSUMER),
        defaults={"verb": OperationKind.RESUME},
    ),
    Command(
        OperationKind.REBALANCE.value,
        "let all members check their shares now",
        run,
        "Every member of the group reads members and partitions, and plans its share, now and not at its next timer. Exit code 1 "
        "if ZooKeeper does not answer.",
        examples=("inbound rebalance orders",),
        arguments=(_CHANNEL, *CONFIG),
        defaults={"verb": OperationKind.REBALANCE},
    ),
)
ACL = Command(
    "acl",
    "check or correct the access rights of nodes in ZooKeeper",
    run_acl,
    "Check the nodes of the configuration's groups and, below a chroot, the chroot and /consumers, and name the nodes whose "
    "access rights (ACL) differ from zookeeper.acl. Exit code 0 if none is left, else 1.",
    examples=("inbound acl", "inbound acl --apply", "inbound acl --apply --former-password-file old-password"),
    arguments=(
        *CONFIG,
        flag("--apply", "give them the configured access rights"),
        argument(
            "--former-password-file",
            type=Path,
            metavar="FILE",
            help="the former password of the digest user: it gives access to nodes that were created with it",
        ),
    ),
)

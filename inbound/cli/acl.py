"""`inbound acl`: which nodes in ZooKeeper have other access rights than the configuration asks for; and corrects them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from inbound.cli.files import add_config_options, known_channels, load_config
from inbound.cli.help import examples
from inbound.cli.zookeeper import with_zookeeper
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.errors import ConfigError
from inbound.node_access import Found, correct, look, roots_of

#: So many nodes are named.
_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "acl",
        help="who may use the nodes in ZooKeeper, and is it as configured",
        description="Look at the nodes of the configuration's groups and, below a chroot, at the chroot and /consumers: name those "
        "whose access rights (ACL) are others than zookeeper.acl asks for. Exit code 0 if none is left, else 1.",
        **examples("inbound acl", "inbound acl --apply", "inbound acl --apply --former-password-file old-password"),
    )
    add_config_options(parser)
    parser.add_argument("--apply", action="store_true", help="give them the access rights that they should have")
    parser.add_argument(
        "--former-password-file",
        type=Path,
        metavar="FILE",
        help="a password that the user of scheme digest had before: with it nodes are let in that were made then",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look, and correct if that is asked for. Returns the exit code."""
    loaded = load_config(args)
    settings = loaded.config.zookeeper
    former: Path | None = args.former_password_file
    if former is not None and (settings.auth is None or settings.auth.scheme != "digest"):
        raise ConfigError(
            "--former-password-file: only for zookeeper.auth.scheme digest; others know users by name alone"
        )
    roots = roots_of(channel.group for channel in known_channels(loaded).values())
    own = ["/", "/consumers"] if settings.chroot else []

    async def work(zk: KazooZooKeeper) -> Found:
        below, above = await look(zk, roots), [path for path in own if await zk.differs(path)]
        found = Found(below.looked_at + len(own), (*above, *below.differ), below.closed)
        if args.apply:
            await correct(zk, found.differ)
        return found

    found = with_zookeeper(settings, work, former_password=former)
    for path in (*found.closed, *found.differ)[:_SHOWN]:
        print(f"{path}: {'closed to us: another user made it' if path in found.closed else 'other access rights'}")
    if (more := len(found.closed) + len(found.differ) - _SHOWN) > 0:
        print(f"and {more} more")
    done = "corrected" if args.apply else "to correct: inbound acl --apply"
    told = [
        f"{found.looked_at} nodes looked at",
        f"{len(found.differ)} {done}" if found.differ else "all as configured",
    ]
    if found.closed:
        told[1:] = [*(told[1:] if found.differ else []), f"{len(found.closed)} closed to us"]
    print(", ".join(told))
    return 1 if found.closed or (found.differ and not args.apply) else 0

"""`inbound cluster` runs a real Kafka and ZooKeeper on this machine."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from inbound.cli.shared.command import Command, argument, flag, whole
from inbound.cli.shared.files import jar_cache, java_command, state_dir
from inbound.cli.shared.output import note
from inbound.embedded import EmbeddedCluster, detached
from inbound.embedded.cluster import own_until_signalled, prepare
from inbound.embedded.jars import KAFKA, ZOOKEEPER, connector, fetch
from inbound.embedded.locks import alive, holder

_SERVERS = whole(1, 10**6, "1 server or more")


def _up(args: argparse.Namespace) -> int:
    for what, count in (("Kafka", args.brokers), ("ZooKeeper", args.zookeepers)):
        if count % 2 == 0:
            note(
                f"cluster up: {count} {what} servers survive no more deaths than {count - 1} would, because a quorum is "
                f"more than half; {count - 1} or {count + 1} make more sense"
            )
    if args.detach:
        info = detached.start(
            args.dir or cluster_dir(), jars=jar_cache(), java=java_command(),
            brokers=args.brokers, zookeepers=args.zookeepers, progress=note,
        )  # fmt: skip
        down = f"cluster down --dir {args.dir}" if args.dir else "cluster down"
        _print_addresses(info.bootstrap_servers, info.zookeeper_hosts, f"`{down}` ends them.")
        return 0
    cluster = EmbeddedCluster(
        args.dir, jars=jar_cache(), java=java_command(),
        brokers=args.brokers, zookeepers=args.zookeepers, progress=note,
    )  # fmt: skip
    own_until_signalled(
        cluster,
        lambda: _print_addresses(cluster.bootstrap_servers, cluster.zookeeper_hosts, "Ctrl-C ends them."),
        note,
    )
    return 0


def _print_addresses(kafka: str, zookeeper: str, how_to_end: str) -> None:
    print(f"Kafka:     {kafka}\nZooKeeper: {zookeeper}", flush=True)
    note(how_to_end)


def _down(args: argparse.Namespace) -> int:
    directory = args.dir or cluster_dir()
    ended = detached.end(directory)
    print(f"{directory}: {'the cluster has ended; its data stays' if ended else 'no detached cluster runs here'}")
    return 0


def _status(args: argparse.Namespace) -> int:
    directory = (args.dir or cluster_dir()).absolute()
    info = detached.read(directory)
    if info is None or not detached.supervised(info):
        owner = holder(directory / "cluster.lock")
        if owner is not None and alive(owner):
            print(f"{directory}: pid {owner} has a cluster here that is starting or not detached")
        elif info is not None:
            print(
                f"{directory}: stale: its supervisor (pid {info.pid}) has died, and the servers with it. "
                "`cluster up --detach` starts them again with their data."
            )
        else:
            print(f"{directory}: no cluster runs here; start one with `cluster up --detach`")
        return 1
    up_for = time.time() - info.started
    print(f"{directory}: supervisor pid {info.pid}, up for {up_for:.0f} s")
    said = detached.answers(info)
    for server in (*info.zookeepers, *info.brokers):
        print(f"  {server.name:<12} 127.0.0.1:{server.port:<6} pid {server.pid:<8} {said[server.name] or 'NO ANSWER'}")
    return 0 if all(said.values()) else 1


def _fetch(args: argparse.Namespace) -> int:
    jars, java = jar_cache(), java_command()
    with ThreadPoolExecutor() as pool:
        bundles = (KAFKA, ZOOKEEPER, connector(version("pyspark")))
        list(pool.map(lambda bundle: fetch(jars, bundle, java=java, progress=note), bundles))
    prepare(jars, java=java, progress=note)
    print(f"The jars of the servers and of Spark's Kafka connector are in {jars}")
    return 0


def cluster_dir() -> Path:
    """Return the default folder of the detached cluster."""
    return state_dir() / "cluster"


_DEFAULT_DIR = "default $XDG_STATE_HOME/inbound/cluster"
_DIR = argument("--dir", type=Path, help=f"the cluster's folder ({_DEFAULT_DIR})")

COMMAND = Command(
    "cluster",
    "run a real Kafka and ZooKeeper on this machine",
    description="Run a real Kafka and ZooKeeper on this machine, to try things on. Needs Java 17 or newer.",
    examples=("inbound cluster up --detach", "inbound cluster status", "inbound cluster down"),
    commands=(
        Command(
            "up",
            "start the servers; without --detach they end with this command",
            _up,
            "Start the servers, and print their addresses. Without --detach they end with this command.",
            examples=("inbound cluster up", "inbound cluster up --detach --brokers 3"),
            arguments=(
                argument("--brokers", type=_SERVERS, default=1, metavar="N", help="Kafka servers (default 1)"),
                argument("--zookeepers", type=_SERVERS, default=1, metavar="N", help="ZooKeeper servers (default 1)"),
                flag("--detach", "leave the servers running until `cluster down`"),
                argument(
                    "--dir",
                    type=Path,
                    help=f"folder for data and logs (a temporary one; with --detach {_DEFAULT_DIR})",
                ),
            ),
        ),
        Command(
            "down",
            "end the servers of `cluster up --detach`; their data stays",
            _down,
            examples=("inbound cluster down",),
            arguments=(_DIR,),
        ),
        Command(
            "status",
            "ask each server of `cluster up --detach` whether it serves",
            _status,
            examples=("inbound cluster status",),
            arguments=(_DIR,),
        ),
        Command(
            "fetch",
            "only fetch the servers' jars, for later use without a network",
            _fetch,
            examples=("inbound cluster fetch",),
        ),
    ),
)

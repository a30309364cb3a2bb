"""`inbound cluster up|down|status|fetch`: a real Kafka and a real ZooKeeper on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from inbound.cli import places
from inbound.cli.argument_types import whole
from inbound.cli.help import examples
from inbound.embedded import EmbeddedCluster, detached
from inbound.embedded.cluster import prepare
from inbound.embedded.jars import KAFKA, ZOOKEEPER, connector, fetch
from inbound.embedded.locks import alive, holder
from inbound.embedded.owning import own_until_signalled
from inbound.errors import EmbeddedClusterError

_SERVERS = whole(1, 10**6, "1 server or more")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `cluster` and its own commands; each sets `run`, a function of the parsed arguments to the exit code."""
    parser = subparsers.add_parser(
        "cluster",
        help="run a real Kafka and ZooKeeper on this machine",
        description="Run a real Kafka and ZooKeeper on this machine, to try things on. Needs Java 17 or newer.",
        **examples("inbound cluster up --detach", "inbound cluster status", "inbound cluster down"),
    )
    commands = parser.add_subparsers(dest="cluster_command", required=True, metavar="up|down|status|fetch")

    up = commands.add_parser(
        "up",
        help="start the servers; without --detach they end with this command",
        description="Start the servers, and print where they are. Without --detach they end with this command.",
        **examples("inbound cluster up", "inbound cluster up --detach --brokers 3"),
    )
    up.add_argument("--brokers", type=_SERVERS, default=1, metavar="N", help="Kafka servers (default 1)")
    up.add_argument("--zookeepers", type=_SERVERS, default=1, metavar="N", help="ZooKeeper servers (default 1)")
    up.add_argument("--detach", action="store_true", help="leave the servers running until `cluster down`")
    up.set_defaults(run=_up)
    down = commands.add_parser(
        "down", help="end the servers of `cluster up --detach`; their data stays", **examples("inbound cluster down")
    )
    down.set_defaults(run=_down)
    status = commands.add_parser(
        "status",
        help="ask each server of `cluster up --detach` whether it serves",
        **examples("inbound cluster status"),
    )
    status.set_defaults(run=_status)
    fetch = commands.add_parser(
        "fetch",
        help="only fetch the servers' jars, for later use without a network",
        **examples("inbound cluster fetch"),
    )
    fetch.set_defaults(run=_fetch)

    default = "default $XDG_STATE_HOME/inbound/cluster"
    up.add_argument("--dir", type=Path, help=f"folder for data and logs (a temporary one; with --detach {default})")
    for command in (down, status):
        command.add_argument("--dir", type=Path, help=f"the cluster's folder ({default})")


def _progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def _failed(error: EmbeddedClusterError) -> int:
    print(error, file=sys.stderr)
    return 1


def _up(args: argparse.Namespace) -> int:
    for what, count in (("Kafka", args.brokers), ("ZooKeeper", args.zookeepers)):
        if count % 2 == 0:
            _progress(
                f"cluster up: {count} {what} servers survive no more deaths than {count - 1} would, because a quorum is "
                f"more than half; {count - 1} or {count + 1} make more sense"
            )
    try:
        if args.detach:
            info = detached.start(
                args.dir or places.cluster_dir(), jars=places.jar_cache(), java=places.java_command(),
                brokers=args.brokers, zookeepers=args.zookeepers, progress=_progress,
            )  # fmt: skip
            _print_addresses(info.bootstrap_servers, info.zookeeper_hosts, "`cluster down` ends them.", args.dir)
            return 0
        cluster = EmbeddedCluster(
            args.dir, jars=places.jar_cache(), java=places.java_command(),
            brokers=args.brokers, zookeepers=args.zookeepers, progress=_progress,
        )  # fmt: skip
        own_until_signalled(
            cluster,
            lambda: _print_addresses(cluster.bootstrap_servers, cluster.zookeeper_hosts, "Ctrl-C ends them."),
            _progress,
        )
    except EmbeddedClusterError as error:
        return _failed(error)
    return 0


def _print_addresses(kafka: str, zookeeper: str, how_to_end: str, directory: Path | None = None) -> None:
    print(f"Kafka:     {kafka}\nZooKeeper: {zookeeper}", flush=True)
    _progress(how_to_end.replace("cluster down", f"cluster down --dir {directory}") if directory else how_to_end)


def _down(args: argparse.Namespace) -> int:
    directory = args.dir or places.cluster_dir()
    try:
        ended = detached.end(directory)
    except EmbeddedClusterError as error:
        return _failed(error)
    print(f"{directory}: {'the cluster has ended; its data stays' if ended else 'no detached cluster runs here'}")
    return 0


def _status(args: argparse.Namespace) -> int:
    directory = (args.dir or places.cluster_dir()).absolute()
    try:
        info = detached.read(directory)
    except EmbeddedClusterError as error:
        return _failed(error)
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
    jars, java = places.jar_cache(), places.java_command()
    try:
        with ThreadPoolExecutor() as pool:
            bundles = (KAFKA, ZOOKEEPER, connector(version("pyspark")))
            list(pool.map(lambda bundle: fetch(jars, bundle, java=java, progress=_progress), bundles))
        prepare(jars, java=java, progress=_progress)
    except EmbeddedClusterError as error:
        return _failed(error)
    print(f"The jars of the servers and of Spark's Kafka connector are in {places.jar_cache()}")
    return 0

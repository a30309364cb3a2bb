"""The command line: one file per command beside this one."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import inbound
from inbound.cli import check, cluster, demo, operate, publish, run, status
from inbound.errors import ConfigError, InboundError

#: Exit codes that scripts may rely on.
OK, FAILED, BAD_CONFIG = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    top = argparse.ArgumentParser(
        prog="inbound",
        description="ZooKeeper-coordinated Kafka consumers: partitions shared out, batches handed to your processor.",
        epilog="Try `inbound demo` first; then `inbound run -c inbound.yaml`.",
    )
    top.add_argument("--version", action="version", version=f"inbound {inbound.__version__}")
    top.add_argument("-v", "--verbose", action="store_true", help="log more, with tracebacks")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (run, check, status, operate, publish, cluster, demo):
        module.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; never raises for what a user can put right."""
    args = parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("kafka", "kazoo"):
        logging.getLogger(noisy).setLevel(logging.INFO if args.verbose else logging.CRITICAL)
    try:
        code: int = args.run(args)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_CONFIG
    except InboundError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return FAILED
    return code

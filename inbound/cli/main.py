"""The command line: one file per command beside this one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import inbound
from inbound import logs
from inbound.cli import (
    acl,
    check,
    cluster,
    dead_letters,
    demo,
    explain,
    ingress,
    manifests,
    new,
    offsets,
    operate,
    publish,
    reload,
    run,
    schema,
    spark,
    status,
)
from inbound.cli.help import examples
from inbound.config.known_secrets import hide
from inbound.errors import ConfigError, InboundError

#: Exit codes that scripts may rely on.
OK, FAILED, BAD_CONFIG = 0, 1, 2
#: What a shell calls an end by SIGPIPE.
CUT_OFF = 141


def parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    top = argparse.ArgumentParser(
        prog="inbound",
        description="ZooKeeper-coordinated Kafka consumers: partitions shared out, batches handed to your processor. Each command "
        "explains itself with --help.",
        **examples("inbound demo", "inbound new processor orders", "inbound check", "inbound run"),
    )
    top.add_argument("--version", action="version", version=f"inbound {inbound.__version__}")
    top.add_argument("-v", "--verbose", action="store_true", help="log more, with tracebacks")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        run,
        ingress,
        check,
        status,
        explain,
        offsets,
        operate,
        reload,
        acl,
        publish,
        dead_letters,
        spark,
        new,
        manifests,
        schema,
        cluster,
        demo,
    ):
        module.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; never raises for what a user can put right."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        parser().print_help(sys.stderr)
        return BAD_CONFIG
    args = parser().parse_args(given)
    _open_standard_streams()
    logs.install(verbose=args.verbose)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except ConfigError as error:
        return _failed(error, BAD_CONFIG)
    except InboundError as error:
        return _failed(error, FAILED)
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        # Whoever read the output has seen enough, as `head` has. What is left of it has nowhere to go, at the end neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return CUT_OFF
    return code


def _failed(error: InboundError, code: int) -> int:
    logs.flush()
    print(f"error: {hide(str(error))}", file=sys.stderr)
    return code


def _open_standard_streams() -> None:
    """Have something behind the three: else the next socket gets the number of the one that is missing, and our log."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    # Without them Python prints errors to where the output goes.
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)

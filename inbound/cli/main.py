"""The command line: the table of all commands, and the exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import inbound
from inbound.cli.dead_letters import purge, redrive
from inbound.cli.dead_letters import show as dead_letters
from inbound.cli.inspect import explain, operate, status
from inbound.cli.offsets import change, reset
from inbound.cli.offsets import show as offsets
from inbound.cli.run import check, run
from inbound.cli.shared.command import TITLE, Command, HelpFormatter, add_commands
from inbound.cli.spark import archive, replay, report, validate
from inbound.cli.tools import cluster, demo, manifests, new, publish, schema
from inbound.config.secrets import hide
from inbound.errors import ConfigError, InboundError, ResetError
from inbound.observe import logs
from inbound.offsets.changes import OffsetsError

#: Exit codes that scripts may rely on.
OK, FAILED, BAD_CONFIG = 0, 1, 2
#: The exit code of a process that SIGPIPE ends.
CUT_OFF = 141

COMMANDS = (
    run.RUN,
    run.INGRESS,
    check.COMMAND,
    status.STATUS_COMMAND,
    explain.COMMAND,
    Command(
        "offsets",
        "show, reset, export, import or delete a group's offsets",
        description="Show and change a group's offsets, with options like those of kafka-consumer-groups; through ZooKeeper and "
        "Kafka alone, so also while no consumer is alive.",
        examples=(
            "inbound offsets show",
            "inbound offsets export > offsets.csv",
            "inbound offsets import offsets.csv --execute",
            "inbound offsets delete --group orders-old",
        ),
        commands=(offsets.SHOW, offsets.EXPORT, reset.COMMAND, change.IMPORT, change.DELETE),
    ),
    *operate.COMMANDS,
    status.RELOAD_COMMAND,
    operate.ACL,
    publish.COMMAND,
    Command(
        "dead-letters",
        "list, show, redrive or purge the letters of a dead letter topic",
        description="Look at the events that subscribers refused and processors failed on, send them once more, and delete them. "
        "Asks Kafka alone, so also while no consumer is alive. A command reads up to the end that the topic has when it begins.",
        examples=(
            "inbound dead-letters list orders.dead --summary",
            "inbound dead-letters show orders.dead 0/17",
            "inbound dead-letters redrive orders.dead --reason 503 --to original",
            "inbound dead-letters purge orders.dead --until 2026-01-31T02:40:00Z",
        ),
        commands=(dead_letters.LIST, dead_letters.SHOW, redrive.COMMAND, purge.COMMAND),
    ),
    Command(
        "spark",
        "prove delivery, replay, archive, report: jobs on Spark",
        description="Jobs on Spark over ledger and log: on this machine, or on any master.",
        examples=("inbound spark validate", "inbound spark report --output report.html"),
        commands=(validate.COMMAND, replay.COMMAND, archive.COMMAND, report.COMMAND),
    ),
    new.COMMAND,
    manifests.COMMAND,
    schema.COMMAND,
    cluster.COMMAND,
    demo.COMMAND,
)


def parser() -> argparse.ArgumentParser:
    """Return the whole command line."""
    top = argparse.ArgumentParser(
        prog="inbound",
        description="ZooKeeper-coordinated Kafka consumers: members share partitions, and your processor gets batches. Each "
        "command has its own --help.",
        formatter_class=HelpFormatter,
        epilog=f"{TITLE}\n  inbound demo\n  inbound new processor orders\n  inbound check\n  inbound run",
    )
    top.add_argument("--version", action="version", version=f"inbound {inbound.__version__}")
    top.add_argument("-v", "--verbose", action="store_true", help="log more, with tracebacks")
    add_commands(top, COMMANDS, "COMMAND")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; an InboundError becomes a message."""
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
    except (ConfigError, OffsetsError, ResetError) as error:  # a wrong input, or a state that forbids the change
        return _failed(error, BAD_CONFIG)
    except InboundError as error:
        return _failed(error, FAILED)
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed it. The rest must not raise when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return CUT_OFF
    return code


def _failed(error: InboundError, code: int) -> int:
    logs.flush()
    print(f"error: {hide(str(error))}", file=sys.stderr)
    return code


def _open_standard_streams() -> None:
    """Open missing standard streams: the next socket would get their number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    # If they are None, Python prints errors to the output.
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)

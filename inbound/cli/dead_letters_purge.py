"""`inbound dead-letters purge`: deletes the beginning of a dead letter topic's partitions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from inbound.cli.dead_letters_options import (
    Asked,
    add_filters,
    add_ledger,
    add_topic,
    add_yes,
    confirmed,
    ledger_of,
    opened,
    reading,
)
from inbound.cli.dead_letters_text import purge_table
from inbound.cli.help import examples
from inbound.cli.offsets_options import add_execution
from inbound.cli.table import count
from inbound.dead_letters.letter import Letter
from inbound.dead_letters.purge_plan import PurgePlan, plan_purge
from inbound.dead_letters.selection import Place
from inbound.errors import ConfigError
from inbound.kafka.record_deletion import delete_before


def add_parser(subcommands: Any) -> None:
    """Add the command to `inbound dead-letters`."""
    parser = subcommands.add_parser(
        "purge",
        help="delete letters from the beginning of the topic",
        description="Delete letters for good. Kafka deletes the beginning of a partition and nothing else, so what is chosen "
        "must stand before everything that is not: a choice that would delete other letters is refused, with how many there "
        "are. With --before-redriven each partition is deleted up to its first letter that was not redriven. Consumers "
        "that have not read the deleted letters miss them. Without --execute it only says what would be deleted. Exit code "
        "0: done; 1: not done; 2: refused.",
        **examples(
            "inbound dead-letters purge orders.dead --until 30d",
            "inbound dead-letters purge orders.dead --before-redriven --execute",
            "inbound dead-letters purge orders.dead --all --execute --yes",
        ),
    )
    add_topic(parser)
    add_filters(parser)
    parser.add_argument(
        "--before-redriven", action="store_true", help="only letters that the ledger of `redrive` says were sent"
    )
    add_ledger(parser)
    parser.add_argument("--all", action="store_true", help="all letters that are there when the command begins")
    add_execution(parser)
    add_yes(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Say what would be deleted, or delete it. Returns the exit code."""
    filters = (args.since, args.until, args.reason, args.key)
    given = bool(args.subscription or args.before_redriven) or any(one is not None for one in filters)
    if not given and not args.all:
        raise ConfigError("which letters? give --until, --before-redriven, another filter, or --all")
    if given and args.all:
        raise ConfigError("--all does not go with filters: leave one of them out")
    if args.ledger is not None and not args.before_redriven:
        raise ConfigError("--ledger goes with --before-redriven: nothing else asks it; leave it out")
    if args.yes and not args.execute:
        raise ConfigError("--yes goes with --execute; without it nothing is deleted, and nothing asked")
    with opened(args, from_start=True) as asked:  # what is before --since would be deleted, too
        plan = _plan(args, asked)
        _check(args, plan, asked.log.topic)
        if not plan.letters:
            print(f"{asked.log.topic}: no letters to delete")
            return 0
        print(purge_table(plan))
        sys.stdout.flush()
        if not args.execute:
            print("dry run: nothing was deleted; do it with --execute", file=sys.stderr)
            return 0
        question = f"Delete {count(plan.letters, 'letter')} of {asked.log.topic} for good?"
        if not confirmed(args, question, asked.log.topic):
            print("nothing was deleted", file=sys.stderr)
            return 1
        delete_before(asked.loaded.config.kafka, asked.log.topic, plan.offsets())
        print(f"{asked.log.topic}: {count(plan.letters, 'letter')} deleted")
        return 0


def _plan(args: argparse.Namespace, asked: Asked) -> PurgePlan:
    redriven: Mapping[Place, str] | None = None
    if args.before_redriven:
        ledger = ledger_of(args.ledger, asked.log, write=False)
        if not ledger.path.exists():
            raise ConfigError(
                f"redrive ledger {ledger.path}: no such file; name the one that `redrive` wrote with --ledger"
            )
        redriven = ledger.done

    def chooses(letter: Letter) -> bool:
        if redriven is not None and (letter.partition, letter.offset) not in redriven:
            return False
        return asked.selection.chooses(letter)

    starts = {partition: limits.start for partition, limits in asked.log.ranges.items()}
    with reading(asked.log):
        return plan_purge(starts, asked.log.letters(), chooses)


def _check(args: argparse.Namespace, plan: PurgePlan, topic: str) -> None:
    """Raise ConfigError where other letters would have to be deleted; with `--before-redriven` say what stays."""
    lines = [
        f"{topic}/{partition}: {count(cut.behind, 'chosen letter')} behind {count(cut.others, 'other')}, the first of "
        f"them at offset {cut.first_other}"
        for partition, cut in plan.blocked.items()
    ]
    if not lines:
        return
    if args.before_redriven:
        print("\n".join(f"{line}; they stay" for line in lines), file=sys.stderr)
        return
    raise ConfigError(
        "\n".join(
            [
                *lines,
                "Kafka deletes only the beginning of a partition, so the others would go, too: nothing was deleted. Redrive the "
                "others and take --before-redriven, or choose by --until alone",
            ]
        )
    )

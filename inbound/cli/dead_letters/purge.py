"""`inbound dead-letters purge` deletes letters from the beginning of a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from inbound.cli.dead_letters.options import (
    FILTERS,
    LEDGER,
    TOPIC,
    YES,
    OpenTopic,
    confirmed,
    ledger_of,
    opened,
    reading,
)
from inbound.cli.shared.command import EXECUTION, Command, flag
from inbound.cli.shared.output import count, note, table
from inbound.dead_letters.letter import Letter
from inbound.dead_letters.selection import Place, PurgePlan, plan_purge
from inbound.errors import ConfigError
from inbound.kafka.python.topics import delete_before


def run(args: argparse.Namespace) -> int:
    """Print what would be deleted, or delete it. Returns the exit code."""
    filters = (args.since, args.until, args.reason, args.key)
    given = bool(args.subscription or args.before_redriven) or any(one is not None for one in filters)
    if not given and not args.all:
        raise ConfigError("which letters? give --until, --before-redriven, another filter, or --all")
    if given and args.all:
        raise ConfigError("--all does not go with filters: leave one of them out")
    if args.ledger is not None and not args.before_redriven:
        raise ConfigError("--ledger goes with --before-redriven: only that reads it; leave it out")
    if args.yes and not args.execute:
        raise ConfigError("--yes goes with --execute; without it nothing is deleted, and no question asked")
    with opened(args, from_start=True) as asked:  # letters before --since would be deleted, too
        plan = _purge_plan(args, asked)
        _check_purge(args, plan, asked.log.topic)
        if not plan.letters:
            print(f"{asked.log.topic}: no letters to delete")
            return 0
        rows = [(p, cut.start, cut.end, cut.letters) for p, cut in plan.cuts.items() if cut.end > cut.start]
        print(table(("PARTITION", "LOG-START", "DELETE BEFORE", "LETTERS"), rows))
        sys.stdout.flush()
        if not args.execute:
            note("dry run: nothing was deleted; do it with --execute")
            return 0
        question = f"Delete {count(plan.letters, 'letter')} of {asked.log.topic} for good?"
        if not confirmed(args, question, asked.log.topic):
            note("nothing was deleted")
            return 1
        delete_before(asked.loaded.config.kafka, asked.log.topic, plan.offsets())
        print(f"{asked.log.topic}: {count(plan.letters, 'letter')} deleted")
        return 0


def _purge_plan(args: argparse.Namespace, asked: OpenTopic) -> PurgePlan:
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


def _check_purge(args: argparse.Namespace, plan: PurgePlan, topic: str) -> None:
    """Refuse to delete other letters; with `--before-redriven` only print them."""
    lines = [
        f"{topic}/{partition}: {count(cut.behind, 'chosen letter')} behind {count(cut.others, 'other')}, the first of "
        f"them at offset {cut.first_other}"
        for partition, cut in plan.blocked.items()
    ]
    if not lines:
        return
    if args.before_redriven:
        note("\n".join(f"{line}; they stay" for line in lines))
        return
    why = (
        "Kafka deletes only the beginning of a partition, so the others would go, too: nothing was deleted. Redrive the others "
        "and take --before-redriven, or choose by --until alone"
    )
    raise ConfigError("\n".join([*lines, why]))


COMMAND = Command(
    "purge",
    "delete letters from the beginning of the topic",
    run,
    "Delete letters for good. Kafka can only delete the beginning of a partition, so the chosen letters must come before all "
    "others: a choice that would delete other letters is refused, with their number. With --before-redriven each partition is "
    "deleted up to its first letter that was not redriven. Consumers that have not read the deleted letters miss them. Without "
    "--execute it only prints what would be deleted. Exit code 0: done; 1: not done; 2: refused.",
    examples=(
        "inbound dead-letters purge orders.dead --until 30d",
        "inbound dead-letters purge orders.dead --before-redriven --execute",
        "inbound dead-letters purge orders.dead --all --execute --yes",
    ),
    arguments=(
        *TOPIC,
        FILTERS,
        flag("--before-redriven", "only letters that `redrive` has sent, as its ledger says"),
        LEDGER,
        flag("--all", "all letters that exist when the command begins"),
        EXECUTION,
        YES,
    ),
)

"""`inbound dead-letters redrive` sends letters again."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from inbound.cli.dead_letters.options import (
    FILTERS,
    LEDGER,
    TOPIC,
    YES,
    OpenTopic,
    confirmed,
    ledger_of,
    opened,
    place,
    reading,
)
from inbound.cli.shared.command import EXECUTION, Command, argument, one_of, several, stopping, whole
from inbound.cli.shared.output import ProgressLine, count, note, one_line, table
from inbound.config.secrets import hide
from inbound.dead_letters.redrive import (
    MAX_REDRIVES,
    Planner,
    RedriveAccount,
    RedrivePlan,
    RedriveTarget,
    redrive,
)
from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.dead_letters.senders import SubscriberSender, TopicSender
from inbound.errors import ConfigError

#: Exit codes: all chosen letters are sent, or there were none; some are not.
DONE, NOT_ALL = 0, 1
_PARALLEL = 8


def run(args: argparse.Namespace) -> int:
    """Print what would be sent, or send it. Returns the exit code."""
    if args.parallel is not None and args.to_subscription is None:
        raise ConfigError("--parallel goes with --to-subscription: to a topic they go in order; leave it out")
    if args.to_subscription is not None and not (args.subscription or args.at):
        raise ConfigError(
            f"--to-subscription {args.to_subscription}: whose letters? It would get the letters of every group: give "
            "--subscription with its own name, or with other names, or --at for single letters"
        )
    if args.yes and not args.execute:
        raise ConfigError("--yes goes with --execute; without it nothing is sent, and no question asked")
    with opened(args, args.at or None) as asked:
        destination, sender = _destination(args, asked)
        ledger = ledger_of(args.ledger, asked.log, write=args.execute)
        try:
            planner = Planner(
                asked.log.topic, destination, max_redrives=args.max_redrives, done=ledger.done,
                partitions=cache(lambda topic: asked.log.partitions_of([topic]).get(topic)), name_of=asked.subscribers.name_of,
            )  # fmt: skip
            with reading(asked.log):
                plan = planner.plan(asked.letters())
            print(plan_text(plan, asked.log.topic, ledger.path))
            sys.stdout.flush()
            if not args.execute:
                note("dry run: nothing was sent; do it with --execute")
                return DONE
            if not plan.count:
                return NOT_ALL if plan.refused else DONE
            if not confirmed(args, f"Redrive {count(plan.count, 'letter')}?", "yes"):
                note("nothing was sent")
                return NOT_ALL
            return _redrive(asked, planner, plan, sender, ledger)
        finally:
            ledger.close()
            sender.close()


def _destination(args: argparse.Namespace, asked: OpenTopic) -> tuple[RedriveTarget, TopicSender | SubscriberSender]:
    if args.to_subscription is not None:
        name, options = asked.subscribers.to_post_to(args.to_subscription)
        sender = SubscriberSender(options, args.parallel or _PARALLEL)
        return RedriveTarget("subscription", name, posts_replies=options.replyUri is not None), sender
    to_topics = TopicSender(asked.loaded.config.kafka)
    if args.to_topic is None:
        return RedriveTarget("original"), to_topics
    if args.to_topic == asked.log.topic:
        raise ConfigError(f"--to-topic {args.to_topic}: it is the topic that the letters are in; name another one")
    if not asked.log.partitions_of([args.to_topic]):
        raise ConfigError(f"--to-topic {args.to_topic}: does not exist; create it, or check the name")
    return RedriveTarget("topic", args.to_topic), to_topics


def _redrive(
    asked: OpenTopic, planner: Planner, plan: RedrivePlan, sender: TopicSender | SubscriberSender, ledger: RedriveLedger
) -> int:
    account = RedriveAccount(plan.count)
    progress = ProgressLine(f"redriving {asked.log.topic}", plan.count)
    began = time.monotonic()

    def show(so_far: RedriveAccount) -> None:
        done = so_far.sent + so_far.refused
        rate = done / max(time.monotonic() - began, 0.001)
        progress.update(done, f"{rate:,.0f}/s" + (f"  {so_far.refused:,} refused" if so_far.refused else ""))

    parcels = (planner.parcel(partition, record) for partition, record in asked.log.records_at(plan.offsets))
    ended = False
    stop = threading.Event()
    with stopping(stop, _tell_stopping):
        try:
            redrive(parcels, sender, ledger, account, stop=stop, progress=show)
            ended = not stop.is_set()
        finally:  # also after an error: the letters that were sent are sent
            progress.close()
            _tell_account(account, ledger, ended_early=not ended)
    return DONE if account.sent == account.planned and not plan.refused else NOT_ALL


def _tell_stopping() -> None:
    with suppress(OSError):  # not by `print`: the signal may have interrupted it inside another line
        os.write(2, b"\nending: waiting for the letters in flight; once more ends at once\n")


def _tell_account(account: RedriveAccount, ledger: RedriveLedger, *, ended_early: bool) -> None:
    print(f"redrove {account.sent:,} of {count(account.planned, 'letter')}; noted in {ledger.path}")
    sys.stdout.flush()
    for named in account.named:
        note(f"refused: {hide(one_line(named))}")
    if account.refused > len(account.named):
        note(f"... and {account.refused - len(account.named):,} more; the ledger has all of them")
    if account.refused:
        note("refused letters are still in the topic; the same command tries them again")
    if ended_early and account.left:
        note(f"{count(account.left, 'letter')} left: the same command, with the same ledger, goes on where this ended")
    elif account.left:
        note(f"{count(account.left, 'letter')} not sent: no longer in the topic, retention or a purge has deleted them")


def plan_text(plan: RedrivePlan, topic: str, ledger: object) -> str:
    """Return the plan of a redrive, with the letters left out."""
    parts = []
    if plan.routes:
        rows = [(number, subscription, where) for (subscription, where), number in plan.routes.most_common()]
        parts.append(table(("LETTERS", "GIVEN UP BY", "TO"), rows))
    else:
        parts.append(f"{topic}: no letters to redrive")
    for why, number in plan.refused.most_common():
        parts.append(f"refused, {count(number, 'letter')} ({_named(plan.named[why], number)}): {one_line(why)}")
    for where, number in plan.before.most_common():
        parts.append(f"left out, {count(number, 'letter')}: redriven to {one_line(where)} before, says {ledger}")
    return hide("\n".join(parts))


def _named(places: Sequence[str], number: int) -> str:
    return ", ".join(places) + (f" and {number - len(places):,} more" if number > len(places) else "")


COMMAND = Command(
    "redrive",
    "send letters once more, to their topic or to one subscription",
    run,
    "Send letters once more, as the original records: without the headers of dead-lettering, and with the header "
    "inbound-redrives counted up. To the topic and partition that each came from, where every subscription of that topic reads "
    "it again; to another topic; or by HTTP to one subscription alone. The letters stay in the dead letter topic: a ledger, a "
    "file, notes the redriven ones, and the same command leaves those out. Without --execute it only prints what would be sent. "
    "Exit code 0: all are sent; 1: some were refused, or it ended before; 2: the options are wrong.",
    examples=(
        "inbound dead-letters redrive orders.dead --reason 503 --to original",
        "inbound dead-letters redrive orders.dead --at 0/17 --to original --execute",
        "inbound dead-letters redrive orders.dead --subscription billing --to-subscription billing --execute --yes",
    ),
    arguments=(
        *TOPIC,
        one_of(
            argument("--to", choices=["original"], help="send each letter to the topic and partition it came from"),
            argument(
                "--to-topic", metavar="TOPIC", help="send all letters to this topic; their keys choose the partition"
            ),
            argument(
                "--to-subscription",
                metavar="NAME",
                help="post the letters to the subscriber of this subscription of the configuration, with its options. NAME is its "
                "name, uid, group or subscriberUri; --subscription or --at choose the letters",
            ),
            required=True,
        ),
        FILTERS,
        several(
            "--at",
            "this letter, as `list` shows it; may be given several times",
            type=place,
            metavar="PARTITION/OFFSET",
        ),
        argument(
            "--limit",
            type=whole(1, 10**9, "a whole number of at least 1"),
            metavar="N",
            help="at most N letters, the first ones by partition and offset: for a trial",
        ),
        EXECUTION,
        YES,
        LEDGER,
        argument(
            "--max-redrives",
            type=whole(1, 1000, "a number of redrives from 1 to 1000"),
            default=MAX_REDRIVES,
            metavar="N",
            help=f"refuse letters that were redriven to a topic N times already, and came back; default: {MAX_REDRIVES}",
        ),
        argument(
            "--parallel",
            type=whole(1, 1000, "a number of requests from 1 to 1000"),
            metavar="N",
            help=f"with --to-subscription: requests at a time; default: {_PARALLEL}. Letters of one key are sent in order",
        ),
    ),
)

"""`inbound dead-letters redrive`: sends letters once more, exactly the chosen ones, and writes down what it did."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from inbound.cli.argument_types import whole
from inbound.cli.dead_letters_options import (
    Asked,
    add_filters,
    add_ledger,
    add_limit,
    add_topic,
    add_yes,
    confirmed,
    ledger_of,
    opened,
    place,
    reading,
)
from inbound.cli.dead_letters_text import plan_text
from inbound.cli.help import examples
from inbound.cli.offsets_options import add_execution
from inbound.cli.progress import Progress
from inbound.cli.table import count, one_line
from inbound.config.known_secrets import hide
from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.dead_letters.redrive_plan import MAX_REDRIVES, Destination, Plan, Planner
from inbound.dead_letters.redriving import Account, redrive
from inbound.dead_letters.to_subscriber import SubscriberSender
from inbound.dead_letters.to_topics import TopicSender
from inbound.errors import ConfigError
from inbound.signals import handled

#: Exit codes: all that were chosen are sent (or nothing was to be done); some were not.
DONE, NOT_ALL = 0, 1
_PARALLEL = 8


def add_parser(subcommands: Any) -> None:
    """Add the command to `inbound dead-letters`."""
    parser = subcommands.add_parser(
        "redrive",
        help="send letters once more, to their topic or to one subscription",
        description="Send letters once more, as the records that were read: without what was added when they were dead-lettered, "
        "and with the header inbound-redrives counted up. To the topic and partition that each came from, where every "
        "subscription of that topic reads it again; to another topic; or by HTTP to one subscription alone. The letters stay "
        "in the dead letter topic: a ledger, a file, says which were redriven, and the same command leaves those out. Without "
        "--execute it only says what would be sent. Exit code 0: all are sent; 1: some were refused, or it ended before; 2: "
        "what was asked for is wrong.",
        **examples(
            "inbound dead-letters redrive orders.dead --reason 503 --to original",
            "inbound dead-letters redrive orders.dead --at 0/17 --to original --execute",
            "inbound dead-letters redrive orders.dead --subscription billing --to-subscription billing --execute --yes",
        ),
    )
    add_topic(parser)
    where: Any = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to", choices=["original"], help="each to the topic and partition that it came from")
    where.add_argument("--to-topic", metavar="TOPIC", help="all to this topic; their keys say to which partition")
    where.add_argument(
        "--to-subscription",
        metavar="NAME",
        help="post them to this subscription of the configuration (name, uid, group or subscriberUri), as its options say; "
        "--subscription or --at says whose",
    )
    add_filters(parser)
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        type=place,
        metavar="PARTITION/OFFSET",
        help="this letter, as `list` shows it; may be given several times",
    )
    add_limit(parser, "at most so many, the first ones by partition and offset: for a trial")
    add_execution(parser)
    add_yes(parser)
    add_ledger(parser)
    parser.add_argument(
        "--max-redrives",
        type=whole(1, 1000, "a number of redrives from 1 to 1000"),
        default=MAX_REDRIVES,
        metavar="N",
        help=f"refuse letters that were redriven to a topic N times already, and came back; default: {MAX_REDRIVES}",
    )
    parser.add_argument(
        "--parallel",
        type=whole(1, 1000, "a number of requests from 1 to 1000"),
        metavar="N",
        help=f"with --to-subscription: requests at a time; default: {_PARALLEL}. Those of one key go one after the other",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Say what would be sent, or send it. Returns the exit code."""
    if args.parallel is not None and args.to_subscription is None:
        raise ConfigError("--parallel goes with --to-subscription: to a topic they go in order; leave it out")
    if args.to_subscription is not None and not (args.subscription or args.at):
        raise ConfigError(
            f"--to-subscription {args.to_subscription}: whose letters? It would get those of every group: give --subscription "
            "with its own name, or with those of others, or --at for single letters"
        )
    if args.yes and not args.execute:
        raise ConfigError("--yes goes with --execute; without it nothing is sent, and nothing asked")
    with opened(args, args.at or None) as asked:
        destination, sender = _destination(args, asked)
        ledger = ledger_of(args.ledger, asked.log, write=args.execute)
        try:
            planner = Planner(
                asked.log.topic, destination, max_redrives=args.max_redrives, done=ledger.done,
                partitions=_partitions(asked), name_of=asked.subscribers.name_of,
            )  # fmt: skip
            with reading(asked.log):
                plan = planner.plan(asked.letters())
            print(plan_text(plan, asked.log.topic, ledger.path))
            sys.stdout.flush()
            if not args.execute:
                _tell("dry run: nothing was sent; do it with --execute")
                return DONE
            if not plan.count:
                return NOT_ALL if plan.refused else DONE
            if not confirmed(args, f"Redrive {count(plan.count, 'letter')}?", "yes"):
                _tell("nothing was sent")
                return NOT_ALL
            return _redrive(asked, planner, plan, sender, ledger)
        finally:
            ledger.close()
            sender.close()


def _destination(args: argparse.Namespace, asked: Asked) -> tuple[Destination, TopicSender | SubscriberSender]:
    if args.to_subscription is not None:
        name, options = asked.subscribers.to_post_to(args.to_subscription)
        sender = SubscriberSender(options, args.parallel or _PARALLEL)
        return Destination("subscription", name, posts_replies=options.replyUri is not None), sender
    to_topics = TopicSender(asked.loaded.config.kafka)
    if args.to_topic is None:
        return Destination("original"), to_topics
    if args.to_topic == asked.log.topic:
        raise ConfigError(f"--to-topic {args.to_topic}: it is the topic that the letters are in; name another one")
    if not asked.log.partitions_of([args.to_topic]):
        raise ConfigError(f"--to-topic {args.to_topic}: does not exist; create it, or check the name")
    return Destination("topic", args.to_topic), to_topics


def _partitions(asked: Asked) -> Callable[[str], int | None]:
    """Return what says how many partitions a topic has; each is asked for once."""
    known: dict[str, int | None] = {}

    def partitions(topic: str) -> int | None:
        if topic not in known:
            known[topic] = asked.log.partitions_of([topic]).get(topic)
        return known[topic]

    return partitions


def _redrive(
    asked: Asked, planner: Planner, plan: Plan, sender: TopicSender | SubscriberSender, ledger: RedriveLedger
) -> int:
    account = Account(plan.count)
    progress = Progress(f"redriving {asked.log.topic}", plan.count)
    began = time.monotonic()

    def show(so_far: Account) -> None:
        done = so_far.sent + so_far.refused
        rate = done / max(time.monotonic() - began, 0.001)
        progress.update(done, f"{rate:,.0f}/s" + (f"  {so_far.refused:,} refused" if so_far.refused else ""))

    parcels = (planner.parcel(partition, record) for partition, record in asked.log.records_at(plan.offsets))
    ended = False
    with stopping() as stop:
        try:
            redrive(parcels, sender, ledger, account, stop=stop, progress=show)
            ended = not stop.is_set()
        finally:  # whatever it ended by: what was done is done
            progress.close()
            _tell_account(account, ledger, ended_early=not ended)
    return DONE if account.sent == account.planned and not plan.refused else NOT_ALL


def _tell_account(account: Account, ledger: RedriveLedger, *, ended_early: bool) -> None:
    print(f"redrove {account.sent:,} of {count(account.planned, 'letter')}; noted in {ledger.path}")
    sys.stdout.flush()
    for named in account.named:
        _tell(f"refused: {hide(one_line(named))}")
    if account.refused > len(account.named):
        _tell(f"... and {account.refused - len(account.named):,} more; the ledger has all of them")
    if account.refused:
        _tell("refused letters are where they were; the same command tries them again")
    if ended_early and account.left:
        _tell(f"{count(account.left, 'letter')} left: the same command, with the same ledger, goes on where this ended")
    elif account.left:
        _tell(
            f"{count(account.left, 'letter')} not sent: no longer in the topic, retention or a purge has deleted them"
        )


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Have the first SIGINT or SIGTERM set the event, and the next one interrupt. The main thread's."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        with suppress(OSError):  # not by `print`: it may have been interrupted in the midst of another line
            os.write(2, b"\nending: waiting for what is under way; once more ends at once\n")

    with handled(handle):
        yield stop


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""`inbound dead-letters`: letters listed, shown, redriven, purged."""

from __future__ import annotations

from typing import Any

from inbound.cli import dead_letters_purge, dead_letters_redrive, dead_letters_show
from inbound.cli.help import examples


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "dead-letters",
        help="list, show, redrive or purge the letters of a dead letter topic",
        description="Look at what subscribers refused and processors failed on, send it once more, and delete it. Asks Kafka "
        "alone, so also while no consumer is alive. A command reads up to where the topic ended when it began.",
        **examples(
            "inbound dead-letters list orders.dead --summary",
            "inbound dead-letters show orders.dead 0/17",
            "inbound dead-letters redrive orders.dead --reason 503 --to original",
            "inbound dead-letters purge orders.dead --until 2026-01-31T02:40:00Z",
        ),
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    dead_letters_show.add_parsers(subcommands)
    dead_letters_redrive.add_parser(subcommands)
    dead_letters_purge.add_parser(subcommands)

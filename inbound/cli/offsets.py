"""`inbound offsets`: a group's offsets shown, moved, written down, read in, deleted."""

from __future__ import annotations

from typing import Any

from inbound.cli import offsets_change, offsets_reset, offsets_show
from inbound.cli.help import examples


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "offsets",
        help="show, reset, export, import or delete a group's offsets",
        description="Look after a group's offsets, with options as kafka-consumer-groups has them; by ZooKeeper and Kafka alone, "
        "so also while no consumer is alive.",
        **examples(
            "inbound offsets show",
            "inbound offsets export > offsets.csv",
            "inbound offsets import offsets.csv --execute",
            "inbound offsets delete --group orders-old",
        ),
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    offsets_show.add_parsers(subcommands)
    offsets_reset.add_parser(subcommands)
    offsets_change.add_parsers(subcommands)

"""`inbound spark validate|replay|archive|report`: one file per command beside this one."""

from __future__ import annotations

from typing import Any

from inbound.cli import spark_archive, spark_replay, spark_report, spark_validate
from inbound.cli.help import examples

#: The commands' modules; each has `add_parser`.
COMMANDS: tuple[Any, ...] = (spark_validate, spark_replay, spark_archive, spark_report)


def add_parser(commands: Any) -> None:
    """Add `spark` and its own commands."""
    parser = commands.add_parser(
        "spark",
        help="prove delivery, replay, archive, report: jobs on Spark",
        description="Jobs on Spark over ledger and log: on this machine, or on any master.",
        **examples("inbound spark validate", "inbound spark report --output report.html"),
    )
    inner = parser.add_subparsers(dest="spark_command", required=True, metavar="validate|replay|archive|report")
    for module in COMMANDS:
        module.add_parser(inner)

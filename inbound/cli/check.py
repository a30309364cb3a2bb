"""`inbound check`: say whether a configuration can be used, and connect to nothing."""

from __future__ import annotations

import argparse
from typing import Any

from inbound.application import plan_channels
from inbound.cli.files import add_config_options, load_config
from inbound.config import render
from inbound.coordinators.parameters import described


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "check", help="check a configuration", description="Check a configuration and its plugins; connects to nothing."
    )
    add_config_options(parser)
    parser.add_argument("--show", action="store_true", help="print every value in effect, and where it comes from")
    parser.set_defaults(run=check)


def check(args: argparse.Namespace) -> int:
    """Check the configuration; exit code 0 if it can be used."""
    loaded = load_config(args)
    planned = plan_channels(loaded)
    if args.show:
        print(render(loaded.config), end="")
        for path, origin in sorted(loaded.origins.items()):
            print(f"# {path}: {origin}")
    for name, plan in planned.items():
        channel = loaded.config.channels[name]
        reads = ", ".join(channel.topics) or f"topics like {channel.topics_pattern}"
        cls = plan.processor
        print(
            f"channel {name}: group {channel.group} reads {reads} with {cls.__module__}:{cls.__qualname__}, coordinator "
            f"{described(plan.coordinator.registration())}"
        )
    print(f"{args.config}: good")
    return 0

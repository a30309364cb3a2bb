"""`inbound check`: say whether a configuration can be used, and connect to nothing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inbound.cli.files import add_config_options, load_config
from inbound.cli.help import examples
from inbound.cli.mounts import in_kubernetes, own_mounts, passing, resolved
from inbound.cli.places import state_dir
from inbound.config import CustomCoordinatorConfig, LedgerConfig, Loaded, format_duration, render
from inbound.controller.reset_offset import RefMapper
from inbound.coordinators.parameters import described
from inbound.errors import ConfigError, ResetError
from inbound.ledgers import check_ledger
from inbound.planning import PlannedChannel, plan_all
from inbound.plugins import file_of
from inbound.reset_manifests import command_of
from inbound.reset_refs import ref_mapper_of


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "check",
        help="check a configuration",
        description="Check a configuration and its plugins; connects to nothing. Exit code 0 if it can be used, 2 with a line "
        "for each problem if not: also if it is a manifest, although `inbound run` would run the others.",
        **examples(
            "inbound check -c inbound.yaml",
            "inbound check --show --set channels.orders.workers=8",
        ),
    )
    add_config_options(parser)
    parser.add_argument(
        "--show", action="store_true", help="print every value in effect as YAML, each with where it comes from"
    )
    parser.set_defaults(run=check)


def check(args: argparse.Namespace) -> int:
    """Check the configuration; exit code 0 if it can be used."""
    loaded = load_config(args)
    all_planned = plan_all(loaded)
    planned = all_planned.channels
    check_ledger(loaded.config.ledger)
    mapper = ref_mapper_of(loaded)
    mark = ""
    if args.show:
        mark = "# "  # all of it can be read as YAML
        print(render(loaded.config, loaded.origins, _options(loaded, planned)), end="")
    for name, plan in planned.items():
        print(f"{mark}channel {name}: {_summary(plan)}")
    for warning in ledger_warnings(loaded.config.ledger, in_kubernetes(os.environ), own_mounts()):
        print(f"warning: {warning}", file=sys.stderr)
    for problem in reset_problems(loaded, mapper):
        print(f"warning: this reset does nothing: {problem}", file=sys.stderr)
    if all_planned.refused:
        raise ConfigError("\n".join(one.problem for one in all_planned.refused))
    print(f"{mark}{args.config}: good")
    return 0


def ledger_warnings(ledger: LedgerConfig, in_pod: bool, mountinfo: str) -> list[str]:
    """Return why the ledger would not be there when it is needed, and what to do about it."""
    if ledger.type == "none":
        return ["ledger.type none: what is lost or repeated can't be proven; set it to files, or to kafka"]
    if ledger.type != "files" or not in_pod:
        return []
    if isinstance(ledger.path, Path):
        volume = passing(mountinfo, resolved(ledger.path))
        if volume is None:
            return []
        return [
            f"ledger.path {ledger.path}: it is on {volume}, and gone when this pod is deleted; mount a PersistentVolume "
            "there, give a URI such as s3://bucket/ledger, or set ledger.type to kafka"
        ]
    spool = ledger.spool or state_dir() / "ledger-spool"
    volume = passing(mountinfo, resolved(spool))
    if volume is None:
        return []
    return [
        f"ledger.spool {spool}: it is on {volume}; when this pod is deleted without a graceful stop, entries of the last "
        f"{format_duration(ledger.ship_interval)} that were not shipped are gone; mount a PersistentVolume there, or "
        "set ledger.type to kafka"
    ]


def reset_problems(loaded: Loaded, mapper: RefMapper) -> list[str]:
    """Return why some of the ResetOffset manifests beside the configuration do nothing."""
    problems = []
    for manifest in loaded.resets:
        try:
            command_of(manifest, mapper, created=0.0, by="")
        except ConfigError as error:
            problems.append(str(error))
        except ResetError as error:
            problems.append(f"{manifest.where}: {manifest.name}: {error}")
    return problems


def _summary(plan: PlannedChannel) -> str:
    channel = plan.config
    reads = ", ".join(channel.topics) or f"topics like {channel.topics_pattern}"
    coordinator = described(plan.coordinator.registration())
    if isinstance(channel.coordinator, CustomCoordinatorConfig):
        coordinator += f" ({file_of(channel.coordinator.type)})"
    return (
        f"group {channel.group} reads {reads} with {channel.processor.type} ({plan.origin}), coordinator {coordinator}"
    )


def _options(loaded: Loaded, planned: Mapping[str, PlannedChannel]) -> dict[str, object]:
    """Return the plugins' options as their models filled them, by the dotted path of the options."""
    found: dict[str, object] = {}
    for channel, configured in loaded.config.channels.items():
        for short in configured.subscriptions:
            found[f"channels.{channel}.subscriptions.{short}"] = planned[f"{channel}.{short}"].options
    for name, plan in planned.items():
        found[f"channels.{name}.processor.options"] = plan.options
        found[f"channels.{name}.coordinator.options"] = plan.coordinator.options
    return found

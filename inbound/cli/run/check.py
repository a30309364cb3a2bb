"""`inbound check` checks a configuration and its plugins without any server."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from inbound.cli.shared.command import CONFIG, Command, flag
from inbound.cli.shared.files import load_config, state_dir
from inbound.config import CustomCoordinatorConfig, LedgerConfig, Loaded, format_duration, render
from inbound.controller.reset_offset import RefMapper
from inbound.coordinators.rights import described
from inbound.errors import ConfigError, ResetError
from inbound.plan.plan import PlannedChannel, plan_all
from inbound.plan.plugins import file_of
from inbound.plan.resets import command_of, ref_mapper_of
from inbound.process.ledgers import check_ledger

#: File systems that lose their content with the container or with the machine's memory.
_PASSING = {
    "overlay": "the container's own file system (overlay)",
    "tmpfs": "memory (tmpfs)",
    "ramfs": "memory (ramfs)",
}
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOUNTS = Path("/proc/self/mountinfo")


def check(args: argparse.Namespace) -> int:
    """Check the configuration. Returns the exit code."""
    loaded = load_config(args)
    all_planned = plan_all(loaded)
    planned = all_planned.channels
    check_ledger(loaded.config.ledger)
    mapper = ref_mapper_of(loaded)
    mark = ""
    if args.show:
        mark = "# "  # the output is YAML as a whole
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
    """Return warnings about a ledger that a proof could miss."""
    if ledger.type == "none":
        return ["ledger.type none: what is lost or repeated can't be proven; set it to files, or to kafka"]
    if ledger.type != "files" or not in_pod:
        return []
    folder = ledger.path if isinstance(ledger.path, Path) else ledger.spool or state_dir() / "ledger-spool"
    volume = passing(mountinfo, PurePosixPath(os.path.realpath(folder)))
    if volume is None:
        return []
    if folder == ledger.path:
        return [
            f"ledger.path {folder}: it is on {volume}, and gone when this pod is deleted; mount a PersistentVolume "
            "there, give a URI such as s3://bucket/ledger, or set ledger.type to kafka"
        ]
    return [
        f"ledger.spool {folder}: it is on {volume}; when this pod is deleted without a graceful stop, entries of the last "
        f"{format_duration(ledger.ship_interval)} that were not shipped are gone; mount a PersistentVolume there, or "
        "set ledger.type to kafka"
    ]


def reset_problems(loaded: Loaded, mapper: RefMapper) -> list[str]:
    """Return why some of the ResetOffset manifests do nothing."""
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
    coordinator = described(plan.registration())
    if isinstance(channel.coordinator, CustomCoordinatorConfig):
        coordinator += f" ({file_of(channel.coordinator.type)})"
    return (
        f"group {channel.group} reads {reads} with {channel.processor.type} ({plan.origin}), coordinator {coordinator}"
    )


def _options(loaded: Loaded, planned: Mapping[str, PlannedChannel]) -> dict[str, object]:
    """Return the plugins' options with their defaults, by dotted path."""
    found: dict[str, object] = {}
    for channel, configured in loaded.config.channels.items():
        for short in configured.subscriptions:
            found[f"channels.{channel}.subscriptions.{short}"] = planned[f"{channel}.{short}"].options
    for name, plan in planned.items():
        found[f"channels.{name}.processor.options"] = plan.options
        found[f"channels.{name}.coordinator.options"] = plan.coordinator.options
    return found


# -- storage -------------------------------------------------------------------------------------------------------------


def in_kubernetes(environ: Mapping[str, str], account: Path = _ACCOUNT) -> bool:
    """Return whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in environ or account.exists()


def own_mounts() -> str:
    """Return this process's `mountinfo`; empty where the system has none."""
    try:
        return _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return ""


def passing(mountinfo: str, path: PurePosixPath) -> str | None:
    """Name a folder's storage if it is lost with the pod.

    None: the storage seems to last. `mountinfo` is the text of `/proc/<pid>/mountinfo` (see proc(5)), `path` an absolute path
    without links.
    """
    best: tuple[int, str, str] | None = None
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        parts, kind = fields.split(" "), rest.partition(" ")[0]
        if len(parts) < 6 or not kind:
            continue
        root, point = _unescaped(parts[3]), PurePosixPath(_unescaped(parts[4]))
        # A later mount on the same place covers an earlier one.
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = len(point.parts), kind, root
    if best is None:
        return None
    _, kind, root = best
    return "an emptyDir volume" if "kubernetes.io~empty-dir" in root else _PASSING.get(kind)


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


COMMAND = Command(
    "check",
    "check a configuration",
    check,
    "Check a configuration and its plugins; connects to no server. Exit code 0 if it can be used, 2 with a line for each "
    "problem if not. A manifest that cannot be used counts as a problem, although `inbound run` would run the others.",
    examples=("inbound check -c inbound.yaml", "inbound check --show --set channels.orders.workers=8"),
    arguments=(*CONFIG, flag("--show", "print every value in effect as YAML, each with its origin")),
)

"""The differences of two configurations, and the steps between. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from inbound.config import Config, RefusedManifest
from inbound.observe.status.status import RefusedManifestStatus
from inbound.plan.plan import PlannedChannel, standing

#: Sections of the configuration that describe channels.
_OF_CHANNELS = ("channels", "manifests")
#: Keys whose change makes a channel leave its group, and replaces it: its membership, and code made for it.
#: All other keys change while it keeps its partitions.
REPLACED_FOR = frozenset(
    {
        "topics",
        "topics_pattern",
        "group",
        "consumer_id",
        "coordinator",
        "processor.type",
        "reader.client",
        "max_uncommitted_records",
    }
)
#: Compared by their content instead.
_COMPARED_OTHERWISE = frozenset({"processor.options", "subscriptions"})


@runtime_checkable
class Reconfigurable(Protocol):
    """A processor whose options can change; others are replaced between two batches."""

    def reconfigure(self, options: object, generation: int | None) -> None:
        """Use `options` from the next batch, and reread their files. Any thread.

        Raises:
            ConfigError: they cannot be used; the old ones go on.
        """


class Do(Enum):
    """The kinds of steps."""

    ADD = "added"
    EDIT = "edited"  # goes on with other settings, and keeps its partitions
    REPLACE = "replaced"  # leaves its group, and is made again
    REMOVE = "removed"


@dataclass(frozen=True)
class ChannelStep:
    """A step for one channel, and the keys that differ."""

    do: Do
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class ManifestRefusal:
    """A manifest that cannot be used, and the channels that go on."""

    manifest: RefusedManifest
    kept: tuple[str, ...] = ()  # channels that run as they were before

    @property
    def told(self) -> str:
        """The manifest, the problem, and what goes on, for people."""
        goes_on = f"{', '.join(self.kept)} goes on as before" if self.kept else "it does not run"
        return f"{self.manifest.subject} cannot be used, and {goes_on}: {self.manifest.problem}"

    def status(self) -> RefusedManifestStatus:
        """Return it for the status of a process."""
        one = self.manifest
        return RefusedManifestStatus(
            kind=one.kind, namespace=one.namespace, name=one.name, subscriber=one.uid or one.path, file=one.file,
            where=one.where, problem=one.problem, kept=list(self.kept),
        )  # fmt: skip


@dataclass(frozen=True)
class ProcessPlan:
    """All that a process runs, or will run."""

    config: Config
    channels: Mapping[str, PlannedChannel]
    #: The content (or a digest of it) of files beside the configuration, by the section that names them.
    contents: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    #: The channels of readable manifests, by namespace.name, and the manifests that cannot be used.
    read: frozenset[str] = frozenset()
    refused: tuple[ManifestRefusal, ...] = ()


@dataclass(frozen=True)
class Changes:
    """From one plan to another."""

    steps: Mapping[str, ChannelStep] = field(default_factory=dict)  # by the name of the channel
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of the process: which keys differ

    def __bool__(self) -> bool:
        return bool(self.steps or self.sections)

    def told(self) -> list[str]:
        """Return a line for each: `orders: edited (workers)`."""
        lines = [f"{name}: {', '.join(keys)}" for name, keys in self.sections.items()]
        return lines + [
            f"channel {name}: {step.do.value}" + (f" ({', '.join(step.why)})" if step.why else "")
            for name, step in self.steps.items()
        ]


def keeping(old: ProcessPlan, new: ProcessPlan) -> ProcessPlan:
    """Return `new` with channels of `old` whose manifests became unusable.

    Their process settings are those of `new`. A channel with another name or group in `new` is not kept: it moved
    there.
    """
    groups = {planned.config.group for planned in new.channels.values()}
    channels = dict(new.channels)
    kept: dict[int, list[str]] = {}
    for name, planned in old.channels.items():
        if planned.manifest is None or name in new.channels or planned.config.group in groups:
            continue
        origin = planned.manifest
        covering = [i for i, one in enumerate(new.refused) if one.manifest.covers(origin, new.read)]
        if covering:
            files = new.contents.get("manifests", "")
            channels[name] = replace(standing(planned, new.config, new.contents), files=files)
            kept.setdefault(covering[0], []).append(name)
    refused = tuple(replace(one, kept=tuple(kept.get(i, ()))) for i, one in enumerate(new.refused))
    return replace(new, channels=channels, refused=refused)


def changes(old: ProcessPlan, new: ProcessPlan) -> Changes:
    """Return the steps from `old` to `new`; none where nothing differs."""
    steps = {}
    for name in sorted({*old.channels, *new.channels}):
        step = _step(old.channels.get(name), new.channels.get(name))
        if step is not None:
            steps[name] = step
    sections = {}
    for name in Config.model_fields:
        if name not in _OF_CHANNELS and (keys := section_keys(name, old, new)):
            sections[name] = keys
    return Changes(steps, sections)


def section_keys(name: str, old: ProcessPlan, new: ProcessPlan) -> tuple[str, ...]:
    """Return a section's keys that differ.

    `files`: the content of its files alone."""
    keys = tuple(differing(getattr(old.config, name), getattr(new.config, name)))
    # A listener whose address was given is another one than the same by default: see `AdminConfig.given`.
    if name == "admin" and not keys and old.config.admin.given != new.config.admin.given:
        keys = ("listen",)
    if not keys and old.contents.get(name, "") != new.contents.get(name, ""):
        keys = ("files",)
    return keys


def _step(before: PlannedChannel | None, after: PlannedChannel | None) -> ChannelStep | None:
    if before is None or after is None:
        return ChannelStep(Do.ADD) if after is not None else ChannelStep(Do.REMOVE)
    keys = [key for key in differing(before.config, after.config) if key not in _COMPARED_OTHERWISE]
    if before.processor is not after.processor and "processor.type" not in keys:
        keys.append("processor.type")
    replace = any(key in REPLACED_FOR or key.startswith("coordinator") for key in keys)
    if before.options != after.options:
        keys.append("processor.options")
        # A transport is made once.
        replace |= getattr(before.options, "transport", None) != getattr(after.options, "transport", None)
    if before.subscriber != after.subscriber and "processor.options" not in keys:
        keys.append("subscriber")
    keys += [name for name in ("files", "kafka") if getattr(before, name) != getattr(after, name)]
    if before.base != after.base:
        keys += [name for name in after.base if before.base.get(name) != after.base[name]]
        replace = True
    if not keys:
        return None
    return ChannelStep(Do.REPLACE if replace else Do.EDIT, tuple(keys))


def differing(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys whose values differ.

    Of mappings, and of models of two kinds, the key as a whole.
    """
    if isinstance(old, BaseModel) and type(old) is type(new):
        for name in type(old).model_fields:
            below = f"{prefix}.{name}" if prefix else name
            yield from differing(getattr(old, name), getattr(new, name), below)
    elif isinstance(old, Mapping) and isinstance(new, Mapping) and not prefix:
        yield from sorted(str(key) for key in {*old, *new} if old.get(key) != new.get(key))
    elif old != new:
        yield prefix or "all"

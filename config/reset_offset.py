"""Knative's `ResetOffset` manifests, and the `Subscription`s that they may name.

As with `KafkaChannel`s only their form is checked here. A reset is no part of the configuration: one that is wrong is told
of and does nothing, and all else goes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from inbound.config.kafka_channel import Metadata, Name, Number, Text
from inbound.config.units import shown
from inbound.config.values import Part, text, wrong

RESET, SUBSCRIPTION = "ResetOffset", "Subscription"
EARLIEST, LATEST = "earliest", "latest"

#: RFC 3339, with its offset from UTC: without one a time means something else on each machine.
_TIME = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})",
    re.ASCII,
)


def parse_time(given: str) -> float:
    """Return the seconds since 1970 of an RFC 3339 time, such as `2026-01-31T02:40:00Z`. Raises ValueError."""
    try:
        if _TIME.fullmatch(given):
            return datetime.fromisoformat(given.upper()).timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"need a time with its offset from UTC, such as 2026-01-31T02:40:00Z, got {shown(given)}")


def _time(value: Any) -> str:
    given = text(value)
    if given not in (EARLIEST, LATEST):
        try:
            parse_time(given)
        except ValueError as error:
            raise wrong(f"{error}; or {EARLIEST} or {LATEST}") from None
    return given


class OffsetTarget(Part):
    """Where to."""

    time: Annotated[str, BeforeValidator(_time)]


class TargetRef(Part):
    """Whose offsets."""

    apiVersion: Text | None = None
    group: Text | None = None
    kind: Text
    name: Name
    namespace: Name | None = None


class ResetSpecPart(Part):
    """What is asked for."""

    offset: OffsetTarget
    ref: TargetRef


class ResetOffset(Part):
    """A command: repositions the offsets of whatever `spec.ref` names."""

    apiVersion: Literal["kafka.eventing.knative.dev/v1alpha1"]
    kind: Literal["ResetOffset"]
    metadata: Metadata
    spec: ResetSpecPart
    status: Any = None


@dataclass(frozen=True)
class ResetManifest:
    """One `ResetOffset`, and where it stands."""

    name: str  # namespace/name
    where: str  # file and line
    reset: ResetOffset | None
    problem: str | None = None  # why it is none, with file and line; then it does nothing


class ChannelRef(Part):
    """The channel of a subscription; it is in the subscription's namespace."""

    apiVersion: Text | None = None
    kind: Text
    name: Name
    namespace: Name | None = None


class SubscriptionSpec(Part):
    """What of a subscription says which topic and group it has; the rest stands in its channel."""

    channel: ChannelRef
    subscriber: Any = None
    reply: Any = None
    delivery: Any = None


class SubscriptionMetadata(Metadata):
    """Its uid is what its group is named after."""

    uid: Name
    generation: Number | None = None


class Subscription(Part):
    """Knative's own, `messaging.knative.dev`."""

    apiVersion: Literal["messaging.knative.dev/v1", "messaging.knative.dev/v1beta1"]
    kind: Literal["Subscription"]
    metadata: SubscriptionMetadata
    spec: SubscriptionSpec = Field()
    status: Any = None

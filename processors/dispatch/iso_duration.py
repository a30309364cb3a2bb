"""Durations as Knative writes them, in ISO 8601 (`PT0.2S`), beside those of the configuration (`200ms`)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from inbound.config.units import LONGEST, format_duration, parse_duration, shown
from inbound.config.values import Quantity

#: Days, hours, minutes, seconds; a fraction only in the last. Years and months have no fixed length, and Knative's own
#: library refuses what it cannot turn into seconds, too. A comma may stand for the point, as the standard has it.
_ISO = re.compile(
    r"P(?:(?P<w>\d{1,9})W|(?:(?P<d>\d{1,9})D)?(?:T(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,9}(?:[.,]\d{1,9})?)S)?)?)",
    re.ASCII,
)
_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_iso_duration(text: str) -> float:
    """Return the seconds of `PT1M30S`. Raises ValueError."""
    match = _ISO.fullmatch(text)
    if not match or not any(match.groupdict().values()) or text.endswith("T"):
        raise ValueError(f"need an ISO 8601 duration such as PT0.2S, without years and months, got {shown(text)}")
    seconds = sum(Decimal(n.replace(",", ".")) * _SECONDS[unit] for unit, n in match.groupdict().items() if n)
    if seconds > LONGEST:
        raise ValueError(f"need at most 100 years, got {shown(text)}")
    return float(seconds)


def iso_duration(*, over: bool = False) -> Quantity:
    """Seconds, written as ISO 8601 or with a unit. `over`: more than 0."""
    schema = {
        "title": "ISO 8601 duration",
        "type": "string",
        "pattern": r"^(P[0-9DHMSTW.,]+|[0-9]+(\.[0-9]+)?(ms|s|m|h|d))$",
    }
    return Quantity(_parse, format_duration, schema | {"examples": ["PT0.2S"]}, 0.0, None, over)


def _parse(value: Any) -> float:
    return parse_iso_duration(value) if isinstance(value, str) and value.startswith("P") else parse_duration(value)

"""Parses and formats durations, sizes and rates: `300ms`, `7d`, `1MiB`, `500/s`.

In code a duration is a float of seconds and a size an int of bytes. In text both need a unit: `session_timeout: 10`
could be seconds or, as in Kafka's properties, milliseconds, so it is refused instead of guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

DURATION_UNITS: Mapping[str, Decimal] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}

SIZE_UNITS: Mapping[str, int] = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}

MIB = 2**20

#: A longer wait on a threading.Event overflows on some platforms, and is a mistake.
LONGEST = 100 * 365 * 86400.0

#: One exbibyte: beyond any machine, and far below where digits alone would cost time.
LARGEST = 2**60

#: At most 20 digits a side: enough for `LARGEST`, and no text costs more than a blink.
_QUANTITY = re.compile(r"(-?[0-9]{1,20}(?:\.[0-9]{1,20})?)([A-Za-z]*)", re.ASCII)

#: Weeks, or days, hours, minutes and seconds; only seconds have a fraction, after a point or a comma (ISO 8601). Years and
#: months have no fixed length; Knative's own library refuses them, too.
_ISO = re.compile(
    r"P(?:(?P<w>\d{1,9})W|(?:(?P<d>\d{1,9})D)?(?:T(?:(?P<h>\d{1,9})H)?(?:(?P<m>\d{1,9})M)?(?:(?P<s>\d{1,9}(?:[.,]\d{1,9})?)S)?)?)",
    re.ASCII,
)
_ISO_SECONDS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}

_RATE_RULE = "need events per second, such as 1000 or 1000/s"
_DURATION_RULE = f"need a duration such as 10s (units: {', '.join(DURATION_UNITS)})"
_SIZE_RULE = f"need a size such as 1MiB (units: {', '.join(SIZE_UNITS)})"


def parse_duration(value: Any) -> float:
    """Return the seconds of `10s`; 0 needs no unit. Raises ValueError."""
    seconds = float(_amount(value, DURATION_UNITS, _DURATION_RULE))
    if seconds > LONGEST:
        raise ValueError(f"need at most 100 years, got {shown(value)}")
    return seconds


def parse_iso_duration(text: str) -> float:
    """Return the seconds of `PT1M30S`. Raises ValueError."""
    match = _ISO.fullmatch(text)
    if not match or not any(match.groupdict().values()) or text.endswith("T"):
        raise ValueError(f"need an ISO 8601 duration such as PT0.2S, without years and months, got {shown(text)}")
    seconds = sum(Decimal(n.replace(",", ".")) * _ISO_SECONDS[unit] for unit, n in match.groupdict().items() if n)
    if seconds > LONGEST:
        raise ValueError(f"need at most 100 years, got {shown(text)}")
    return float(seconds)


def parse_size(value: Any) -> int:
    """Return the bytes of `1MiB`; 0 needs no unit. Raises ValueError."""
    count = _amount(value, SIZE_UNITS, _SIZE_RULE)
    if count != int(count):
        raise ValueError(f"need a whole number of bytes, got {shown(value)}")
    if count > LARGEST:
        raise ValueError(f"need at most {format_size(LARGEST)}, got {shown(value)}")
    return int(count)


def parse_rate(value: Any) -> float:
    """Return the rate of a number or of `1000/s`. Raises ValueError."""
    return float(_amount(value.removesuffix("/s") if isinstance(value, str) else value, {"": 1}, _RATE_RULE))


def format_rate(per_second: float) -> str:
    """Return `per_second` as `parse_rate` reads it."""
    return f"{Decimal(repr(float(per_second))).normalize():f}/s"


def format_duration(seconds: float) -> str:
    """Return `seconds`, exactly, with the largest unit that needs no decimals."""
    exact = Decimal(repr(float(seconds)))
    for unit in reversed(list(DURATION_UNITS)):
        count = exact / DURATION_UNITS[unit]
        if exact and count == int(count):
            return f"{int(count)}{unit}"
    return f"{exact.normalize():f}s"


def format_size(count: int) -> str:
    """Return `count` bytes with the largest binary unit that needs no decimals."""
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % SIZE_UNITS[unit] == 0:
            return f"{count // SIZE_UNITS[unit]}{unit}"
    return f"{count}B"


def shown(value: Any) -> str:
    """Return `value` for an error message: on one line, and short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 200:
        return "a huge number"  # Python refuses to spell out the longest ones
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        text = repr(str(value))
        return text if len(text) <= 80 else f"{text[:77]}..."
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"


def _amount(value: Any, units: Mapping[str, Decimal | int], rule: str) -> Decimal:
    """Return number times unit, which only 0 may lack. Raises ValueError."""
    usable = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    match = _QUANTITY.fullmatch(str(value)) if usable else None
    if not match or (match[2] not in units and (Decimal(match[1]) or match[2])):
        raise ValueError(f"{rule}, got {shown(value)}")
    return Decimal(match[1]) * units.get(match[2], 1)

"""What a request asks for, within bounds. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qs

from inbound.globs import glob

#: How long a profile is taken if nobody says, and at most, in seconds; and how many times a second threads are looked at.
SECONDS, MOST_SECONDS = 30, 300
HZ, MOST_HZ = 100, 1000
#: Characters of a pattern: threads have a channel's name, and what they do.
LONGEST_PATTERN = 256


class BadRequestError(ValueError):
    """It cannot be taken so; the message says what is possible."""


class Parameters:
    """The values of a query, each given once."""

    def __init__(self, query: str, allowed: Collection[str]) -> None:
        """Raises BadRequestError: one of them is not among `allowed`, or is given twice."""
        try:
            given = parse_qs(query, keep_blank_values=True, max_num_fields=20)
        except ValueError as error:
            raise BadRequestError(f"the query cannot be read: {error}") from None
        unknown = sorted(set(given) - set(allowed))
        if unknown:
            raise BadRequestError(f"{unknown[0][:40]}: unknown; allowed: {', '.join(sorted(allowed)) or 'nothing'}")
        if twice := [key for key, values in given.items() if len(values) > 1]:
            raise BadRequestError(f"{twice[0]}: given twice")
        self._values: Mapping[str, str] = {key: values[0] for key, values in given.items()}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def whole(self, key: str, default: int, at_least: int, at_most: int) -> int:
        """Return a whole number."""
        given = self._values.get(key)
        if given is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", given, re.ASCII) or not at_least <= int(given) <= at_most:
            raise BadRequestError(f"{key}: need a whole number from {at_least} to {at_most}, got {given[:40]!r}")
        return int(given)

    def one_of(self, key: str, allowed: Collection[str], default: str) -> str:
        """Return one of several words."""
        given = self._values.get(key, default)
        if given not in allowed:
            raise BadRequestError(f"{key}: need one of {', '.join(allowed)}, got {given[:40]!r}")
        return given

    def pattern(self, key: str) -> re.Pattern[str]:
        """Return what the name matches as a whole that is asked for; `*` is any text, `?` any character. Without one, all."""
        given = self._values.get(key, "*")
        if len(given) > LONGEST_PATTERN:
            raise BadRequestError(f"{key}: {len(given)} characters; a pattern has at most {LONGEST_PATTERN}")
        return glob(given)

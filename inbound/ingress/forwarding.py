"""Headers of a request that its records carry, beside those of the event."""

from __future__ import annotations

from collections.abc import Sequence

from inbound.processors.forwarded_headers import MOST_BYTES, MOST_HEADERS, MOST_LOOKED_AT, Forwarding

Headers = list[tuple[str, bytes]]

#: Names come from the network: so many are remembered, and none that is longer.
_NAMES_KEPT, _LONGEST_KEPT = 4096, 64
#: At the ends of a value: the parser leaves those behind it.
_BLANKS = b" \t"


class RecordHeaders:
    """Picks the headers of a request that go on into its records. One thread."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """`patterns` are globs of names of headers."""
        self._forwarding = Forwarding(patterns)
        self._stay: set[bytes] = set()  # names, as they came, that do not go on
        self._names: dict[bytes, str] = {}  # those that do, in lower case
        #: Headers that should have gone on, and had no room.
        self.left_out = 0

    def of(self, headers: Sequence[tuple[bytes, bytes]], size: int) -> Headers:
        """Return the headers that go on: names in lower case, and the bytes that came.

        The values of a header in several lines are joined by commas (RFC 9110, 5.3). `size` is a bound of the bytes of
        `headers`.
        """
        stay = self._stay
        found = [header for header in headers if header[0] not in stay]
        return self._named(found[:MOST_LOOKED_AT], size) if found else []

    def _named(self, headers: Sequence[tuple[bytes, bytes]], size: int) -> Headers:
        names = self._names
        found = [(name, value.strip(_BLANKS)) for raw, value in headers if (name := names.get(raw) or self._learn(raw))]
        if size <= MOST_BYTES and len(found) <= MOST_HEADERS and len(dict(found)) == len(found):  # as nearly always
            return found
        kept = _bounded(found)
        self.left_out += len(dict(found)) - len(kept)
        return kept

    def _learn(self, raw: bytes) -> str:
        """Return the name of a header as records have it, and remember it; empty: it does not go on."""
        name = raw.decode("latin-1").lower()
        passes = self._forwarding.passes(name)
        if len(self._stay) + len(self._names) < _NAMES_KEPT and len(raw) <= _LONGEST_KEPT:
            if passes:
                self._names[raw] = name
            else:
                self._stay.add(raw)
        return name if passes else ""


def size_of(headers: Headers) -> int:
    """Return the bytes of names and values."""
    return sum(len(name) + len(value) for name, value in headers)


def _bounded(found: Headers) -> Headers:
    lines: dict[str, list[bytes]] = {}
    for name, value in found:
        lines.setdefault(name, []).append(value)
    kept: Headers = []
    room = MOST_BYTES
    for name, values in lines.items():
        value = b",".join(values)
        size = len(name) + len(value)
        if size <= room and len(kept) < MOST_HEADERS:
            kept.append((name, value))
            room -= size
    return kept

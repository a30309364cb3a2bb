"""A record's headers that go with the request that carries its event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from inbound.processors.cloudevents_bridge import HttpParts
from inbound.processors.cloudevents_to_http import TRACE
from inbound.processors.dispatch.counters import Counters
from inbound.processors.forwarded_headers import MOST_BYTES, MOST_HEADERS, MOST_LOOKED_AT, Forwarding

_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_TRACE_LINES: Final = tuple(f"{name}:".encode() for name in TRACE)


class RecordHeaders:
    """Adds them to requests, within bounds; what could not be added is counted."""

    def __init__(self, forwarding: Forwarding, counters: Counters) -> None:
        self._passes = forwarding.passes
        self._counters = counters

    def __call__(self, parts: HttpParts, headers: Sequence[tuple[str, bytes | None]]) -> HttpParts:
        """Return a request with the headers of its record that go on.

        The event's own trace is not mixed with that of the headers. What cannot be a header's value is left out: only
        printable ASCII can, so that none ends a line.
        """
        lines: list[bytes] = []
        room, left_out = MOST_BYTES, max(0, len(headers) - MOST_LOOKED_AT)
        for name, raw in islice(headers, MOST_LOOKED_AT):
            if raw is None or not self._passes(name):
                continue
            if name.lower() in TRACE and any(line.startswith(_TRACE_LINES) for line in parts.lines):
                continue
            value = raw.strip(b" \t")
            size = len(name) + len(value)
            if size > room or len(lines) == MOST_HEADERS or value.translate(None, _PRINTABLE):
                left_out += 1
            else:
                room -= size
                lines.append(name.encode() + b": " + value)
        self._counters.headers_left_out += left_out
        return HttpParts(parts.lines + lines, parts.body) if lines else parts

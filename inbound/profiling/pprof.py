"""A profile in pprof's format: gzip'd protobuf, message `perftools.profiles.Profile`. Pure.

The names of fields and their numbers are those of `proto/profile.proto` in github.com/google/pprof.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from inbound.profiling.profile import Frame, Profile, Sample, ValueType

#: The type of the content, and how hard it is compressed.
CONTENT_TYPE, LEVEL = "application/octet-stream", 6
#: What the one mapping, which says that nothing has to be looked up in a binary, is called.
PROGRAM = "inbound"
_MAPPING = 1
_UNSIGNED = (1 << 64) - 1


def encode(profile: Profile) -> bytes:
    """Return the profile as `go tool pprof` reads it."""
    return gzip.compress(_Encoder().message(profile), LEVEL, mtime=0)


class _Encoder:
    """Numbers strings, functions and locations as they come."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[Frame, int] = {}

    def message(self, profile: Profile) -> bytes:
        out = bytearray()
        for kind in profile.types:
            out += _nested(1, self._value_type(kind))
        for sample in profile.samples:
            out += _nested(2, self._sample(sample))
        out += _nested(3, self._mapping())
        for frame, number in self._locations.items():
            out += _nested(4, self._location(frame, number))
        for function, number in self._functions.items():
            out += _nested(5, self._function(*function, number))
        period_type, period = profile.period
        tail = _number(9, profile.time_ns) + _number(10, profile.duration_ns)
        tail += _nested(11, self._value_type(period_type)) + _number(12, period)
        for comment in profile.comments:
            # Written even if it were 0: a repeated field, not packed, as pprof itself writes it.
            tail += _tag(13, 0) + _varint(self._string(comment))
        tail += _number(14, self._string(profile.default))
        for text in self._strings:  # last: by now all are known
            out += _nested(6, text.encode("utf-8", "replace"))
        return bytes(out + tail)

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _value_type(self, kind: ValueType) -> bytes:
        return _number(1, self._string(kind.name)) + _number(2, self._string(kind.unit))

    def _sample(self, sample: Sample) -> bytes:
        out = _packed(1, (self._located(frame) for frame in sample.stack)) + _packed(2, sample.values)
        for key, value in sample.labels.items():
            out += _nested(3, _number(1, self._string(key)) + _number(2, self._string(value)))
        return out

    def _located(self, frame: Frame) -> int:
        return self._locations.setdefault(frame, len(self._locations) + 1)

    def _mapping(self) -> bytes:
        flags = b"".join(_number(field, 1) for field in (7, 8, 9))  # has functions, file names, line numbers
        return _number(1, _MAPPING) + _number(5, self._string(PROGRAM)) + flags

    def _location(self, frame: Frame, number: int) -> bytes:
        function = self._functions.setdefault(
            (frame.function, frame.file, frame.first_line), len(self._functions) + 1
        )  # fmt: skip
        line = _number(1, function) + _number(2, frame.line)
        return _number(1, number) + _number(2, _MAPPING) + _nested(4, line)

    def _function(self, name: str, file: str, first_line: int, number: int) -> bytes:
        named = self._string(name)
        return (
            _number(1, number) + _number(2, named) + _number(3, named) + _number(4, self._string(file))
            + _number(5, first_line)
        )  # fmt: skip


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    """Return a field of one number; 0 is what a reader takes for one that is not there."""
    return _tag(field, 0) + _varint(value) if value else b""


def _nested(field: int, content: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _nested(field, b"".join(map(_varint, values)))


def _varint(value: int) -> bytes:
    """Return a number of up to 64 bits; a negative one as its two's complement, as int64 is written."""
    value &= _UNSIGNED
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""A profile has samples with stacks and function names; pprof's encoding.

Fields of messages and their numbers are those of `proto/profile.proto` in github.com/google/pprof.
"""

from __future__ import annotations

import gzip
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePath
from types import CodeType
from typing import Any, NamedTuple


class Frame(NamedTuple):
    """A place in the code."""

    function: str  # with its module: `inbound.channel.worker.Worker.run_once`
    file: str
    line: int  # 0: unknown
    first_line: int = 0  # of the function; 0: unknown


class ValueType(NamedTuple):
    """A measure and its unit: `cpu`, `nanoseconds`."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class StackSample:
    """The values measured at one place."""

    stack: tuple[Frame, ...]  # the innermost call first
    values: tuple[int, ...]  # as many as the profile has types
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measurements by place."""

    title: str
    types: tuple[ValueType, ...]
    default: str  # the name of the type that is shown first
    samples: Sequence[StackSample]
    period: tuple[ValueType, int]  # the interval between two samples
    time_ns: int = 0  # when it was begun, since the Unix epoch
    duration_ns: int = 0
    comments: tuple[str, ...] = ()


class Names:
    """Finds the function and the module of a place, after the measuring.

    One thread, one profile: modules come and go.
    """

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(file, str):
                self._modules.setdefault(file, name)
        self._lines: dict[int, tuple[list[int], list[int]]] = {}
        self._kept: list[CodeType] = []  # keeps the code alive whose ids are keys above
        self._functions: dict[str, list[tuple[int, int, str]]] = {}
        # The same few places are in thousands of stacks.
        self._instructions: dict[tuple[int, int], Frame] = {}
        #: Returns the function of a line, by the compiled module; the module itself if that is unknown.
        self.of_line = cache(self._find_line)

    def of_instruction(self, code: CodeType, instruction: int) -> Frame:
        """Return the place of an instruction of `code`: `frame.f_lasti`."""
        known = self._instructions.get((id(code), instruction))
        if known is None:
            known = self._instructions[id(code), instruction] = self._find_instruction(code, instruction)
        return known

    def _find_instruction(self, code: CodeType, instruction: int) -> Frame:
        found = self._lines.get(id(code))
        if found is None:
            table = [(start, line or code.co_firstlineno) for start, _, line in code.co_lines()]
            found = self._lines[id(code)] = ([start for start, _ in table], [line for _, line in table])
            self._kept.append(code)
        starts, lines = found
        place = bisect_right(starts, max(0, instruction)) - 1
        line = lines[place] if place >= 0 else code.co_firstlineno
        return Frame(self._name(code.co_filename, code.co_qualname), code.co_filename, line, code.co_firstlineno)

    def _find_line(self, file: str, line: int) -> Frame:
        functions = self._functions.get(file)
        if functions is None:
            functions = self._functions[file] = sorted(_functions(self._compiled(file)))
        # The innermost is the one that begins last of those that are not over.
        inside = [one for one in functions if one[0] <= line <= one[1]]
        first, _, qualname = max(inside, default=(0, 0, "<module>"))
        return Frame(self._name(file, qualname), file, line, first)

    def _name(self, file: str, qualname: str) -> str:
        module = self._modules.get(file)
        if module is None:
            module = file.strip("<>").removeprefix("frozen ") if file.startswith("<") else PurePath(file).stem
        return f"{module}.{qualname}"

    def _compiled(self, file: str) -> CodeType | None:
        """Return a module's code as loaded, from the loader's cache if any."""
        module: Any = sys.modules.get(self._modules.get(file, ""))
        get_code = getattr(getattr(module, "__loader__", None), "get_code", None)
        if get_code is None:
            return None
        try:
            code = get_code(module.__spec__.name if module.__spec__ is not None else module.__name__)
        except Exception:  # a foreign loader may raise anything; then there are no names
            return None
        return code if isinstance(code, CodeType) else None


def _functions(code: CodeType | None) -> Iterator[tuple[int, int, str]]:
    """Yield first line, last line and name of functions and classes."""
    todo = [] if code is None else [one for one in code.co_consts if isinstance(one, CodeType)]
    while todo:
        one = todo.pop()
        below = [const for const in one.co_consts if isinstance(const, CodeType)]
        todo += below
        yield one.co_firstlineno, _last_line(one), one.co_qualname


def _last_line(code: CodeType) -> int:
    own = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    return max([own, *(_last_line(const) for const in code.co_consts if isinstance(const, CodeType))])


#: The content type, and the level of its compression.
CONTENT_TYPE, LEVEL = "application/octet-stream", 6
#: The name of the one mapping: readers look nothing up in a binary.
PROGRAM = "inbound"
_MAPPING = 1
_UNSIGNED = (1 << 64) - 1


def encode(profile: Profile) -> bytes:
    """Return the profile as `go tool pprof` reads it."""
    return gzip.compress(_Encoder().message(profile), LEVEL, mtime=0)


class _Encoder:
    """Numbers strings, functions and locations in the order of their first use."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str, int], int] = {}
        self._locations: dict[Frame, int] = {}

    def message(self, profile: Profile) -> bytes:
        # In this order: samples number locations, locations number functions, and all of them strings.
        out = _repeated(1, map(self._value_type, profile.types))
        out += _repeated(2, map(self._sample, profile.samples))
        out += _nested(3, self._mapping())
        out += _repeated(4, (self._location(frame, number) for frame, number in self._locations.items()))
        out += _repeated(5, (self._function(*function, number) for function, number in self._functions.items()))
        period_type, period = profile.period
        tail = _number(9, profile.time_ns) + _number(10, profile.duration_ns)
        tail += _nested(11, self._value_type(period_type)) + _number(12, period)
        for comment in profile.comments:
            # Written even if it were 0: a repeated field, not packed, as pprof itself writes it.
            tail += _tag(13, 0) + _varint(self._string(comment))
        tail += _number(14, self._string(profile.default))
        # Last: all strings are known by now.
        return out + _repeated(6, (text.encode("utf-8", "replace") for text in self._strings)) + tail

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _value_type(self, kind: ValueType) -> bytes:
        return _number(1, self._string(kind.name)) + _number(2, self._string(kind.unit))

    def _sample(self, sample: StackSample) -> bytes:
        labels = (_number(1, self._string(key)) + _number(2, self._string(text)) for key, text in sample.labels.items())
        stack = (self._locations.setdefault(frame, len(self._locations) + 1) for frame in sample.stack)
        return _packed(1, stack) + _packed(2, sample.values) + _repeated(3, labels)

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
    """Return a number's field; readers take a missing one for 0."""
    return _tag(field, 0) + _varint(value) if value else b""


def _nested(field: int, content: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(content)) + content


def _repeated(field: int, contents: Iterable[bytes]) -> bytes:
    return b"".join(_nested(field, content) for content in contents)


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _nested(field, b"".join(map(_varint, values)))


def _varint(value: int) -> bytes:
    """Return a number of up to 64 bits.

    A negative one is written as its two's complement, as int64 is.
    """
    value &= _UNSIGNED
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""Names for places in the code, found after the measuring, not during it."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import PurePath
from types import CodeType
from typing import Any

from inbound.profiling.profile import Frame


class Names:
    """Says which function of which module a place is in. For one thread, and one profile: modules come and go."""

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__dict__", {}).get("__file__")
            if isinstance(file, str):
                self._modules.setdefault(file, name)
        self._lines: dict[int, tuple[list[int], list[int]]] = {}
        self._kept: list[CodeType] = []  # whose ids are keys above
        self._functions: dict[str, list[tuple[int, int, str]]] = {}
        # The same few places are in thousands of stacks.
        self._instructions: dict[tuple[int, int], Frame] = {}
        self._places: dict[tuple[str, int], Frame] = {}

    def of_instruction(self, code: CodeType, instruction: int) -> Frame:
        """Return where in `code` the instruction at that byte is: `frame.f_lasti`."""
        known = self._instructions.get((id(code), instruction))
        if known is None:
            known = self._instructions[id(code), instruction] = self._find_instruction(code, instruction)
        return known

    def of_line(self, file: str, line: int) -> Frame:
        """Return which function a line is in, as the compiled module has it; the module itself where that is not known."""
        known = self._places.get((file, line))
        if known is None:
            known = self._places[file, line] = self._find_line(file, line)
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
        """Return the code of a module as it was loaded; from its cache, where the loader has one."""
        module: Any = sys.modules.get(self._modules.get(file, ""))
        get_code = getattr(getattr(module, "__loader__", None), "get_code", None)
        if get_code is None:
            return None
        try:
            code = get_code(module.__spec__.name if module.__spec__ is not None else module.__name__)
        except Exception:  # a loader of somebody's own may raise anything; then there are no names
            return None
        return code if isinstance(code, CodeType) else None


def _functions(code: CodeType | None) -> Iterator[tuple[int, int, str]]:
    """Yield first line, last line and name of all functions and classes in the code of a module."""
    todo = [] if code is None else [one for one in code.co_consts if isinstance(one, CodeType)]
    while todo:
        one = todo.pop()
        below = [const for const in one.co_consts if isinstance(const, CodeType)]
        todo += below
        yield one.co_firstlineno, _last_line(one), one.co_qualname


def _last_line(code: CodeType) -> int:
    own = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    return max([own, *(_last_line(const) for const in code.co_consts if isinstance(const, CodeType))])

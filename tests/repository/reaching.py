"""Finds, from annotations alone, what ties rooms together without an import.

Calls that reach through a thing of another room (`theirs.inner.method()`), callbacks given after construction, and slices of
lists of parts (`drivers[2:]`), which mean something only to who knows the order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.rooms import LEAVES, room_of

#: What makes a class a part that runs, and not a value: one of these methods.
RUNS = frozenset({"run_once", "start", "stop", "close"})
#: Rooms of plain helpers and values: what stands in them may be reached through.
PLAIN = ("runtime", "config")


@dataclass
class _Class:
    """A class: its module, and what is known of its attributes' classes and of its bases, as qualified names."""

    module: str
    bases: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    callbacks: set[str] = field(default_factory=set)  # attributes that hold a function to call
    lists: dict[str, str] = field(default_factory=dict)  # attributes that hold several of a class
    methods: set[str] = field(default_factory=set)


class Classes:
    """All classes of the product, by qualified name."""

    def __init__(self, known: Mapping[str, Path]) -> None:
        self._known = known
        self.trees = {name: ast.parse(path.read_text()) for name, path in known.items()}
        self.names = {name: self._names(name, tree) for name, tree in self.trees.items()}
        self.found: dict[str, _Class] = {}
        for name, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    self.found[f"{name}.{node.name}"] = self._class(name, node)

    def _names(self, module: str, tree: ast.Module) -> dict[str, str]:
        """Return what names mean in a module: its own classes, and what it imports by name."""
        names = {node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return names

    def _class(self, module: str, node: ast.ClassDef) -> _Class:
        found = _Class(module, [kind for base in node.bases if (kind := self.kind(module, base)) is not None])
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                self._note(found, part.target.id, self.kind(module, part.annotation))
                self._note_callback(found, part.target.id, part.annotation)
            elif isinstance(part, ast.FunctionDef):
                found.methods.add(part.name)
                if any(isinstance(one, ast.Name) and one.id == "property" for one in part.decorator_list):
                    self._note(found, part.name, self.kind(module, part.returns))
                    self._note_list(found, module, part.name, part.returns)
                self._assigned(found, module, part)
        return found

    def _assigned(self, found: _Class, module: str, function: ast.FunctionDef) -> None:
        given = {one.arg: one.annotation for one in (*function.args.args, *function.args.kwonlyargs)}
        for node in ast.walk(function):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if not (
                isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
            ):
                continue
            value = getattr(node, "value", None)
            if isinstance(node, ast.AnnAssign):
                self._note(found, target.attr, self.kind(module, node.annotation))
                self._note_list(found, module, target.attr, node.annotation)
                self._note_callback(found, target.attr, node.annotation)
            elif isinstance(value, ast.Name) and value.id in given:
                self._note(found, target.attr, self.kind(module, given[value.id]))
                self._note_callback(found, target.attr, given[value.id])
            elif isinstance(value, ast.Call):
                self._note(found, target.attr, self.kind(module, value.func))

    def _note(self, found: _Class, name: str, kind: str | None) -> None:
        if kind is not None:
            found.attributes.setdefault(name, kind)

    def _note_callback(self, found: _Class, name: str, annotation: ast.expr | None) -> None:
        if annotation is not None and ast.unparse(annotation).strip("'\"").startswith("Callable["):
            found.callbacks.add(name)

    def _note_list(self, found: _Class, module: str, name: str, annotation: ast.expr | None) -> None:
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in {
            "list",
            "tuple",
            "Sequence",
            "deque",
        }:
            element = annotation.slice.elts[0] if isinstance(annotation.slice, ast.Tuple) else annotation.slice
            kind = self.kind(module, element)
            if kind is not None:
                found.lists.setdefault(name, kind)

    def several(self, kind: str | None, name: str) -> str | None:
        """Return the class of which an attribute holds several; None: it holds no list of a class of ours."""
        one = self.found.get(kind or "")
        return one.lists.get(name) if one is not None else None

    def runs(self, kind: str | None) -> bool:
        """Whether a class is a part that runs: see `RUNS`."""
        one = self.found.get(kind or "")
        return one is not None and bool(RUNS & one.methods)

    def is_callback(self, kind: str | None, name: str) -> bool:
        """Whether an attribute of a class, or of a base of it, holds a function to call."""
        one = self.found.get(kind or "")
        return one is not None and (name in one.callbacks or any(self.is_callback(base, name) for base in one.bases))

    def kind(self, module: str, node: ast.expr | None) -> str | None:
        """Return the class that an annotation, or the name that is called, means; None: no class of ours alone."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if isinstance(node, ast.BinOp):  # `X | None`
            sides = [self.kind(module, side) for side in (node.left, node.right)]
            return next((side for side in sides if side is not None), None)
        return self.names[module].get(node.id) if isinstance(node, ast.Name) else None

    def attribute(self, kind: str | None, name: str) -> str | None:
        """Return the class of an attribute, also of a base's."""
        one = self.found.get(kind or "")
        if one is None:
            return None
        return one.attributes.get(name) or next(
            (found for base in one.bases if (found := self.attribute(base, name)) is not None), None
        )

    def room(self, kind: str | None) -> str | None:
        """Return the room that a class stands in; None: it is none of ours, or in one that serves all."""
        one = self.found.get(kind or "")
        room = room_of(one.module, self._known) if one is not None and one.module not in LEAVES else None
        return None if room in PLAIN else room


def reaching(classes: Classes, module: str, room: str) -> Iterator[str]:
    """Yield the calls of `module` that reach through a thing of another room into a third one, or through two things.

    What a thing of another room is made of belongs to that room, so `partition.buffer.cut()` is no such call.
    """
    for function, kinds in _known_kinds(classes, module):
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                inner = node.func.value
                into = classes.room(_kind_of(classes, kinds, inner))
                through, hops = None, 0
                while isinstance(inner, ast.Attribute):
                    inner = inner.value
                    holder = classes.room(_kind_of(classes, kinds, inner))
                    if holder in (None, room):
                        break
                    through, hops = through or holder, hops + 1
                if into not in (None, room) and through is not None and (hops > 1 or through != into):
                    yield f"{module}:{node.lineno}: {ast.unparse(node.func)}() reaches through {through} into {into}"


def callbacks_assigned(classes: Classes, module: str) -> Iterator[str]:
    """Yield the lines of `module` that give an object its callback after it was made: `thing.on_end = self._end`."""
    for function, kinds in _known_kinds(classes, module):
        for node in (one for one in ast.walk(function) if isinstance(one, ast.Assign)):
            for target in node.targets:
                if not isinstance(target, ast.Attribute) or ast.unparse(target.value) == "self":
                    continue
                if classes.is_callback(_kind_of(classes, kinds, target.value), target.attr):
                    yield f"{module}:{node.lineno}: {ast.unparse(node)}: give it to the constructor"


def slices_of_parts(classes: Classes, module: str) -> Iterator[str]:
    """Yield the lines of `module` that take some parts of a list by their places: `channel.drivers[2:]`."""
    for function, kinds in _known_kinds(classes, module):
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and isinstance(node.slice, (ast.Slice, ast.Constant))
                and isinstance(node.value, ast.Attribute)
                and classes.runs(classes.several(_kind_of(classes, kinds, node.value.value), node.value.attr))
            ):
                yield f"{module}:{node.lineno}: {ast.unparse(node)}: give these parts a name of their own"


def _known_kinds(
    classes: Classes, module: str
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, dict[str, str | None]]]:
    """Yield each function with the classes of its parameters, and of the names that it assigns."""
    for owner, function in _functions(classes.trees[module]):
        kinds = {
            one.arg: classes.kind(module, one.annotation)
            for one in (*function.args.args, *function.args.kwonlyargs)
            if one.annotation is not None
        }
        if owner is not None:
            kinds["self"] = f"{module}.{owner}"
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                kinds.setdefault(node.targets[0].id, _kind_of(classes, kinds, node.value))
        yield function, kinds


def _functions(tree: ast.Module) -> Iterator[tuple[str | None, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from (
                (node.name, part) for part in node.body if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))
            )
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield None, node


def _kind_of(classes: Classes, kinds: Mapping[str, str | None], node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return kinds.get(node.id)
    if isinstance(node, ast.Attribute):
        return classes.attribute(_kind_of(classes, kinds, node.value), node.attr)
    return None

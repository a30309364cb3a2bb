"""Reads YAML as plain values, with the line of each.

Values are text, numbers, booleans, null, lists and mappings with text keys. Tags that would make anything else are
refused, and so are keys given twice. What YAML 1.1 reads as a date, an octal or a base-60 number (`1:30`) stays text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from inbound.config.kafka_properties import canonical
from inbound.config.units import shown
from inbound.errors import ConfigError

#: Aliases can make an endless document of a short text; no configuration comes near this many values.
MOST_VALUES = 20_000
#: Levels of mappings and lists.
MOST_DEPTH = 64

_NO_TAGS = "tags (!) are not allowed; remove it, or put text that starts with ! in quotes"

_TRUE = ("yes", "true", "on")


def dotted(*parts: str | int) -> str:
    """Return the path as `channels.orders.topics[0]`; odd keys are quoted."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[!-~]+", part) else shown(part)
            path += f".{name}" if path else name
    return path


@dataclass
class Places:
    """Where each value comes from and how it is written, by path."""

    filename: str
    where: dict[str, str] = field(default_factory=dict)  # "inbound.yaml:12", "environment INBOUND__...", "flag"
    text: dict[str, str] = field(default_factory=dict)
    start: int | None = None  # the document's first line, if the file may hold several

    def locate(self, path: str) -> str:
        """Return where `path` was set, or else the section around it."""
        while path:
            if path in self.where:
                return self.where[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.filename if self.start is None else f"{self.filename}:{self.start}"


class _TooManyError(Exception):
    """A document has more values than `MOST_VALUES`, without any alias."""


class _Loader(yaml.SafeLoader):
    """Bounds the depth and the number of values of a document.

    For each token PyYAML looks at all open levels again. Composing a document of 10 MB takes minutes, and a GiB.
    """

    depth = nodes = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self.nodes = self.nodes + 1 if parent is not None else 0
        if self.nodes > 2 * MOST_VALUES:  # a key is one, too
            raise _TooManyError
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise RecursionError
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


@dataclass
class Document:
    """A parsed file: its values, their places, and its problems."""

    tree: dict[str, Any]
    places: Places
    found: list[tuple[str, str]]  # each problem: the path of its value, and its line for people
    bad: set[str]  # the paths of the unreadable values

    @property
    def problems(self) -> list[str]:
        """The problems' lines for people."""
        return [line for _, line in self.found]


def parse(text: str, filename: str) -> Document:
    """Read `text`. Raises ConfigError if it is not a YAML mapping."""
    (root,) = _composed(text, filename, single=True)
    if root is None:
        raise ConfigError(f"{filename}: is empty; it needs at least `channels`")
    return _read(root, filename)


def parse_each(text: str, filename: str) -> tuple[list[Document], list[str]]:
    """Read the documents of `text`, except empty ones.

    The text is YAML, with `---` between several documents, or JSON. A document that is neither, or no mapping, does not
    stop the others.

    Returns:
        The documents, and a line for each one that cannot be read.
    """
    documents: list[Document] = []
    problems: list[str] = []
    try:
        roots = _composed(text, filename)
    except ConfigError:
        roots = _roots_of_each(text, filename, problems)
    for root in roots:
        if root is None or root.tag == "tag:yaml.org,2002:null":
            continue
        try:
            document = _read(root, filename)
        except ConfigError as error:
            problems.append(str(error))
            continue
        document.places.start = _line(root)
        documents.append(document)
    return documents, problems


def _roots_of_each(text: str, filename: str, problems: list[str]) -> list[Node | None]:
    roots: list[Node | None] = []
    line = 0
    # No value of YAML can hold a line that begins with `---`, so each document can be read alone.
    for piece in re.split(r"(?m)^(?=---(?:\s|$))", text.removeprefix("\ufeff")):
        try:
            roots += _composed(piece, filename, line)
        except ConfigError as error:
            problems.append(str(error))
        line += piece.count("\n")
    return roots


def _composed(text: str, filename: str, begins: int = 0, *, single: bool = False) -> list[Node | None]:
    """Compose the documents of `text`; `single`: the only one.

    `begins` is the line of its file where `text` begins, counted from 0. Raises ConfigError: it is no YAML.
    """
    text = text.removeprefix("\ufeff")
    try:
        loader = _Loader(text)
        loader.line = begins
        if single:
            return [loader.get_single_node()]
        nodes = []
        while loader.check_node():
            nodes.append(loader.get_node())
        return nodes
    except yaml.reader.ReaderError as error:
        line = begins + text.count("\n", 0, error.position) + 1
        character = f"U+{error.character:04X}" if isinstance(error.character, int) else "a byte"
        raise ConfigError(f"{filename}:{line}: holds {character}, which YAML does not allow; remove it") from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_syntax(error, text, filename, begins)) from None
    except (RecursionError, _TooManyError) as error:
        where = f"{filename}:{begins + 1}" if begins else filename
        if isinstance(error, _TooManyError):
            raise ConfigError(
                f"{where}: more than {MOST_VALUES} values in one document; put objects of manifests into documents of their "
                "own (---)"
            ) from None
        raise ConfigError(f"{where}: nested too deeply to be a configuration") from None
    except (ValueError, OverflowError):  # of chr()
        raise ConfigError(f"{filename}: a \\U in quotes names no character; correct it") from None


def _read(root: Node, filename: str) -> Document:
    if not isinstance(root, MappingNode):
        raise ConfigError(f"{filename}:{_line(root)}: need a mapping of keys such as `channels:` at the top level")
    reading = _Reading(Places(filename))
    try:
        tree = reading.mapping(root, ())
    except RecursionError:
        raise ConfigError(f"{filename}: nested too deeply to be a configuration") from None
    return Document(tree, reading.places, reading.found, reading.bad)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _syntax(error: yaml.MarkedYAMLError, text: str, filename: str, begins: int) -> str:
    mark = error.problem_mark or error.context_mark
    reason = error.problem or error.context or "cannot be read"
    if mark is None:
        return f"{filename}: not YAML: {reason}"
    lines = text.splitlines()
    here = lines[mark.line - begins] if mark.line - begins < len(lines) else ""
    if "'\\t'" in reason or here[: len(here) - len(here.lstrip())].count("\t"):
        reason = "a tab where YAML needs spaces; replace it"
    elif "expected a single document" in (error.context or ""):
        reason = "a second document begins here ('---'); only one is read"
    elif "alias" in reason or "anchor" in reason:
        # PyYAML names the word after the sign, which may be an unquoted password.
        reason = "an alias (*) without its anchor (&), or an anchor given twice; put text that starts so in quotes"
    else:
        began = f" ({error.context}, line {error.context_mark.line + 1})" if error.context_mark else ""
        reason = f"not YAML: {reason}{began}"
    return f"{filename}:{mark.line + 1}: {reason}"


class _Reading:
    """Makes values of the nodes of one document."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.found: list[tuple[str, str]] = []
        self.bad: set[str] = set()
        self._values = 0
        self._open: set[int] = set()  # nodes around the current one; meeting one again means that it contains itself

    def mapping(self, node: MappingNode, path: tuple[str | int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[tuple[str, Node, Node]] = []
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged += self._merged(value_node, path)
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in lines:
                # Not in `bad`: the first one is kept, and checked.
                self._report(key_node, (*path, key), f"given twice, also in line {lines[key]}; keep one")
                continue
            lines[key] = _line(key_node)
            result[key] = self._value(key_node, value_node, (*path, key))
        for key, key_node, value_node in merged:
            if key not in result:
                result[key] = self._value(key_node, value_node, (*path, key))
        return result

    def _merged(self, node: Node, path: tuple[str | int, ...]) -> list[tuple[str, Node, Node]]:
        """Return the entries that `<<` merges; entries further left win (YAML)."""
        sources = node.value if isinstance(node, SequenceNode) else [node]
        found: list[tuple[str, Node, Node]] = []
        for source in sources:
            if not isinstance(source, MappingNode):
                self._problem(node, (*path, "<<"), "need a mapping, or a list of mappings, to merge")
            elif self._enter(source, (*path, "<<")):
                for key_node, value_node in source.value:
                    self._count()
                    if key_node.tag == "tag:yaml.org,2002:merge":
                        found += self._merged(value_node, path)
                    elif (key := self._key(key_node, path)) is not None:
                        found.append((key, key_node, value_node))
                self._open.discard(id(source))
        return found

    def _key(self, node: Node, path: tuple[str | int, ...]) -> str | None:
        if not isinstance(node, ScalarNode):
            self._problem(node, path, "a key must be plain text; put quotes around what starts with { or [")
            return None
        if not node.value:
            self._problem(node, path, "a key is empty; write one before the colon")
            return None
        return canonical(node.value) if path == ("kafka",) else str(node.value)

    def _value(self, at: Node, node: Node, path: tuple[str | int, ...]) -> Any:
        self._count()
        name = dotted(*path)
        self.places.where[name] = f"{self.places.filename}:{_line(at)}"
        if isinstance(node, ScalarNode):
            self.places.text[name] = node.value
            try:
                return plain(node.tag, node.value)
            except ValueError as error:
                self._problem(node, path, str(error))
                return None
        if not self._enter(node, path):
            return None
        try:
            if node.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
                self._problem(node, path, _NO_TAGS)
            if isinstance(node, MappingNode):
                return self.mapping(node, path)
            return [self._value(item, item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _count(self) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise ConfigError(f"{self.places.filename}: more than {MOST_VALUES} values; are aliases (*) nested?")

    def _enter(self, node: Node, path: tuple[str | int, ...]) -> bool:
        if id(node) in self._open:
            self._problem(node, path, "an alias (*) that contains itself; write the value out")
            return False
        self._open.add(id(node))
        return True

    def _problem(self, node: Node, path: tuple[str | int, ...], message: str) -> None:
        self.bad.add(dotted(*path))
        self._report(node, path, message)

    def _report(self, node: Node, path: tuple[str | int, ...], message: str) -> None:
        name = dotted(*path)
        subject = f"{name}: " if path else ""
        self.found.append((name, f"{self.places.filename}:{_line(node)}: {subject}{message}"))


def plain(tag: str, text: str) -> str | int | float | bool | None:
    """Return the value of a scalar. Raises ValueError for a refused tag."""
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in _TRUE
    if kind == "int" and re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,99})", text, re.ASCII):
        return int(text)
    if kind == "float" and re.fullmatch(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", text, re.ASCII):
        return float(text)
    if kind == "float" and text.lower().lstrip("+-") in (".inf", ".nan"):
        return float(text.lower().replace(".", ""))
    if kind in ("str", "int", "float", "timestamp", "value"):
        return text
    raise ValueError(_NO_TAGS)


def resolve(text: str) -> Any:
    """Return the value of `text`, YAML on one line.

    For values whose type is not known. Raises ConfigError, without a place in it, for a list, a mapping or quotes that
    YAML cannot read.
    """
    if text[:1] in ("[", "{", '"', "'"):
        try:
            read = parse(f"value: {text}", "")
        except ConfigError:
            read = None
        if read is None or read.problems or list(read.tree) != ["value"]:
            raise ConfigError("need YAML such as [a, b] or {a: 1}, or text in quotes")
        return read.tree["value"]
    tag: str = yaml.SafeLoader("").resolve(ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return plain(tag, text)

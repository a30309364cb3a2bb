"""Reads PromQL far enough to check our rules and dashboards: the syntax, and which labels each expression has.

Of the language it knows what they use: selectors, ranges, functions, aggregations, operators with `on` and `ignoring`. What it
does not know is an error, so that nothing passes because it was not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

#: The labels of a series by its name; raises KeyError for one that nobody exposes.
LabelsOf = Callable[[str], frozenset[str]]

_TOKEN = re.compile(
    r"\s*(?:(?P<range>\[(?:[0-9]+(?:ms|[smhdwy]))+\])|(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
    r'|(?P<text>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<op>=~|!~|==|!=|>=|<=|[-+*/%^<>=(){},]))'
)
_AGGREGATIONS = {"avg", "count", "max", "min", "stddev", "sum"}
_SOME_OF = {"topk", "bottomk"}
_OF_RANGES = {"changes", "delta", "deriv", "increase", "irate", "max_over_time", "min_over_time", "rate"}
_OF_VECTORS = {"abs", "ceil", "clamp_min", "floor", "round"}
_PRECEDENCE = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/", "%"))


class PromqlError(ValueError):
    """The expression cannot be read, or can never have a result."""


@dataclass(frozen=True)
class Kind:
    """What an expression is: a number (`labels` None), series with these labels, or ranges of such."""

    labels: frozenset[str] | None
    is_range: bool = False


def labels_of(expression: str, labels: LabelsOf) -> frozenset[str]:
    """Return the labels that the series of an expression have.

    Raises:
        PromqlError: it is not PromQL, names a series or a label that is not there, or compares what never matches.
    """
    kind = _Reader(expression, labels).whole()
    if kind.labels is None or kind.is_range:
        raise PromqlError(f"{expression}: is no instant vector")
    return kind.labels


class _Reader:
    def __init__(self, expression: str, labels: LabelsOf) -> None:
        self._labels_of = labels
        self._expression = expression
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(expression.rstrip()):
            match = _TOKEN.match(expression, at)
            if match is None:
                raise self._error(f"cannot be read at {expression[at : at + 20]!r}")
            self._tokens.append((str(match.lastgroup), str(match[str(match.lastgroup)])))
            at = match.end()
        self._next = 0

    def whole(self) -> Kind:
        kind = self._binary(0)
        if self._next < len(self._tokens):
            raise self._error(f"more than an expression, from {self._peek()!r} on")
        return kind

    def _error(self, what: str) -> PromqlError:
        return PromqlError(f"{self._expression}: {what}")

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _take(self, *expected: str) -> str:
        token = self._peek()
        if not token or (expected and token not in expected):
            raise self._error(f"need {' or '.join(expected) or 'more'}, got {token or 'the end'!r}")
        self._next += 1
        return token

    def _take_kind(self, kind: str) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next][0] != kind:
            raise self._error(f"need a {kind}, got {self._peek() or 'the end'!r}")
        return self._take()

    def _binary(self, level: int) -> Kind:
        if level == len(_PRECEDENCE):
            return self._one()
        left = self._binary(level + 1)
        while self._peek() in _PRECEDENCE[level]:
            operator = self._take()
            on = None
            if self._peek() == "bool":
                self._take()
            if self._peek() == "on":
                self._take()
                on = self._names()
            left = self._joined(operator, on, left, self._binary(level + 1))
        return left

    def _joined(self, operator: str, on: frozenset[str] | None, left: Kind, right: Kind) -> Kind:
        if left.is_range or right.is_range:
            raise self._error(f"{operator} takes no range")
        if left.labels is None or right.labels is None:
            if operator in ("and", "or", "unless"):
                raise self._error(f"{operator} takes no number")
            return right if left.labels is None else left
        if operator == "or":
            return Kind(left.labels & right.labels)
        if on is None and left.labels != right.labels:
            odd = ", ".join(sorted(left.labels ^ right.labels))
            raise self._error(f"the sides of {operator} never match: only one has {odd}")
        for side in (left.labels, right.labels):
            if missing := sorted((on or frozenset()) - side):
                raise self._error(f"on ({', '.join(missing)}): a side of {operator} has no such label")
        return left if on is None or operator in ("and", "unless") else Kind(on)

    def _one(self) -> Kind:
        kind, token = self._tokens[self._next] if self._next < len(self._tokens) else ("", "")
        if token == "(":
            self._take()
            inner = self._binary(0)
            self._take(")")
            return inner
        if token == "-":
            self._take()
            return self._one()
        if kind == "number":
            self._take()
            return Kind(None)
        name = self._take_kind("name")
        if name in _AGGREGATIONS | _SOME_OF:
            return self._aggregated(name)
        return self._called(name) if self._peek() == "(" else self._selected(name)

    def _names(self) -> frozenset[str]:
        self._take("(")
        found = []
        while self._peek() != ")":
            found.append(self._take_kind("name"))
            if self._peek() != ")":
                self._take(",")
        self._take(")")
        return frozenset(found)

    def _aggregated(self, name: str) -> Kind:
        way, names = self._grouping()
        self._take("(")
        if name in _SOME_OF:
            self._take_kind("number")
            self._take(",")
        inner = self._binary(0)
        self._take(")")
        if way is None:
            way, names = self._grouping()
        if inner.labels is None or inner.is_range:
            raise self._error(f"{name} takes an instant vector")
        if missing := sorted(names - inner.labels):
            raise self._error(f"{way} ({', '.join(missing)}): there is no such label")
        if name in _SOME_OF:
            return inner
        return Kind(inner.labels - names if way == "without" else names)

    def _grouping(self) -> tuple[str | None, frozenset[str]]:
        return (self._take(), self._names()) if self._peek() in ("by", "without") else (None, frozenset())

    def _called(self, name: str) -> Kind:
        self._take("(")
        arguments = [self._binary(0)]
        while self._peek() == ",":
            self._take()
            arguments.append(self._binary(0))
        self._take(")")
        first, last = arguments[0], arguments[-1]
        if name == "vector" and first.labels is None:
            return Kind(frozenset())
        if name == "time":
            return Kind(None)
        if name == "histogram_quantile" and len(arguments) == 2 and last.labels and "le" in last.labels:
            return Kind(last.labels - {"le"})
        if name in _OF_RANGES and first.is_range:
            return Kind(first.labels)
        if name in _OF_VECTORS and first.labels is not None and not first.is_range:
            return Kind(first.labels)
        raise self._error(f"{name} is not known, or takes something else")

    def _selected(self, name: str) -> Kind:
        try:
            labels = self._labels_of(name)
        except KeyError:
            raise self._error(f"nobody exposes {name}") from None
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                label = self._take_kind("name")
                if label not in labels:
                    raise self._error(f"{name} has no label {label}")
                operator = self._take("=", "!=", "=~", "!~")
                text = self._take_kind("text")[1:-1]
                if operator.endswith("~"):
                    re.compile(text)
                if self._peek() != "}":
                    self._take(",")
            self._take("}")
        if self._next < len(self._tokens) and self._tokens[self._next][0] == "range":
            self._take()
            return Kind(labels, is_range=True)
        return Kind(labels)

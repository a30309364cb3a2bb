"""Which labels the series of a PromQL expression have. The syntax is `promql_parser`'s to judge, the labels are ours.

A function that is not known to leave labels alone is an error, so that nothing passes because it was not understood.
"""

from __future__ import annotations

from collections.abc import Callable

import promql_parser as promql

#: The labels of a series by its name; raises KeyError for an unknown one.
LabelsOf = Callable[[str], frozenset[str]]

_LEAVE_LABELS = {
    "abs", "ceil", "changes", "clamp_min", "delta", "deriv", "floor", "increase", "irate", "max_over_time", "min_over_time",
    "rate", "round",
}  # fmt: skip


class PromqlError(ValueError):
    """The expression cannot be read, or can never have a result."""


def labels_of(expression: str, labels: LabelsOf) -> frozenset[str]:
    """Return the labels that the series of an expression have.

    Raises:
        PromqlError: it is not PromQL, names a series or a label that is not there, or compares what never matches.
    """
    try:
        tree = promql.parse(expression)
    except ValueError as error:
        raise PromqlError(f"{expression}: {error}") from None
    found = None if isinstance(tree, promql.MatrixSelector) else _labels(tree, labels)
    if found is None:
        raise PromqlError(f"{expression}: is no instant vector")
    return found


def _labels(node: promql.Expr, labels: LabelsOf) -> frozenset[str] | None:
    """Return the labels of a part of an expression; None for a number."""
    match node:
        case promql.ParenExpr() | promql.UnaryExpr():
            return _labels(node.expr, labels)
        case promql.NumberLiteral():
            return None
        case promql.MatrixSelector():
            return _selected(node.vector_selector, labels)
        case promql.VectorSelector():
            return _selected(node, labels)
        case promql.AggregateExpr():
            return _aggregated(node, _labels(node.expr, labels) or frozenset())
        case promql.BinaryExpr():
            return _joined(node, _labels(node.lhs, labels), _labels(node.rhs, labels))
        case promql.Call():
            return _called(node, labels)
    raise PromqlError(f"{node}: is not known here")


def _selected(node: promql.VectorSelector, labels: LabelsOf) -> frozenset[str]:
    try:
        found = labels(str(node.name))
    except KeyError:
        raise PromqlError(f"no metric is called {node.name}") from None
    for matcher in node.matchers.matchers:
        if matcher.name not in found:
            raise PromqlError(f"{node.name} has no label {matcher.name}")
    return found


def _aggregated(node: promql.AggregateExpr, inner: frozenset[str]) -> frozenset[str]:
    names = frozenset(node.modifier.labels if node.modifier is not None else ())
    if missing := sorted(names - inner):
        raise PromqlError(f"{node}: ({', '.join(missing)}): there is no such label")
    if str(node).startswith(("topk", "bottomk")):
        return inner
    without = node.modifier is not None and node.modifier.type == promql.AggModifierType.Without
    return inner - names if without else names


def _joined(
    node: promql.BinaryExpr, left: frozenset[str] | None, right: frozenset[str] | None
) -> frozenset[str] | None:
    if left is None or right is None:
        return right if left is None else left
    operator = str(node).removeprefix(str(node.lhs)).split()[0]
    if operator == "or":
        return left & right
    matching = node.modifier.matching if node.modifier is not None else None
    if matching is None and left != right:
        odd = ", ".join(sorted(left ^ right))
        raise PromqlError(f"the sides of {operator} never match: only one has {odd}")
    if matching is not None and matching.type != promql.LabelModifierType.Include:
        raise PromqlError(f"{node}: ignoring is not known here")
    on = frozenset(matching.labels if matching is not None else ())
    if missing := sorted(on - (left & right)):
        raise PromqlError(f"on ({', '.join(missing)}): a side of {operator} has no such label")
    return left if matching is None or operator in ("and", "unless") else on


def _called(node: promql.Call, labels: LabelsOf) -> frozenset[str] | None:
    name = node.func.name
    if name in ("time", "vector"):
        return None if name == "time" else frozenset()
    inner = _labels(node.args[-1 if name == "histogram_quantile" else 0], labels)
    if name in _LEAVE_LABELS and inner is not None:
        return inner
    if name == "histogram_quantile" and inner is not None and "le" in inner:
        return inner - {"le"}
    raise PromqlError(f"{name} is not known here, or takes something else")

"""How a mutant is planted: rules are taken out of the product while it runs, and put back afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from inbound.coordinators.zookeeper import Check, Create, Delete, Op, SetData
from inbound.testing.simulation import Plan
from inbound.testing.zookeeper import FakeZooKeeper


def any_plan(plan: Plan) -> bool:
    """Whether a mutant's place may be reached in a plan of which nothing need be the case."""
    return True


@dataclass(frozen=True)
class Mutant:
    """The product with one rule of the protocol taken away."""

    name: str
    #: Of the design, section 4 (R1 to R15), or a defect of Jetstream's (a to g).
    rule: str
    breaks: str
    _plant: Callable[[Plant], None] = field(repr=False)
    #: Which seeds find it: see `inbound.testing.simulation.plan_of`; or "ingress".
    kind: str = "faults"
    #: Of these, those that it takes: in others its place is never reached, so they are not played.
    drawn: Callable[[Plan], bool] = field(default=any_plan, repr=False)

    @contextmanager
    def plant(self) -> Iterator[Plant]:
        """Take the rule away until the end of the `with` block; `bites` of the yielded plant says whether that mattered."""
        with pytest.MonkeyPatch.context() as patch:
            plant = Plant(patch)
            self._plant(plant)
            yield plant


def mutant_of(
    kind: str, name: str, breaks: str, plant: Callable[[Plant], None], drawn: Callable[[Plan], bool] = any_plan
) -> Mutant:
    """Return one that is about the rules of one kind of plans, and is found by these."""
    return Mutant(name, kind, breaks, plant, kind=kind, drawn=drawn)


def storm_has(*kinds: str) -> Callable[[Plan], bool]:
    """Return what says whether one of these happens in a plan."""
    return lambda plan: any(action.kind in kinds for action in plan.storm)


def all_of(*conditions: Callable[[Plan], bool]) -> Callable[[Plan], bool]:
    """Return what says whether a plan meets each of these."""
    return lambda plan: all(condition(plan) for condition in conditions)


class Plant:
    """Puts other code in the place of the product's. What is not there any more is an AttributeError."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        #: How often the product did something else than it would have done.
        self.bites = 0

    def bite(self) -> None:
        """Count one deviation."""
        self.bites += 1

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Put `value` in the place of an attribute of a class or module."""
        self._patch.setattr(owner, name, value)

    def around(self, owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
        """Have `wrapper(original, *arguments)` called in the place of a function or method."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def planted(*arguments: Any, **named: Any) -> Any:
            return wrapper(original, *arguments, **named)

        self._patch.setattr(owner, name, planted)

    def rewrite(self, which: Callable[[Sequence[Op]], bool], change: Callable[[Op], Op]) -> None:
        """Change the operations of certain transactions, one by one."""

        def transaction(original: Callable[..., Any], zk: FakeZooKeeper, ops: Sequence[Op]) -> Any:
            if which(ops):
                changed = [change(op) for op in ops]
                if changed != list(ops):
                    self.bite()
                ops = changed
            return original(zk, ops)

        self.around(FakeZooKeeper, "transaction", transaction)


# -- which transaction is it? ------------------------------------------------------------------------------------------


def family(op: Op) -> str:
    """Return which of the group's nodes an operation is about: ids, gates, owners, offsets, epochs; or nothing."""
    parts = op.path.split("/")
    depth = {"ids": 5, "gates": 5, "owners": 6, "offsets": 6, "epochs": 6}
    return parts[3] if len(parts) > 3 and depth.get(parts[3]) == len(parts) else ""


def _has(ops: Sequence[Op], kind: type[Any], what: str) -> bool:
    return any(isinstance(op, kind) and family(op) == what for op in ops)


def is_claim(ops: Sequence[Op]) -> bool:
    return _has(ops, Create, "owners") and _has(ops, SetData, "epochs")


def is_recovery(ops: Sequence[Op]) -> bool:
    return _has(ops, Create, "owners") and not is_claim(ops)


def is_release(ops: Sequence[Op]) -> bool:
    return _has(ops, Delete, "owners") and not _has(ops, Create, "owners")


def is_commit(ops: Sequence[Op]) -> bool:
    """Of one partition or several, also one that writes the epoch with it; but no claim and no release."""
    return (_has(ops, SetData, "offsets") or _has(ops, Create, "offsets")) and not any(
        family(op) == "owners" for op in ops
    )


def unchecked(what: str) -> Callable[[Op], Op]:
    """Return a change that lets any version of these nodes pass."""

    def change(op: Op) -> Op:
        if isinstance(op, Check | SetData) and family(op) == what:
            return op._replace(version=-1)
        return op

    return change

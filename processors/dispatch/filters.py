"""Filters of a subscription, in dialects of CloudEvents' subscriptions API. Pure.

An event passes a list if it passes all of its filters. Each filter has one dialect: `exact`, `prefix` and `suffix` compare all
given attributes with texts; `all`, `any` and `not` combine filters. A missing attribute equals no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from inbound.config.values import StrictModel, not_empty, refuse, text, wrong
from inbound.processors.batch import Record
from inbound.processors.cloudevents_kafka import read_attributes
from inbound.processors.cloudevents_values import Refused, is_name

#: The deepest nesting of filters, and the most filters of a subscription, nested ones included: each event is compared with all.
DEEPEST, MOST = 8, 100

DIALECTS = ("exact", "prefix", "suffix", "all", "any", "not")
#: Names of the dialect of expressions.
EXPRESSIONS = ("cesql", "sql")
_NO_CESQL = "no maintained Python library evaluates CESQL; say it by exact, prefix, suffix, all, any and not"

Attributes = Mapping[str, str]
Passes = Callable[[Attributes], bool]


def _compared(value: dict[str, str]) -> dict[str, str]:
    no_name, empty = "only a-z and 0-9 are allowed in its name", "is compared with an empty text, which no attribute is"
    refuse(
        "Filter",
        *((not is_name(name), (name,), f"is no attribute: {no_name}") for name in value),
        *((is_name(name) and not compared, (name,), empty) for name, compared in value.items()),
    )
    return value


def _few(value: tuple[Filter, ...]) -> tuple[Filter, ...]:
    count = sum(one.count for one in value)
    if count > MOST:
        raise wrong(f"need at most {MOST} filters, those within others included, got {count}")
    return value


_SOME = not_empty("need at least one filter, got an empty list")
Compared = Annotated[
    dict[str, Annotated[str, BeforeValidator(text)]],
    not_empty("names no attribute; give one or more, such as {type: com.example.created}"),
    AfterValidator(_compared),
]


class Filter(StrictModel):
    """One filter, of one dialect."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    exact: Compared | None = Field(default=None, description="attributes that are these texts")
    prefix: Compared | None = Field(default=None, description="attributes that begin with these texts")
    suffix: Compared | None = Field(default=None, description="attributes that end with these texts")
    all: Annotated[tuple[Filter, ...], _SOME] | None = Field(
        default=None, description="filters that all let an event pass"
    )
    any: Annotated[tuple[Filter, ...], _SOME] | None = Field(
        default=None, description="filters of which one lets an event pass"
    )
    not_: Filter | None = Field(default=None, alias="not", description="a filter that does not let an event pass")

    @model_validator(mode="before")
    @classmethod
    def _no_expressions(cls, value: Any) -> Any:
        refuse("Filter", *((isinstance(value, dict) and name in value, name, _NO_CESQL) for name in EXPRESSIONS))
        return value

    @model_validator(mode="after")
    def _check(self) -> Filter:
        values = (self.exact, self.prefix, self.suffix, self.all, self.any, self.not_)
        given = [name for name, value in zip(DIALECTS, values, strict=True) if value is not None]
        several = f", got {', '.join(given)}; put several filters into a list" if given else ""
        refuse("Filter", (len(given) != 1, (), f"needs one of {', '.join(DIALECTS)}{several}"))
        refuse("Filter", (self.depth > DEEPEST, (), f"has more than {DEEPEST} filters within each other"))
        return self

    @property
    def without_default(self) -> tuple[str, ...]:
        """The keys that `check --show` leaves out if not given."""
        return DIALECTS

    @property
    def depth(self) -> int:
        """The levels of nested filters, with this one."""
        return 1 + max((one.depth for one in self._inner), default=0)

    @property
    def count(self) -> int:
        """The number of nested filters, with this one."""
        return 1 + sum(one.count for one in self._inner)

    @property
    def _inner(self) -> tuple[Filter, ...]:
        return (*(self.all or ()), *(self.any or ()), *(() if self.not_ is None else (self.not_,)))


#: A list of filters that an event must pass.
Filters = Annotated[tuple[Filter, ...], AfterValidator(_few)]


def passes(filters: Sequence[Filter]) -> Passes | None:
    """Return a test of an event's attributes; None without filters."""
    if not filters:
        return None
    return _all([_one(each) for each in filters])


def _one(one: Filter) -> Passes:
    comparisons = ((one.exact, str.__eq__), (one.prefix, str.startswith), (one.suffix, str.endswith))
    for wanted, compare in comparisons:
        if wanted is not None:
            return _compare(wanted, compare)
    if one.all is not None:
        return _all([_one(each) for each in one.all])
    if one.any is not None:
        parts = [_one(each) for each in one.any]
        return lambda attributes: any(part(attributes) for part in parts)
    assert one.not_ is not None
    inner = _one(one.not_)
    return lambda attributes: not inner(attributes)


def _all(parts: list[Passes]) -> Passes:
    if len(parts) == 1:
        return parts[0]
    return lambda attributes: all(part(attributes) for part in parts)


def _compare(wanted: Mapping[str, str], compare: Callable[[str, str], bool]) -> Passes:
    pairs = [*wanted.items()]

    def holds(attributes: Attributes) -> bool:
        return all(name in attributes and compare(attributes[name], other) for name, other in pairs)

    return holds


def left_out(decide: Passes, records: Iterable[Record]) -> set[int]:
    """Return the offsets of events that do not pass; undecodable records pass."""
    found: set[int] = set()
    for record in records:
        try:
            passed = decide(read_attributes(record))
        except Refused:
            continue
        if not passed:
            found.add(record.offset)
    return found

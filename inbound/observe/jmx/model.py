"""A bean has attributes and operations, with names, types and descriptions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from inbound.errors import InboundError
from inbound.group.operations import Operation
from inbound.observe.jmx.names import ObjectName

S = TypeVar("S")

STRING, BOOLEAN, INT, LONG, DOUBLE = "java.lang.String", "boolean", "int", "long", "double"
#: Numbers, or null.
LONG_OR_NULL, DOUBLE_OR_NULL = "java.lang.Long", "java.lang.Double"
STRINGS, MAP, MAPS, VOID = "[Ljava.lang.String;", "java.util.Map", "[Ljava.util.Map;", "void"

#: The bound of whole numbers.
_WHOLE = {INT: 2**31, LONG: 2**63, LONG_OR_NULL: 2**63}


class JmxError(InboundError):
    """A failed request for a bean; `java` is Java's exception class."""

    def __init__(self, message: str, status: int, java: str) -> None:
        super().__init__(message)
        self.status = status
        self.java = java


def no_instance(what: object) -> JmxError:
    """Return the error for a missing bean."""
    return JmxError(str(what), 404, "javax.management.InstanceNotFoundException")


def no_attribute(message: str) -> JmxError:
    """Return the error for a missing or read-only attribute."""
    return JmxError(message, 404, "javax.management.AttributeNotFoundException")


def bad_argument(message: str) -> JmxError:
    """Return the error for an invalid request."""
    return JmxError(message, 400, "java.lang.IllegalArgumentException")


@dataclass(frozen=True)
class Attribute(Generic[S]):
    """One attribute, read from a part of the status."""

    name: str
    type: str
    description: str
    read: Callable[[S], Any]
    counter: bool = False  # only grows; `resetCounters` has it begin at 0 again
    writable: Callable[[S], bool] | None = None  # whether it can be written now
    write: Callable[[BeanTarget, Any], Operation] | None = None  # None: it is read-only


@dataclass(frozen=True)
class Parameter:
    """One parameter of an operation."""

    name: str
    type: str
    description: str


@dataclass(frozen=True)
class BeanTarget:
    """The subject of a bean's operations: a channel, or its partition."""

    channel: str
    consumer: str
    topic: str = ""
    partition: int = 0


@dataclass(frozen=True)
class BeanOperation:
    """One operation of a bean."""

    name: str
    description: str
    #: Returns the group's operation for the target and the arguments; None: it resets counters.
    make: Callable[..., Operation] | None = None
    parameters: tuple[Parameter, ...] = ()
    returns: str = STRING

    @property
    def signature(self) -> str:
        """Its name with the types of its parameters."""
        return f"{self.name}({','.join(p.type for p in self.parameters)})"


RESET = BeanOperation(
    "resetCounters",
    "Let the counters of this bean begin at 0 again, here only: /metrics and /status are not touched",
    returns=VOID,
)


@dataclass(frozen=True)
class BeanType(Generic[S]):
    """All beans of one `type`; the counters of each can be reset."""

    type: str
    description: str
    attributes: tuple[Attribute[S], ...]
    further: tuple[BeanOperation, ...] = ()

    @property
    def actions(self) -> tuple[BeanOperation, ...]:
        return (*self.further, RESET)

    @property
    def java_class(self) -> str:
        """In place of a Java class."""
        return f"inbound.{self.type}"

    def attribute(self, name: str) -> Attribute[S] | None:
        """Return the attribute of that name; None: there is none."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)


@dataclass(frozen=True)
class Bean:
    """One bean in a snapshot."""

    name: ObjectName
    kind: BeanType[Any]
    of: Any  # the part of the status with its attributes
    target: BeanTarget | None  # None: its operations concern no channel
    life: tuple[Any, ...]  # counters continue while this stays the same

    def writable(self, attribute: Attribute[Any]) -> bool:
        return attribute.writable is not None and attribute.writable(self.of)


def action_of(bean: Bean, operation: str, arguments: Sequence[Any] | None) -> BeanOperation:
    """Return the operation of a name.

    Of several with that name, it is the one with the given types, or with so many arguments.

    Raises:
        JmxError: there is no such operation, or it does not take so many arguments.
    """
    name, bracket, _ = operation.partition("(")
    known = [action for action in bean.kind.actions if action.name == name]
    if not known:
        raise JmxError(f"{bean.name} has no operation {name}", 500, "java.lang.NoSuchMethodException")
    given, signatures = len(arguments or ()), ", ".join(action.signature for action in known)
    if bracket:
        fits = [action for action in known if action.signature == operation.replace(" ", "")]
        if not fits:
            raise bad_argument(f"{bean.name} has no operation {operation}; there are: {signatures}")
    else:
        fits = known if len(known) == 1 else [action for action in known if len(action.parameters) == given]
    if len(fits) != 1:
        raise bad_argument(
            f"operation {name} of {bean.name} takes other arguments than the {given} given: {signatures}"
        )
    if len(fits[0].parameters) != given:
        raise bad_argument(
            f"operation {fits[0].signature} of {bean.name} takes {len(fits[0].parameters)} arguments, not {given}"
        )
    return fits[0]


def converted(value: Any, java: str, what: str) -> Any:
    """Return `value`, from JSON or a URL, as the Java type `java`.

    Raises:
        JmxError: it cannot be that.
    """
    if value is None:
        if java in (STRING, LONG_OR_NULL, DOUBLE_OR_NULL):
            return None
    elif java == STRING:
        text = value if isinstance(value, str) else json.dumps(value)
        if text.isprintable():
            return text
    elif java == BOOLEAN:
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
    elif not isinstance(value, bool) and isinstance(value, int | float | str):
        number = _number(value, java)
        if number is not None:
            return number
    raise bad_argument(f"{what}: {value!r} is no {java}")


def _number(value: float | str, java: str) -> float | None:
    try:
        number: float = int(value) if java in _WHOLE else float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number) or (java in _WHOLE and not -_WHOLE[java] <= number < _WHOLE[java]):
        return None
    return None if java in _WHOLE and isinstance(value, float) and value != number else number


def described(bean: Bean) -> Mapping[str, Any]:
    """Return the description of a bean for `list`."""
    operations: dict[str, list[Any]] = {}
    for action in bean.kind.actions:
        one = {
            "args": [{"name": p.name, "type": p.type, "desc": p.description} for p in action.parameters],
            "ret": action.returns,
            "desc": action.description,
        }
        operations.setdefault(action.name, []).append(one)
    return {
        "class": bean.kind.java_class,
        "desc": bean.kind.description,
        "attr": {a.name: {"type": a.type, "desc": a.description, "rw": bean.writable(a)} for a in bean.kind.attributes},
        "op": {name: found if len(found) > 1 else found[0] for name, found in operations.items()},
    }

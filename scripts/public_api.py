"""The public Python API: the modules whose names others may import, with every signature (`python -m scripts.public_api`).

`tests/earlier/public_api.txt` records it; tests/repository/test_public_api.py fails when something recorded is gone or is called
differently. Recording a change is a step of its own, with a line in CHANGELOG.md: what others import breaks with it.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "earlier" / "public_api.txt"
#: Everything else may change without notice. docs/api describes each of these.
MODULES = (
    "inbound",
    "inbound.clock",
    "inbound.errors",
    "inbound.processors.simple",
    "inbound.processors.sinks",
    "inbound.processors.cloudevents_bridge",
    "inbound.coordinators.base",
    "inbound.coordinators.zookeeper",
    "inbound.coordinators.tasks",
    "inbound.controller.reset_offset",
    "inbound.testing",
    "inbound.testing.simulation",
    "inbound.embedded",
)


def lines() -> Iterator[str]:
    """Yield a line for each public name, and one for each public member of a class."""
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(public_names(module)):
            yield from told(f"{name}.{public}", getattr(module, public))


def public_names(module: ModuleType) -> list[str]:
    """Return what a module offers: its `__all__`, or else the classes and functions that it defines."""
    given: list[str] | None = getattr(module, "__all__", None)
    if given is not None:
        return [name for name in given if name != "__version__"]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def told(path: str, value: object) -> Iterator[str]:
    """Yield how a thing is called, and for a class how its public members are."""
    if not inspect.isclass(value):
        yield f"{path}{signature(value)}" if callable(value) else path
        return
    if issubclass(value, Enum):
        yield from (f"{path}.{member.name}" for member in value)
        return
    yield f"{path}{signature(value)}"
    fields = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    for name in sorted({*fields, *(name for name in dir(value) if not name.startswith("_"))}):
        member = inspect.getattr_static(value, name, None)
        owner = next((base for base in value.__mro__ if name in vars(base)), value)
        if owner.__module__.partition(".")[0] != "inbound":
            continue  # what an exception, a tuple or a protocol has anyway
        if isinstance(member, (staticmethod, classmethod)):
            member = member.__func__
        yield f"{path}.{name}{signature(member)}" if inspect.isfunction(member) else f"{path}.{name}"


def signature(value: object) -> str:
    """Return the names and defaults of the parameters, without their types; empty: it tells none."""
    try:
        parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(plain)))


def recorded() -> list[str]:
    """Return the lines that are recorded."""
    return RECORDED.read_text(encoding="utf-8").splitlines()


def main() -> None:
    """Record the API as it is now."""
    RECORDED.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")


if __name__ == "__main__":
    main()

"""What a drawing names is in the code."""

from __future__ import annotations

import importlib
import re
from functools import cache

from tests.docs_blocks import Block
from tests.test_layers import modules

#: What is taken for a name of the code: with a dot or an underscore between letters, in capitals inside, or in quotes.
_NAMES = re.compile(r"[A-Za-z]+(?:[._][A-Za-z]+)+|[A-Z][a-z]+[A-Z]\w+|(?<=`)\w+(?=`)")
#: Written like names of the code, and not inbound's.
OTHERS = {"CloudEvents", "CloudEvent", "ZooKeeper", "ConfigMap", "OpenTelemetry", "KafkaChannel", "Zipkin"}


@cache
def words() -> frozenset[str]:
    """Return all words of the code."""
    return frozenset(word for _, path in modules() for word in re.findall(r"\w+", path.read_text()))


def drawing_problem(block: Block) -> str | None:
    """Return which names of a drawing are none of the code, or which of the enum that it draws it lacks."""
    if block.value:
        module, _, name = block.value.partition(":")
        members = {one.name for one in getattr(importlib.import_module(module), name)}
        drawn = set(re.findall(r"\b[A-Z][A-Z_]+\b", block.text))
        return (
            f"{block}: {', '.join(sorted(members ^ drawn))} is drawn or defined, not both" if members ^ drawn else None
        )
    named = {part for found in _NAMES.findall(block.text) if found not in OTHERS for part in found.split(".")}
    unknown = sorted(named - words())
    return f"{block}: nothing in the code is called {', '.join(unknown)}" if unknown else None

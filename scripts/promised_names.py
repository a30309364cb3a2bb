"""What users have in their files, scripts and dashboards: keys of the configuration, commands with their options, metrics.

`tests/earlier/promised_names.txt` holds those of the last release; tests/repository/test_compatibility.py fails when one of them is
gone. Adding names there is a step of each release: `python -m scripts.promised_names`. It never takes one out: that is
done by hand, after the name has been deprecated for a release (docs/upgrading.md).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from inbound.cli.main import parser
from inbound.cli.tools.schema import tables
from inbound.observe.metrics import SECTIONS
from inbound.plan.plugins import configuration_schema

PROMISED = Path(__file__).resolve().parent.parent / "tests" / "earlier" / "promised_names.txt"


def names() -> set[str]:
    """Return what this version has: `key channels.<name>.workers`, `command offsets reset --to-offset`, `metric ...`."""
    return {*keys(tables(configuration_schema())), *commands(parser(), ""), *metrics()}


def keys(markdown: str) -> Iterator[str]:
    """Yield the keys of a configuration, from the tables that describe them."""
    path = ""
    for line in markdown.splitlines():
        if heading := re.match(r"#+ (?:`([^`]*)`|Keys)( of .*| with .*)?$", line):
            path = f"{heading[1] or ''}{heading[2] or ''} "
        elif row := re.match(r"\| `([^`]*)` \|", line):
            yield f"key {path}{row[1]}".replace("  ", " ")


def commands(of: argparse.ArgumentParser, path: str) -> Iterator[str]:
    """Yield the commands below one, and their options and arguments."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield f"command{path} {name}"
                yield from commands(below, f"{path} {name}")
        else:
            for option in action.option_strings or [str(action.metavar or action.dest)]:
                yield f"command{path} {option}"


def metrics() -> Iterator[str]:
    """Yield the metrics, with the labels that each has."""
    for section in SECTIONS:
        for metric in section.metrics:
            labels = [*section.labels, *([metric.label] if metric.label else [])]
            yield f"metric {metric.name} {metric.kind} {','.join(labels)}".rstrip()


def promised() -> set[str]:
    """Return the names that the last release had."""
    return set(PROMISED.read_text(encoding="utf-8").splitlines()) if PROMISED.exists() else set()


if __name__ == "__main__":
    PROMISED.write_text("".join(f"{name}\n" for name in sorted(promised() | names())), encoding="utf-8")

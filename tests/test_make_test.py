"""What `make test` runs: each promise of the README, each command and each fault at least once on real servers."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.cli.main import parser

ROOT = Path(__file__).resolve().parent.parent
#: Each command, and the test on real servers that runs it in `make test`.
COMMANDS = {
    "run": "test_survival::test_a_graceful_leave_and_a_join_lose_and_repeat_nothing",
}
#: What must be shown on real servers beside the README's table and the commands.
SHOWN = {
    "a reset whose leader is killed": "test_reset_killed::test_a_leader_that_is_killed_after_a_step_is_followed_by_another",
}


def split(name: str) -> tuple[Path, str]:
    """Return the file and the function that `test_file::test_name` stands for."""
    file, _, function = name.partition("::")
    return ROOT / "integration" / f"{file}.py", function


def marks(*nodes: ast.AST) -> list[ast.Call]:
    """Return the uses of the marker `thorough` below nodes of the syntax tree."""
    return [
        node
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "thorough"
    ]


def why_not(name: str) -> str:
    """Return why `make test` does not run a test; empty if it does."""
    path, function = split(name)
    if not path.exists():
        return f"{name}: there is no {path.relative_to(ROOT)}"
    module = ast.parse(path.read_text())
    found = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == function]
    if not found:
        return f"{name}: {path.relative_to(ROOT)} has no such test"
    of_the_file = [
        node.value
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if marks(*of_the_file, *(d for d in found[0].decorator_list if not _is_parametrize(d))):
        return f"{name}: is marked `thorough`"
    return ""


def _is_parametrize(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize"


def rows_of_the_readme() -> dict[str, list[str]]:
    """Return the table of promises: what happens, and the tests that its row names."""
    lines = (ROOT / "README.md").read_text().splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("| what happens |"))
    table = {}
    for line in lines[header + 2 :]:
        if not line.startswith("|"):
            break
        table[line.split("|")[1].strip()] = [
            f"{file}::{test}" for file, test in re.findall(r'\(integration/(\w+)\.py "(\w+)"\)', line)
        ]
    return table


def commands(of: argparse.ArgumentParser, before: str = "") -> Iterator[str]:
    """Yield every command there is, such as `offsets show`."""
    below = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield before
    for action in below:
        for name, one in action.choices.items():
            yield from commands(one, f"{before} {name}".strip())


@pytest.mark.parametrize(("row", "tests"), rows_of_the_readme().items())
def test_each_row_of_the_readmes_table_names_a_test_that_make_test_runs(row: str, tests: list[str]) -> None:
    """As the title of a link in the row: `(integration/test_file.py "test_name")`."""
    assert tests, f"the README's row {row!r} names no test"
    assert [problem for name in tests if (problem := why_not(name))] == []


def test_the_readme_has_its_table() -> None:
    assert len(rows_of_the_readme()) >= 9


def test_each_command_is_run_on_real_servers() -> None:
    """A new command comes with such a test."""
    there = set(commands(parser()))
    assert {"without a test": there - set(COMMANDS), "no command": set(COMMANDS) - there} == {
        "without a test": set(), "no command": set(),
    }  # fmt: skip


@pytest.mark.parametrize(("what", "name"), (COMMANDS | SHOWN).items())
def test_what_must_be_shown_is_run_by_make_test(what: str, name: str) -> None:
    assert why_not(name) == ""


def test_what_make_test_leaves_out_says_why() -> None:
    """The marker `thorough` has one argument, a sentence."""
    files = [path for folder in ("tests", "integration") for path in sorted((ROOT / folder).rglob("test_*.py"))]
    bare = [
        f"{path.relative_to(ROOT)}:{mark.lineno}"
        for path in files
        if "thorough" in (text := path.read_text())
        for mark in marks(ast.parse(text))
        if len(mark.args) != 1 or not isinstance(mark.args[0], ast.Constant) or len(str(mark.args[0].value)) < 20
    ]
    assert bare == []

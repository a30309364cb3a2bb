"""Every fenced block of the documentation is run, or read by what reads such a thing; see docs/decisions/0046-code-blocks.md.

Blocks that need servers run in `integration/test_docs_blocks.py`.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.installed import GROUP
from inbound.plugins import BUILT_IN
from inbound.reset_refs import GROUP as MAPPERS
from tests.docs_blocks import ROOT, WITH_SERVERS, Block, blocks, of_page, pages, problem_of
from tests.docs_commands import commands_of, inline, is_alone, refusal, words_of
from tests.docs_drawings import drawing_problem
from tests.docs_made import MADE
from tests.docs_python import SCENES, run_planned, run_python
from tests.docs_shell import Shell, Steps
from tests.docs_yaml import check_yaml, furnish

#: The most blocks that may stay without being run, of all.
NOT_RUN = 0.15


def of_language(*languages: str) -> list[Block]:
    return [block for block in blocks() if block.language in languages]


def pages_with(*languages: str) -> list[str]:
    """Return the pages that have blocks of these languages."""
    return list(dict.fromkeys(block.page for block in of_language(*languages)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, in which plugins are found; what was imported from it is forgotten."""
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


# -- what there is -------------------------------------------------------------------------------------------------------


def test_every_block_is_of_a_kind_that_something_runs() -> None:
    """A page that is new is found by itself, and its author told what is missing."""
    problems = [problem for block in blocks() if (problem := problem_of(block))]

    assert problems == [], "\n".join(problems)


def test_every_scene_and_maker_that_a_block_names_is_there_and_used() -> None:
    """A block whose scene nobody knows would be run by nobody."""
    named = {kind: {block.value for block in blocks() if block.annotation == kind} for kind in ("run", "made by")}

    assert named["run"] == SCENES.keys() | WITH_SERVERS.keys()
    assert named["made by"] == MADE.keys()


def test_few_blocks_are_not_run() -> None:
    """Each for a reason of the list; the list is here, so that one more is seen."""
    kept = [f"{block.page}: {block.value}" for block in blocks() if block.annotation == "not run"]

    assert sorted(kept) == [
        "README.md: minutes",
        "README.md: minutes",
        "docs/containers.md: needs-docker",
        "docs/containers.md: needs-docker",
        "docs/containers.md: needs-docker",
        "docs/containers.md: needs-docker",
        "docs/kubernetes.md: needs-kubernetes",
        "docs/spark-archive.md: needs-service",
        "docs/spark-replay.md: minutes",
        "docs/spark-replay.md: minutes",
        "docs/spark.md: minutes",
        "docs/spark.md: needs-service",
    ]
    assert len(kept) <= NOT_RUN * len(blocks())


# -- blocks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("yaml"))
def test_yaml_is_taken_by_what_reads_it(page: str, folder: Path) -> None:
    """Configurations by `check`, with the plugins that the page defines, which then take part in a group."""
    furnish(folder, of_page(page))
    for block in of_page(page):
        if block.language == "yaml" and check_yaml(block, folder) == "configuration":
            run_planned(folder / "docs.yaml")


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_runs(page: str, folder: Path) -> None:
    """All of a page in one namespace; what it defines is tried out."""
    furnish(folder, of_page(page))
    run_python([block for block in of_page(page) if block.language == "python"], folder)


@pytest.mark.parametrize("block", [b for b in blocks() if b.annotation == "made by"], ids=str)
def test_what_is_shown_is_what_the_code_makes(block: Block) -> None:
    """Compared with what is made now."""
    assert MADE[block.value](block) is None


@pytest.mark.parametrize("block", [b for b in blocks() if b.annotation == "drawing"], ids=str)
def test_drawings_name_what_there_is(block: Block) -> None:
    """Classes, methods, states."""
    assert drawing_problem(block) is None


@pytest.mark.parametrize("block", of_language("toml"), ids=str)
def test_toml_is_entry_points_that_are_looked_for(block: Block) -> None:
    """In a group that inbound knows, under a name that is free."""
    tree = tomllib.loads(block.text)

    for group, points in tree["project"]["entry-points"].items():
        assert group in (GROUP, MAPPERS)
        assert all(":" in target and name not in BUILT_IN for name, target in points.items())


@pytest.mark.slow
def test_commands_without_a_scene_are_carried_out(tmp_path: Path) -> None:
    """They need no server (those that do say on which state they run), and print what the page shows."""
    kept = [block for block in of_language("bash", "console") if not block.annotation]
    assert [str(block) for block in kept if not is_alone(block)] == [], (
        "say `<!-- run: ... -->` or `<!-- not run: ... -->`"
    )
    for page in {block.page for block in kept}:
        folder = tmp_path / page
        folder.mkdir(parents=True)
        furnish(folder, of_page(page))
        for block in (block for block in kept if block.page == page):
            Steps(Shell(folder)).run(block)


@pytest.mark.parametrize("block", [b for b in blocks() if b.annotation == "not run"], ids=str)
def test_what_is_not_run_can_be_read_by_bash(block: Block) -> None:
    """Each command of it by itself."""
    for command in commands_of(block):
        read = subprocess.run(["bash", "-n", "-c", command.typed], capture_output=True, text=True)
        assert (read.returncode, read.stderr) == (0, "")


# -- command lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("bash", "console"))
def test_every_command_line_in_a_block_is_taken_by_the_parser(page: str) -> None:
    """Also of those that are not run."""
    typed = [
        (block, c.typed) for block in of_page(page) if block.language in ("bash", "console") for c in commands_of(block)
    ]
    refused = [
        f"{block}: inbound {' '.join(w)}: {why}" for block, line in typed for w in words_of(line) if (why := refusal(w))
    ]

    assert refused == []


def test_every_command_in_code_quotes_is_taken_by_the_parser() -> None:
    """A text may name a command without all that it needs, but no option that there is not."""
    refused = [
        f"{page}:{line}: {command}: {why}"
        for page in pages()
        for line, command in inline((ROOT / page).read_text())
        for words in words_of(command)
        if (why := refusal(words, whole=False))
    ]

    assert refused == []

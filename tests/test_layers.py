"""The layers point one way: config <- coordinators, processors <- controller <- inbound <- inbound.cli.

The HTTP client, which processors use, stands between config and them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: Which layers a layer may import. `top` is what stands in inbound/ itself, but for the cli.
MAY_IMPORT = {
    "leaf": set[str](),
    "config": {"leaf", "config"},
    "coordinators": {"leaf", "config", "coordinators"},
    "http1": {"leaf", "config", "http1"},
    "processors": {"leaf", "config", "http1", "processors"},
    "controller": {"leaf", "config", "coordinators", "http1", "processors", "controller"},
    "top": {"leaf", "config", "coordinators", "http1", "processors", "controller", "top"},
    "cli": {"leaf", "config", "coordinators", "http1", "processors", "controller", "top", "cli"},
}
#: Served to every layer, so they may import none.
LEAVES = {
    "inbound.clock",
    "inbound.daemon_threads",
    "inbound.errors",
    "inbound.globs",
    "inbound.instruments",
    "inbound.latch",
    "inbound.printable",
    "inbound.repeats",
    "inbound.short_files",
    "inbound.topic_names",
    "inbound.topic_partition",
}
FOLDERS = ("config", "coordinators", "processors", "controller")
#: Nothing is longer: what does not fit is two things.
MAX_LINES = 500


def layer_of(module: str) -> str:
    """Return the layer of a module of inbound, by its dotted name."""
    if module in LEAVES:
        return "leaf"
    if module == "inbound.__main__":
        return "cli"
    second = module.split(".")[1] if "." in module else ""
    return second if second in (*FOLDERS, "http1", "cli") else "top"


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of inbound: its dotted name and its file, each once (the links are not followed)."""
    for folder in ("inbound", *FOLDERS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if not any((ROOT / parent).is_symlink() for parent in relative.parents):
                parts = relative.with_suffix("").parts
                name = ".".join(parts if folder == "inbound" else ("inbound", *parts))
                yield name.removesuffix(".__init__"), path


def imports_of(tree: ast.AST, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of every module of inbound that is imported, also inside functions and TYPE_CHECKING."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            for alias in node.names:  # `from inbound import errors` imports inbound.errors
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in known else base


def problems_of(module: str, source: str, known: set[str]) -> list[str]:
    """Return what `source`, as the module of that name, imports or reads although its layer may not."""
    tree = ast.parse(source)
    layer = layer_of(module)
    found = [
        f"{module}:{line}: layer {layer} imports {name}, of layer {layer_of(name)}"
        for line, name in imports_of(tree, known)
        if name.split(".")[0] == "inbound" and layer_of(name) not in MAY_IMPORT[layer]
    ]
    if layer != "cli":
        for node in ast.walk(tree):
            name = node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.alias) else ""
            if name in {"environ", "environb", "getenv", "getenvb"}:
                found.append(f"{module}:{getattr(node, 'lineno', 0)}: reads os.{name}; only the cli may")
    return found


@pytest.mark.slow
def test_every_import_points_down() -> None:
    """No module imports a layer above or beside its own, and none below the cli reads the environment."""
    files = dict(modules())

    problems = [problem for name, path in files.items() for problem in problems_of(name, path.read_text(), set(files))]

    assert not problems, "\n".join(problems)


def test_all_layers_are_looked_at() -> None:
    """The walk finds modules in every layer, so the test above looks at something."""
    assert {layer_of(name) for name, _ in modules()} == set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("inbound.config.loader", "import inbound.processors.base"),
        ("inbound.coordinators.base", "from inbound.processors import Batch"),
        ("inbound.processors.simple", "def f():\n    from inbound.coordinators import paths"),
        ("inbound.http1.client", "from inbound.processors import Batch"),
        ("inbound.controller", "from inbound import Batch"),
        ("inbound.channel.kafka_channel", "from inbound.cli.main import main"),
        ("inbound.errors", "from inbound import clock"),
        ("inbound.channel.reader", "import os\nos.environ['HOME']"),
        ("inbound.http", "from os import getenv"),
    ],
)
def test_a_wrong_import_is_named(module: str, source: str) -> None:
    """Imports up or sideways are found in every form, wherever in the file they stand."""
    (problem,) = problems_of(module, source, {"inbound.clock", "inbound.coordinators.paths"})

    assert problem.startswith(f"{module}:")


def test_the_environment_and_all_layers_are_open_to_the_cli() -> None:
    """The cli reads the environment, and may import everything."""
    source = "import os\nfrom inbound import errors\nfrom inbound.controller import x\nos.environ['HOME']"

    assert problems_of("inbound.cli.main", source, {"inbound.errors"}) == []


def test_no_file_is_longer_than_fits_in_a_head() -> None:
    """No Python file of the repo has more than 500 lines."""
    folders = ("inbound", *FOLDERS, "tests", "integration", "benchmarks", "examples", "scripts")
    lengths = {path: len(path.read_text().splitlines()) for name in folders for path in (ROOT / name).rglob("*.py")}

    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > MAX_LINES} == {}

"""The rooms are as `rooms.toml` says: who imports whom, without a circle, and how one room speaks to another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from scripts.rooms import LINKED, ROOT, TOP, docstring_of, imports_of, modules, room_of, table
from tests.repository.reaching import Classes, callbacks_assigned, reaching

#: A longer file is two things.
MAX_LINES = 500


def problems_of(module: str, source: str) -> Iterator[str]:
    """Yield what `source`, as the module of that name, imports although its room may not, and reads of the environment."""
    known, rooms = modules(), table()
    room = room_of(module, known)
    for found in imports_of(module, source, known):
        target = room_of(found.name, known) if found.name != "inbound" else None
        allowed = [] if room is None else [room, *rooms[room]]
        if target is not None and target not in allowed:
            yield f"{module}:{found.line}: imports {found.name}; {room or 'a leaf'} may import {', '.join(allowed) or 'nothing'}"
    if room is not None and room.partition(".")[0] != "cli":
        for node in ast.walk(ast.parse(source)):
            name = node.attr if isinstance(node, ast.Attribute) else node.name if isinstance(node, ast.alias) else ""
            if name in {"environ", "environb", "getenv", "getenvb"}:
                yield f"{module}:{getattr(node, 'lineno', 0)}: reads os.{name}; only the cli may"


@pytest.mark.slow
def test_every_module_imports_only_what_its_room_may() -> None:
    """Rooms import what the table gives them, and only the cli reads the environment."""
    problems = [problem for name, path in modules().items() for problem in problems_of(name, path.read_text())]

    assert not problems, "\n".join(problems)


@pytest.mark.slow
def test_the_table_says_what_is_so() -> None:
    """Every room is in the table, from the ground up, and may import nothing that it does not."""
    known, rooms = modules(), table()
    imported: dict[str, set[str]] = {}
    for name, path in known.items():
        room = room_of(name, known)
        if room is not None:
            targets = {room_of(found.name, known) for found in imports_of(name, path.read_text(), known)}
            imported.setdefault(room, set()).update(targets - {None, room, TOP})  # type: ignore[arg-type]
    order = list(rooms)

    assert {room: sorted(targets) for room, targets in imported.items()} == {r: sorted(may) for r, may in rooms.items()}
    assert [(r, one) for r, may in rooms.items() for one in may if order.index(one) >= order.index(r)] == []


@pytest.mark.slow
def test_every_room_says_what_it_is_for() -> None:
    """Its docstring: one line for the drawing, what the room may not know, and where to begin."""
    known = modules()
    said = {room: docstring_of(room, known) for room in table()}

    assert {room for room, text in said.items() if not 3 <= len(text.split("\n", 1)[0].split()) <= 20} == set()
    assert {
        room for room, text in said.items() if room != TOP and not re.search(r"[Bb]egin (with|there|reading)", text)
    } == set()


def test_nothing_lies_loose() -> None:
    """Modules stand in rooms, but for those that serve all of them."""
    assert {path.name for path in (ROOT / "inbound").glob("*.py")} == {
        "__init__.py", "__main__.py", "clock.py", "errors.py", "topic_partition.py",
    }  # fmt: skip


@pytest.mark.slow
def test_callbacks_are_given_to_constructors() -> None:
    """Nobody makes a thing of another and says later whom it is to call."""
    classes = Classes(modules())

    assert [found for name in classes.trees for found in callbacks_assigned(classes, name)] == []


@pytest.mark.slow
def test_rooms_do_not_reach_through_each_other() -> None:
    """No call through a thing of another room into a third one, nor through two: `theirs.inner.part.method()`."""
    known = modules()
    classes = Classes(known)
    rooms = {name: room_of(name, known) for name in known}

    assert [found for name, room in rooms.items() if room is not None for found in reaching(classes, name, room)] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("inbound.config.loader", "import inbound.processors.base"),
        ("inbound.coordinators.base", "from inbound.processors.batch import Batch"),
        ("inbound.processors.spans", "def f():\n    from inbound.coordinators import paths"),
        ("inbound.http.client.client", "from inbound.processors.batch import Batch"),
        ("inbound.group.claims", "from inbound.channel.reader import Reader"),
        ("inbound.channel.kafka_channel", "from inbound.cli.main import main"),
        ("inbound.errors", "from inbound.runtime import driver"),
        ("inbound.channel.reader", "import os\nos.environ['HOME']"),
        ("inbound.http.server.serving", "from os import getenv"),
    ],
)
def test_a_wrong_import_is_named(module: str, source: str) -> None:
    """Imports up or sideways are found in every form, wherever in the file they stand."""
    (problem,) = problems_of(module, source)

    assert problem.startswith(f"{module}:")


def test_the_environment_is_open_to_the_cli() -> None:
    """The cli reads the environment."""
    assert list(problems_of("inbound.cli.main", "import os\nos.environ['HOME']")) == []


def test_no_file_is_longer_than_fits_in_a_head() -> None:
    """No Python file of the repository has more than 500 lines."""
    folders = ("inbound", *LINKED, "tests", "integration", "benchmarks", "examples", "scripts")
    lengths = {path: len(path.read_text().splitlines()) for name in folders for path in (ROOT / name).rglob("*.py")}

    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > MAX_LINES} == {}

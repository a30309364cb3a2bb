"""The rooms are as `rooms.toml` says: who imports whom, without a circle, and how one room speaks to another."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.rooms import LINKED, ROOT, TOP, docstring_of, imports_of, modules, room_of, table
from tests.repository.reaching import Classes, callbacks_assigned, reaching, slices_of_parts

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

    assert {room for room, text in said.items() if not 3 <= len(text.split("\n", 1)[0].split()) <= 12} == set()
    assert {
        room for room, text in said.items() if room != TOP and not re.search(r"[Bb]egin (with|there|reading)", text)
    } == set()


def files_named(text: str) -> list[str]:
    """Return the files and folders that a room's docstring names in backticks."""
    return re.findall(r"`([\w*][\w*/.]*(?:/\w*|\.(?:py|md|html|js)))`", text)


def missing_files(folder: Path, text: str) -> set[str]:
    """Return the names in `text` of files that are neither in the room, beside it, in `inbound` nor in the repository."""
    places = (folder, folder.parent, ROOT / "inbound", ROOT)
    return {name for name in files_named(text) if not any(any(place.glob(name)) for place in places)}


@pytest.mark.slow
def test_every_file_that_a_room_names_exists() -> None:
    """A newcomer who begins where the docstring says finds the file."""
    known = modules()
    rooms = {name: path for name, path in known.items() if path.name == "__init__.py"}
    said = {name: ast.get_docstring(ast.parse(path.read_text())) or "" for name, path in rooms.items()}

    assert {name: found for name, path in rooms.items() if (found := missing_files(path.parent, said[name]))} == {}
    assert len([name for text in said.values() for name in files_named(text)]) > 200


def test_a_file_that_is_gone_is_named() -> None:
    """Files, patterns and folders are looked up; modules, routes and keys are not files."""
    room = ROOT / "inbound" / "observe" / "explain"
    text = "`facts.py`, `*.py`, `observe/status/`, `explain.interval`, `/status`, `inbound.group`; `cause.py`, `gone/`, `a/b.py`"

    assert missing_files(room, text) == {"cause.py", "gone/", "a/b.py"}


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
def test_parts_are_not_known_by_their_place_in_a_list() -> None:
    """`drivers[2:]` means something only to who knows in which order they were put in."""
    classes = Classes(modules())

    assert [found for name in classes.trees for found in slices_of_parts(classes, name)] == []


def test_a_slice_of_parts_is_named(tmp_path: Path) -> None:
    """Also where the list belongs to another object; a list of values may be sliced."""
    source = tmp_path / "made.py"
    source.write_text(
        "class Driver:\n    def start(self): ...\n"
        "class Value: ...\n"
        "class Owner:\n    drivers: list[Driver]\n    def __init__(self):\n"
        "        self.drivers: list[Driver] = []\n        self.values: list[Value] = []\n"
        "    def late(self):\n        return self.drivers[2:], self.values[2:]\n"
    )

    assert list(slices_of_parts(Classes({"made": source}), "made")) == [
        "made:10: self.drivers[2:]: give these parts a name of their own"
    ]


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

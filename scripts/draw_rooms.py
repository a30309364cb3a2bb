"""Draw the house into docs/architecture.md: its floors as a picture, and a line for each room (`make docs`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.diagrams import LETTER, LINE, box, box_height, label, picture
from scripts.made_tables import DOCS, with_tables
from scripts.rooms import TOP, docstring_of, modules, table

PAGE, PICTURE = DOCS / "architecture.md", DOCS / "diagrams" / "rooms.svg"
#: Width of the picture, of its left edge with the floors' numbers, and the space between boxes; pixels.
WIDTH, EDGE, GAP = 1000, 56, 8


def floors(rooms: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return each room's floor: one above the highest of the rooms that it imports; 0: it imports none."""
    found: dict[str, int] = {}
    for room, imports in rooms.items():  # from the ground up
        found[room] = max((found[one] + 1 for one in imports), default=0)
    return found


def rows_of(rooms: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the rooms floor by floor, the highest first; folders that only hold other rooms stand nowhere."""
    at, known = floors(rooms), modules()
    empty = {room for room in rooms if not rooms[room] and not _has_modules(room, known)}
    return [[r for r in rooms if at[r] == floor and r not in empty] for floor in sorted(set(at.values()), reverse=True)]


def _has_modules(room: str, known: Mapping[str, Path]) -> bool:
    return any(
        name.rpartition(".")[0] == f"inbound.{room}" and path.name != "__init__.py" for name, path in known.items()
    )


def house(rows: Sequence[Sequence[str]]) -> str:
    """Return the picture: each room stands above all that it imports."""
    drawn: list[str] = []
    y = 12.0
    for number, row in enumerate(rows):
        drawn.append(label(EDGE / 2, y + 20, str(len(rows) - 1 - number)))
        x = float(EDGE)
        for room in row:
            name = "inbound (public API)" if room == TOP else room
            wide = len(name) * (LETTER + 0.9) + 24
            if x + wide > WIDTH - GAP:
                x, y = float(EDGE), y + box_height([name]) + GAP
            drawn += box(x, y, wide, [name])
            x += wide + GAP
        y += LINE + 12 + 2 * GAP
        drawn.append(f'<line class="life" x1="{EDGE}" y1="{y - GAP:g}" x2="{WIDTH - GAP}" y2="{y - GAP:g}"/>')
    return picture("The rooms of inbound: each imports only rooms on floors below its own", WIDTH, y, drawn)


def lines_of(rooms: Mapping[str, Sequence[str]]) -> str:
    """Return the table: a line for each room, from the ground up, as its docstring begins."""
    known = modules()
    told = ((room, docstring_of(room, known).split("\n", 1)[0]) for room in rooms)
    return "\n".join(["| room | purpose |", "| --- | --- |", *(f"| `{room}` | {job} |" for room, job in told)])


def picture_of_rooms() -> str:
    """Return the picture as `rooms.toml` has it now."""
    return house(rows_of(table()))


def page() -> str:
    """Return the page with a line for each room."""
    return with_tables(PAGE, PAGE.read_text(), lines_of(table()))


def main() -> None:
    """Write both."""
    PICTURE.write_text(picture_of_rooms())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()

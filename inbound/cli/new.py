"""`inbound new processor`: a first processor with its configuration and its test, to be changed from there."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from inbound.cli import starter
from inbound.cli.help import examples
from inbound.errors import ConfigError, InboundError
from inbound.plugins import BUILT_IN

_EXAMPLES = ("inbound new processor orders", "inbound new processor orders --folder services/orders")


class CannotWriteError(InboundError):
    """A file could not be written."""


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "new",
        help="write a processor to start from",
        description="Write files to start from. There is one kind: `new processor`.",
        **examples(*_EXAMPLES),
    )
    kinds = parser.add_subparsers(title="what", metavar="WHAT", required=True)
    processor = kinds.add_parser(
        "processor",
        help="a processor, its options, its configuration and its test",
        description="Write NAME.py with a processor and its options, test_NAME.py that runs it on fakes, and inbound.yaml. "
        "Nothing that exists is overwritten.",
        **examples(*_EXAMPLES),
    )
    processor.add_argument("name", metavar="NAME", help="its name and that of its module, such as orders or web_shop")
    processor.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="where to write; made if missing; default: ./NAME"
    )
    processor.set_defaults(run=new_processor)


def new_processor(args: argparse.Namespace) -> int:
    """Write the files. Returns the exit code."""
    name: str = args.name
    _check_name(name)
    folder: Path = args.folder or Path(name)
    words = {"name": name, "cls": _class_name(name), "topic": name}
    files = {
        folder / f"{name}.py": starter.MODULE,
        folder / f"test_{name}.py": starter.TEST,
        folder / "inbound.yaml": starter.CONFIG,
    }
    if there := [str(path) for path in files if path.exists() or path.is_symlink()]:
        raise ConfigError(
            f"{', '.join(there)}: exists already, so nothing was written; choose another name or --folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, template in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(template.substitute(words))
    except OSError as error:
        raise CannotWriteError(
            f"{error.filename}: cannot be written: {error.strerror}; choose another --folder"
        ) from None
    print("\n".join(f"wrote {path}" for path in files))
    print(
        f"next: cd {shlex.quote(str(folder))} && python -m pytest && inbound check; the first lines of {name}.py say how to go on"
    )
    return 0


def _class_name(name: str) -> str:
    words = "".join(part.capitalize() for part in name.split("_"))
    taken = re.findall(r"^(?:from|import) .*\b" + words + r"\b", starter.MODULE.template + starter.TEST.template, re.M)
    return f"{words}Processor" if taken else words


def _check_name(name: str) -> None:
    """Refuse what cannot be a module, or would hide one: the folder of a configuration comes first on the import path."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > 60:
        folded = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()).strip("_")[:60]
        near = f"; did you mean {folded}?" if re.match("[a-z]", folded) else ""
        raise ConfigError(
            f"{name!r} cannot name a processor: need a lower-case letter, then letters, digits and single _{near}"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ConfigError(f"{name!r} is a word of Python's; choose another name, such as {name}_events")
    if name.startswith("test_"):
        raise ConfigError(f"{name!r} is a name that pytest takes for tests; choose another, such as {name[5:]}")
    if name in BUILT_IN:
        raise ConfigError(f"{name!r} is a processor that comes with inbound; choose another name, such as my_{name}")
    if where := _module_there(name):
        raise ConfigError(
            f"{name}.py would hide the module {name} ({where}); choose another name, such as {name}_events"
        )


def _module_there(name: str) -> str | None:
    """Return where a module of that name is; None if there is none. A bare folder counts for none."""
    if name in sys.stdlib_module_names:
        return "of Python's own library"
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return found.origin if found is not None else None

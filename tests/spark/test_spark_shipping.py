"""The wheel that executors elsewhere get."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from inbound.errors import SparkError
from inbound.spark import session


class Installed(metadata.Distribution):
    """A distribution in a folder, as an installer leaves it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        path = self._folder / "inbound_kafka-1.2.dist-info" / filename
        return path.read_text() if path.exists() else None

    def locate_file(self, path: object) -> Path:
        return self._folder / str(path)


def installed(folder: Path, *files: str) -> Installed:
    """Install these files, and a script beside them."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"NAME = {name!r}\n")
    info = folder / "inbound_kafka-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: inbound-kafka\nVersion: 1.2\n")
    listed = [*files, "../../bin/inbound", "inbound/__pycache__/x.pyc", "inbound_kafka-1.2.dist-info/METADATA"]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in listed))
    return Installed(folder)


def test_what_is_installed_is_packed_again_and_can_be_imported(tmp_path: Path) -> None:
    """All modules and data files, neither scripts nor byte code; a Python finds it on its path."""
    (tmp_path / "out").mkdir()
    found = installed(tmp_path / "site", "inbound/__init__.py", "inbound/config/__init__.py", "inbound/py.typed")

    made = session._packed(found, tmp_path / "out")

    assert made.name == "inbound_kafka-1.2-py3-none-any.whl"
    assert set(zipfile.ZipFile(made).namelist()) == {
        "inbound/__init__.py", "inbound/config/__init__.py", "inbound/py.typed", "inbound_kafka-1.2.dist-info/METADATA",
    }  # fmt: skip
    program = "import inbound.config; print(inbound.config.NAME)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(made)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "inbound/config/__init__.py\n"


def test_an_installation_without_files_is_refused(tmp_path: Path) -> None:
    """An editable one, seen from outside of its checkout: there is nothing to pack."""
    with pytest.raises(SparkError, match="lists no files; name a wheel of it with --wheel"):
        session._packed(installed(tmp_path / "site"), tmp_path)

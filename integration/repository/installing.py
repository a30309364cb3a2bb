"""Distributions built from a source tree, and installed where nothing else is: what a user has, not what a checkout has.

Nothing here asks the network. A clean environment's dependencies are those that the wheel asks for, and what these ask
for, at the versions that the tests run with; a package that nobody asks for is not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
#: What a source tree without git (an unpacked sdist) is not copied with.
_LEFT_BEHIND = frozenset(
    {".git", ".venv", "build", "dist", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
)
#: Builds without isolation, with the locked setuptools: what `pip wheel --no-build-isolation` does, without asking an index.
_BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
#: One build of this repository takes a few seconds; the rest is for a busy machine. Seconds.
_LONGEST = 180
#: Variables that would lead the Python of another environment back here.
_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP")


class CommandFailedError(AssertionError):
    """A command that a test needs ended with another code than 0."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with an installed wheel, and with what it depends on; nothing of a checkout."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where it has what is installed."""
        return self.folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"

    def variables(self) -> dict[str, str]:
        """Return environment variables for programs of this environment: nothing in them leads to another one."""
        kept = {name: value for name, value in os.environ.items() if name not in _OURS}
        return kept | {"PATH": os.pathsep.join([str(self.folder / "bin"), os.environ.get("PATH", os.defpath)])}

    def run(self, *command: str | Path, within: Path, seconds: float = _LONGEST) -> str:
        """Run a program of this environment in a folder. Returns what it printed.

        Raises:
            CommandFailedError: it ended with another code than 0; with all it said.
        """
        program = self.folder / "bin" / str(command[0])
        return _run(str(program), *command[1:], within=within, variables=self.variables(), seconds=seconds)


def copy_work_tree(to: Path) -> Path:
    """Copy what the repository would hold if all were committed now: tracked and new files, none that is ignored."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        shutil.copytree(ROOT, to, symlinks=True, ignore=lambda _, names: _LEFT_BEHIND & set(names))
        return to
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_symlink() or (
            ROOT / name
        ).is_file():  # else it was deleted, and nobody has committed that yet
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name, follow_symlinks=False)
    return to


def export(commit: str, to: Path) -> Path | None:
    """Unpack a commit of this repository; None if the clone does not have it (a shallow one, or no repository)."""
    if _git("cat-file", "-e", f"{commit}^{{commit}}") is None:
        return None
    to.mkdir(parents=True)
    archive = to.with_suffix(".tar")
    if _git("archive", f"--output={archive}", commit) is None:
        return None
    unpack(archive, to)
    archive.unlink()
    return to


def previous_release(otherwise: str) -> str:
    """Return the newest tag before this commit, or `otherwise` while there is none."""
    return (_git("describe", "--tags", "--abbrev=0", "HEAD^") or otherwise).strip()


def build(kind: str, source: Path, to: Path) -> Path:
    """Build a `wheel` or an `sdist` of a source tree, which is written to; return the file, in the folder `to`."""
    to.mkdir(parents=True, exist_ok=True)
    said = _run(sys.executable, "-c", _BUILD, kind, to, within=source, variables=_without_ours())
    return to / said.splitlines()[-1]


def unpack(archive: Path, to: Path) -> Path:
    """Unpack a tar file into a folder. Returns the folder."""
    with tarfile.open(archive) as file:
        file.extractall(to, filter="data")
    return to


def clean_environment(folder: Path, wheel: Path, *others: str) -> Environment:
    """Make a virtual environment with `wheel`, what it depends on (no extras), and the distributions `others` with theirs.

    Dependencies are linked, file by file, from the environment that the tests run in; `pip check` is asked whether they
    are what the wheel wants.

    Raises:
        CommandFailedError: pip cannot install the wheel, or something that it asks for is missing here or too old.
    """
    environment = Environment(folder)
    bare = _without_ours()
    _run(sys.executable, "-m", "venv", "--without-pip", folder, within=folder.parent, variables=bare)
    pip = (sys.executable, "-m", "pip", "--python", environment.python, "--disable-pip-version-check")
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-cache-dir", "--no-compile")
    _run(*pip, *install, wheel, within=folder, variables=bare)
    (ours,) = metadata.distributions(path=[str(environment.packages)])
    for found in closure([*(ours.requires or ()), *others]):
        _link(found, environment.packages)
    _run(*pip, "check", within=folder, variables=bare)
    return environment


def closure(requirements: Iterable[str]) -> list[metadata.Distribution]:
    """Return the installed distributions that these requirements name, with those that they need in turn."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(_applying(requirements, frozenset()))
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise CommandFailedError(
                f"{name} is needed, and not installed where the tests run; run `make setup`"
            ) from None
        more = [one for one in _applying(found[name].requires or (), extras) if one not in seen]
        waiting += more
        seen |= set(more)
    return list(found.values())


def _applying(requirements: Iterable[str], extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for text in requirements:
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(wanted.name), frozenset(wanted.extras)


def _link(found: metadata.Distribution, packages: Path) -> None:
    """Have the files of an installed distribution in another folder, too. Programs in `bin` stay where they are."""
    for file in found.files or ():
        if ".." in file.parts:
            continue
        place = packages / str(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():  # some put a README beside their packages, each the same one
            place.symlink_to(Path(str(found.locate_file(file))).resolve())


def _without_ours() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _OURS and not name.startswith("PIP_")}
    return kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1"}


def _git(*arguments: str) -> str | None:
    """Return what git says of this repository; None if it cannot."""
    try:
        ran = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=_LONGEST
        )
    except OSError:
        return None  # no git here
    return ran.stdout if ran.returncode == 0 else None


def _run(*command: str | Path, within: Path, variables: dict[str, str], seconds: float = _LONGEST) -> str:
    ran = subprocess.run(
        [str(part) for part in command],
        cwd=within,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    if ran.returncode:
        said = f"{ran.stdout}{ran.stderr}"[-4000:]
        raise CommandFailedError(f"{' '.join(map(str, command))} ended with {ran.returncode}:\n{said}")
    return ran.stdout

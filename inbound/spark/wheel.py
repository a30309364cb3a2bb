"""A wheel of inbound as it runs here, for executors on other machines.

What was installed is packed again from its own record; in a checkout it is built. A zip of the repo would not do: the
layers stand elsewhere in it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import inbound
from inbound.errors import SparkError

_NAME = "inbound-kafka"
#: What stands in a checkout and is no part of the distribution; most of it is large.
_BESIDE = frozenset({"artifacts", "benchmarks", "build", "dist", "docs", "integration", "tests"})


def make_wheel(folder: Path) -> Path:
    """Make the wheel in `folder`, and return it.

    Raises:
        SparkError: there is neither an installed distribution nor a checkout to build from, or building failed.
    """
    package = Path(inbound.__file__).parent
    checkout = package.parent
    if (checkout / "setup.cfg").is_file():
        return _built(checkout, folder)
    try:
        installed = metadata.distribution(_NAME)
    except metadata.PackageNotFoundError:
        raise SparkError(
            f"spark: {package} belongs to no installed {_NAME}; name a wheel of it with --wheel, for executors elsewhere"
        ) from None
    return _packed(installed, folder)


def _packed(installed: metadata.Distribution, folder: Path) -> Path:
    """Zip what the distribution's record lists: a wheel is that."""
    name = f"{installed.name.replace('-', '_')}-{installed.version}-py3-none-any.whl"
    files = [file for file in installed.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    if not any(file.parts[0] == "inbound" for file in files):
        raise SparkError(f"spark: the record of the installed {_NAME} lists no files; name a wheel of it with --wheel")
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.write(file.locate(), str(file))
    return folder / name


def _built(checkout: Path, folder: Path) -> Path:
    # In a copy: what an earlier build has left behind there would be packed too, and two may build at the same time.
    source = folder / "source"
    shutil.copytree(checkout, source, symlinks=True, ignore=_not_packed(checkout))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    done = subprocess.run(
        [*command, str(folder), str(source)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    made = sorted(folder.glob("*.whl"))
    if done.returncode or not made:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["pip said nothing"]
        raise SparkError(
            f"spark: no wheel could be built from {checkout} for the executors ({said[0]}); name one with --wheel"
        )
    return made[0]


def _not_packed(checkout: Path) -> Callable[[str, list[str]], set[str]]:
    def ignored(folder: str, names: list[str]) -> set[str]:
        top = Path(folder) == checkout
        return {name for name in names if name == "__pycache__" or (top and (name in _BESIDE or name.startswith(".")))}

    return ignored

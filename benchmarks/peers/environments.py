"""Makes what the peers run in, once, in a cache folder: virtual environments, Java classes, Go programs."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PEERS = Path(__file__).resolve().parent
#: How long one installation or compilation may take, in seconds.
LIMIT = 600.0


class NotInstalledError(Exception):
    """A peer cannot be had on this machine; the message says why, and what to do."""


def python_environment(cache: Path, peer: str) -> Path:
    """Return the Python of a virtual environment with exactly the peer's requirements.txt.

    Raises NotInstalledError: pip could not install them.
    """
    requirements = PEERS / peer / "requirements.txt"

    def make(folder: Path) -> None:
        _run("pip", sys.executable, "-m", "venv", folder)
        options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
        _run("pip", folder / "bin" / "python", "-m", "pip", "install", *options, "-r", requirements)

    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return _once(cache, peer, [requirements], version, make) / "bin" / "python"


def java_classes(cache: Path, kafka_jars: Path) -> str:
    """Return the class path with the compiled Java loop.

    Raises NotInstalledError: there is no Java compiler, or it refused the loop.
    """
    source, jars = PEERS / "java" / "Drain.java", f"{kafka_jars}/*"
    classes = _once(
        cache,
        "java",
        [source],
        kafka_jars.name,
        lambda folder: _run("a JDK's javac", "javac", "-cp", jars, "-d", folder, source),
    )
    return f"{classes}:{jars}"


def go_program(cache: Path, peer: str) -> Path:
    """Return the compiled program of benchmarks/peers/`peer`.

    Raises NotInstalledError: there is no Go, or it could not build the program.
    """
    source = PEERS / peer
    files = sorted([*source.glob("*.go"), *source.glob("go.*")])
    build: list[str | Path] = ["go", "build", "-C", source, "-mod=readonly", "-buildvcs=false"]
    folder = _once(cache, peer, files, "", lambda folder: _run("Go", *build, "-o", folder / "program", "."))
    return folder / "program"


def _once(cache: Path, peer: str, files: list[Path], version: str, make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` has filled; it is called again when one of the files changes."""
    digest = hashlib.sha256(version.encode())
    for file in files:
        digest.update(file.read_bytes())
    folder = cache / f"{peer}-{digest.hexdigest()[:12]}"
    complete = folder / "complete"  # not renamed when done: a virtual environment cannot be moved
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"{peer}: making {folder} (once)", file=sys.stderr)
        make(folder)
        complete.touch()
    return folder


def _run(tool: str, *command: str | Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT, check=False)
    except FileNotFoundError:
        raise NotInstalledError(f"{tool} was not found on the PATH; install it to see this row") from None
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        raise NotInstalledError(f"{tool} ended with {done.returncode}; what it said is above the table")

"""Make or renew .venv: what `scripts/setup` starts once Python and Java are known to be good. Needs nothing installed.

Each step is done when what it depends on has changed since it last succeeded. Whatever was under way when a set-up
was interrupted is not trusted: the environment is then made anew (downloads stay in pip's cache).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
#: Marks an environment as made by this script, and holds what each finished step depended on.
STATE = VENV / "inbound-set-up.json"
PART = VENV / "inbound-set-up.part"
OUR_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
LOCKS = ROOT / "requirements"
#: pip settings that would install elsewhere than into .venv, or other versions than the locked ones. Indexes,
#: certificates, proxies and caches are left as the machine has them.
BAD_PIP_SETTINGS = ("USER", "TARGET", "PREFIX", "ROOT", "CONSTRAINT", "REQUIREMENT", "PRE", "NO_BINARY", "DRY_RUN")


def fail(message: str) -> NoReturn:
    print(f"set-up: {message}", file=sys.stderr)
    sys.exit(2)


def environment() -> dict[str, str]:
    """Return our environment without what would lead pip or Python astray."""
    bad = {"PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__", *(f"PIP_{name}" for name in BAD_PIP_SETTINGS)}
    kept = {name: value for name, value in os.environ.items() if name not in bad}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def run(*command: str | Path) -> None:
    """Run `command` quietly; if it fails, show the end of what it said and end the set-up."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        code = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(),
            close_fds=False,  # see only_one
        ).returncode
        if code:
            output.seek(0)
            print(" failed", "".join(output.readlines()[-40:]), sep="\n", file=sys.stderr)
            fail(
                f"`{' '.join(map(str, command))}` ended with {code}; the reason is above. Then run the same make again."
            )


def pip_install(*arguments: str | Path) -> None:
    # --no-deps: the lock is complete. --use-pep517: older pips otherwise run setup.py directly, which leaves a
    # half-installed package behind when interrupted.
    run(
        PYTHON, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--use-pep517", *arguments
    )  # fmt: skip


def make_venv() -> None:
    run(sys.executable, "-m", "venv", VENV)


def install_build_tools() -> None:
    pip_install("--require-hashes", "-r", LOCKS / "build.lock")


def install_packages() -> None:
    pip_install("--require-hashes", "-r", LOCKS / "dev.lock")
    run(PYTHON, "-m", "pip", "check")


def install_inbound() -> None:
    pip_install("--editable", ROOT)


def fetch_jars() -> None:
    run(PYTHON, "-m", "inbound", "cluster", "fetch")


#: What is done, in this order; how it is announced; which files it depends on (beside the Python version).
STEPS: tuple[tuple[Callable[[], None], str, tuple[str, ...]], ...] = (
    (make_venv, "virtual environment .venv", ()),
    (install_build_tools, "build tools", ("requirements/build.lock",)),
    (install_packages, "locked packages (PySpark has 400 MB)", ("requirements/dev.lock",)),
    (install_inbound, "inbound itself, editable", ("setup.cfg", "setup.py", "pyproject.toml")),
    (fetch_jars, "jars of Kafka and ZooKeeper (50 MB)", ("inbound/embedded/jars.py",)),
)


def fingerprint(python: str, files: tuple[str, ...]) -> str:
    """Return what a step depends on, as text. The folder is part of it: an environment cannot be moved."""
    digest = hashlib.sha256(f"{python} {ROOT}".encode())
    for name in files:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def finished_steps() -> dict[str, str]:
    """Return what .venv has behind it; nothing if it has to be made anew."""
    if not VENV.exists() or {child.name for child in VENV.iterdir()} <= {PART.name}:
        return {}
    try:
        state: dict[str, str] = json.loads(STATE.read_text())
    except (OSError, ValueError):
        fail(f"{VENV} exists but was not made by this set-up. Remove it or move it away, then run the same make again.")
    if "under way" in state or python_of(PYTHON) != state["python"]:
        return {}  # interrupted, or the Python below it was upgraded or removed
    if os.environ.get("PYTHON") and state["python"] != OUR_VERSION:
        return {}
    return state


def python_of(path: Path) -> str | None:
    """Return the version of an interpreter, such as 3.11; None if it does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([path, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def clear_venv() -> None:
    """Empty .venv but for the state file, which goes on saying whose it is if we are interrupted here."""
    for child in VENV.iterdir() if VENV.exists() else ():
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child != STATE:
            child.unlink()


def write_state(state: dict[str, str]) -> None:
    """Replace the state file in one go: a killed set-up leaves the old or the new one."""
    VENV.mkdir(exist_ok=True)
    PART.write_text(json.dumps(state, indent=1))
    PART.replace(STATE)


@contextmanager
def only_one() -> Iterator[None]:
    """Wait for a set-up of the same checkout that runs in another terminal.

    The lock ends with its last holder. The programs we run inherit it: a pip that outlives us still writes to .venv.
    """
    with open(__file__, "rb") as handle:
        os.set_inheritable(handle.fileno(), True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("set-up: waiting for another set-up of this checkout", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> None:
    with only_one():
        state = finished_steps()
        if not state:
            state = {"python": OUR_VERSION}
            write_state(state | {"under way": "clearing"})
            clear_venv()
        for number, (step, title, files) in enumerate(STEPS, start=1):
            wanted = fingerprint(state["python"], files)
            if state.get(step.__name__) == wanted:
                continue
            print(f"set-up {number}/{len(STEPS)}: {title} ...", end="", flush=True)
            started = time.monotonic()
            if step is not fetch_jars:  # outside of .venv, and careful about interruptions itself
                write_state(state | {"under way": step.__name__})
            step()
            state[step.__name__] = wanted
            write_state(state)
            print(f" {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\nset-up: interrupted; the next make goes on from here")

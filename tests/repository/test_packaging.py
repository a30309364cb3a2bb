"""The wheel owns one name and holds every module; a checkout and an installation see the same names."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LAYERS = ("config", "controller", "coordinators", "processors")
#: What setuptools is given; without .git, .venv and what tools leave behind.
SOURCES = (
    "inbound",
    *LAYERS,
    "examples",
    "setup.cfg",
    "setup.py",
    "pyproject.toml",
    "MANIFEST.in",
    "LICENSE",
    "README.md",
)


def shipped_files() -> set[str]:
    """Return every file of the source tree that users need, under the name it has once installed."""
    found = {f"inbound/{path.relative_to(ROOT / 'inbound')}" for path in (ROOT / "inbound").rglob("*.py")}
    found = {name for name in found if not name.startswith(tuple(f"inbound/{layer}/" for layer in LAYERS))}
    for layer in LAYERS:
        found |= {f"inbound/{path.relative_to(ROOT)}" for path in (ROOT / layer).rglob("*.py")}
    examples = {f"inbound/{path.relative_to(ROOT)}" for path in (ROOT / "config" / "examples").rglob("*.yaml")}
    # The demo's processor: what users copy is what the demo runs, also from a wheel.
    plugin = {f"inbound/demo/delays/{path.name}" for path in (ROOT / "examples" / "delays").glob("*.py")}
    parts = (path for kind in ("html", "css", "js") for path in (ROOT / "inbound" / "admin").rglob(f"*.{kind}"))
    page = {str(path.relative_to(ROOT)) for path in parts}
    return (
        found
        | examples
        | plugin
        | page
        | {"inbound/py.typed", "inbound/embedded/jars.sha256", "inbound/spark/log4j2.properties"}
    )


def build(kind: str, source: Path, folder: Path) -> Path:
    """Build a `wheel` or `sdist` of `source` into `folder` as pip does, but without its network: return the file."""
    code = f"import sys, setuptools.build_meta as b; print(b.build_{kind}(sys.argv[1]))"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=source, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder / ran.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel_and_sdist(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a wheel and a source distribution, both built from a copy (building writes into its folder)."""
    folder = tmp_path_factory.mktemp("packaging")
    copy = folder / "checkout"
    copy.mkdir()
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.exists():
            shutil.copy(path, copy / name)
    return build("wheel", copy, folder), build("sdist", copy, folder)


def contents(wheel: Path) -> set[str]:
    """Return the files in `wheel` that are not its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_holds_every_module_once_under_one_name(wheel_and_sdist: tuple[Path, Path]) -> None:
    """What is in the source tree is in the wheel, nothing else is, and all of it is below `inbound`."""
    files = contents(wheel_and_sdist[0])

    assert {name.split("/")[0] for name in files} == {"inbound"}
    assert files == shipped_files()


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(wheel_and_sdist: tuple[Path, Path], tmp_path: Path) -> None:
    """Who builds from the published source, which has no links, gets the same files."""
    wheel, sdist = wheel_and_sdist
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()

    assert contents(build("wheel", unpacked, tmp_path)) == contents(wheel)


@pytest.mark.slow
def test_an_installed_wheel_leaves_its_users_names_alone(wheel_and_sdist: tuple[Path, Path], tmp_path: Path) -> None:
    """In a project with its own `config` and `processors`, `inbound` imports and so do they."""
    site, project = tmp_path / "site", tmp_path / "project"
    with zipfile.ZipFile(wheel_and_sdist[0]) as archive:
        archive.extractall(site)
    project.mkdir()
    for name in LAYERS:
        (project / f"{name}.py").write_text("OURS = True\n")
    code = (
        f"import sys; sys.path[:0] = ['', {str(site)!r}]\n"
        f"import inbound, inbound.processors.batch, {', '.join(LAYERS)}\n"
        f"assert all(m.OURS for m in ({', '.join(LAYERS)}))\n"
        "print(inbound.processors.batch.__file__)"
    )

    ran = subprocess.run([sys.executable, "-P", "-c", code], cwd=project, capture_output=True, text=True)

    assert (ran.stdout.strip(), ran.stderr) == (f"{site}/inbound/processors/batch.py", "")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_checkout_has_each_layer_under_inbound(layer: str) -> None:
    """The links are relative, so that they hold wherever the checkout is."""
    link = ROOT / "inbound" / layer

    assert link.is_symlink()
    assert os.readlink(link) == f"../{layer}"
    assert link.resolve() == ROOT / layer


def test_the_lock_pins_every_requirement_with_hashes_and_names_no_index() -> None:
    """Everything that setup.cfg asks for is in the lock, with hashes; where it comes from is left to the machine."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    asked = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    names = {line.split(">")[0].strip().lower() for field in asked for line in field.splitlines() if line.strip()}
    lock = (ROOT / "requirements" / "dev.lock").read_text()
    pins = lock.replace("\\\n", " ").splitlines()
    pinned = {line.split("==")[0]: line for line in pins if "==" in line}

    assert names <= set(pinned)
    assert [line for line in pinned.values() if "--hash=sha256:" not in line] == []
    assert "://" not in lock


def test_ruff_bans_the_layers_top_level_names(tmp_path: Path) -> None:
    """`import coordinators.base` works in a checkout and makes every class twice; ruff names the right import."""
    path = tmp_path / "slip.py"
    path.write_text("import coordinators.base\nfrom config import loader\n\nprint(coordinators.base, loader)\n")
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml")]

    ran = subprocess.run([*command, "--output-format", "concise", str(path)], capture_output=True, text=True)

    assert "Import it as inbound.coordinators" in ran.stdout
    assert "Import it as inbound.config" in ran.stdout

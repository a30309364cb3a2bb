"""What users install: a wheel built from the sdist, in an environment where nothing is but what the wheel asks for."""

from __future__ import annotations

import configparser
import json
import re
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

import inbound
from inbound.cli.main import parser
from integration.repository.installing import (
    ROOT,
    Environment,
    build,
    clean_environment,
    closure,
    copy_work_tree,
    unpack,
)

#: Imports all that the distribution has, and says what it found: module -> the name of what was missing, and where each is.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import inbound
missing, places = {}, set()
for found in pkgutil.walk_packages(inbound.__path__, "inbound."):
    if found.name.rpartition(".")[2] == "__main__":
        continue  # runs when imported
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:
        missing[found.name] = error.name
places = {name: module.__file__ for name, module in sys.modules.items() if getattr(module, "__file__", None)}
print(json.dumps({"missing": missing, "places": places}))
"""

#: Has each of the commands named say how it is used, in one process.
HELP = """
import contextlib, io, json, sys
from inbound.cli.main import main
said = {}
for name in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        main([name, "--help"])
    said[name] = output.getvalue()
print(json.dumps(said))
"""

#: Seconds; building and installing takes minutes on a busy machine.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough(
        "installs wheels into empty environments, minutes; the unit tests of packaging decide the rest"
    ),
]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this work tree, and the wheel that was built from that."""
    folder = tmp_path_factory.mktemp("dist")
    sdist = build("sdist", copy_work_tree(folder / "tree"), folder)
    (source,) = unpack(sdist, folder / "unpacked").iterdir()
    build("wheel", source, folder)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and what it depends on, without extras; pytest for the test that `new processor` writes."""
    (wheel,) = dist.glob("*.whl")
    return clean_environment(tmp_path_factory.mktemp("clean") / "venv", wheel, "pytest")


def test_the_version_is_the_same_wherever_it_is_shown(dist: Path, installed: Environment, tmp_path: Path) -> None:
    """`inbound.__version__` is its source; files, metadata, command and changelog agree with it."""
    version = inbound.__version__
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    said = {
        "sdist": sdist.name.removeprefix("inbound_kafka-").removesuffix(".tar.gz"),
        "wheel": wheel.name.split("-")[1],
        "metadata": next(iter(metadata.distributions(name="inbound-kafka", path=[str(installed.packages)]))).version,
        "command": installed.run("inbound", "--version", within=tmp_path).split()[-1],
        "changelog": changelog_version((ROOT / "CHANGELOG.md").read_text()),
    }

    assert set(said.values()) == {version}, said
    assert str(Version(version)) == version  # in the form in which files are named


def changelog_version(text: str) -> str:
    """Return the version of the changelog's first section: `[Unreleased] 0.1.0` or `[0.1.0] 2026-11-22`."""
    found = re.search(r"^## \[(?:Unreleased\] (\S+)|([^\]]+)\])", text, re.MULTILINE)
    assert found is not None, "CHANGELOG.md has no section of a version"
    return found.group(1) or found.group(2)


def test_every_module_imports_or_lacks_only_what_an_extra_brings(installed: Environment, tmp_path: Path) -> None:
    """What the wheel needs, it asks for; what it does not ask for, an extra does. Nothing comes from the checkout."""
    found = json.loads(installed.run("python", "-c", IMPORT_ALL, within=tmp_path))
    unexplained = {name: lacking for name, lacking in found["missing"].items() if lacking not in brought_by_extras()}
    from_checkout = {
        name: place for name, place in found["places"].items() if Path(place).is_relative_to(ROOT / "inbound")
    }

    assert unexplained == {}
    assert from_checkout == {}
    assert Path(found["places"]["inbound"]) == installed.packages / "inbound" / "__init__.py"
    assert len([name for name in found["places"] if name.startswith("inbound.")]) > 200


def brought_by_extras() -> set[str]:
    """Return the modules of what users' extras (not `dev`) install, with all that these need."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = [
        line
        for name, lines in config["options.extras_require"].items()
        if name != "dev"
        for line in lines.split("\n")
        if line
    ]
    brought = {canonicalize_name(found.name) for found in closure(wanted)}
    modules = metadata.packages_distributions()
    return {module for module, names in modules.items() if brought & {canonicalize_name(name) for name in names}}


def test_a_first_processor_is_written_checked_and_tested(installed: Environment, tmp_path: Path) -> None:
    """The first five minutes of a user, offline: new, check, pytest, schema, the examples; from what is installed."""
    installed.run("inbound", "new", "processor", "orders", within=tmp_path)
    checked = installed.run("inbound", "check", within=tmp_path / "orders")
    tested = installed.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", within=tmp_path / "orders")

    assert "orders:Orders" in checked
    assert re.search(r"^\d+ passed", tested, re.MULTILINE), tested
    schema = json.loads(installed.run("inbound", "schema", within=tmp_path))
    examples = installed.packages / "inbound" / "config" / "examples"
    assert {"zookeeper", "kafka", "channels", "ledger"} <= set(schema["properties"])
    assert installed.run("inbound", "check", "-c", examples / "minimal.yaml", within=tmp_path)


def test_every_command_explains_itself(installed: Environment, tmp_path: Path) -> None:
    """`--help` of each command needs no extra: a missing one is named when it is used, not by a traceback."""
    (commands,) = [action.choices for action in parser()._actions if action.choices is not None]
    said = json.loads(installed.run("python", "-c", HELP, *commands, within=tmp_path))

    assert {name for name, text in said.items() if not text.startswith(f"usage: inbound {name}")} == set()
    assert {"run", "check", "status", "offsets", "spark", "new"} <= set(said)


def test_what_is_no_python_is_there_too(dist: Path) -> None:
    """Data that modules read at run time, the types' marker, the licence; and no file of another top-level name."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    kinds = (".yaml", ".properties", ".html", ".css", ".js", ".svg", ".json", ".tmpl")
    data = [
        path for layer in ("inbound", "config", "controller", "coordinators", "processors")
        for kind in kinds
        for path in (ROOT / layer).rglob(f"*{kind}")
        if path.resolve() == path  # not once more through the links
    ]  # fmt: skip
    expected = {installed_name(path) for path in data} | {"inbound/py.typed"}

    assert expected - names == set()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"inbound"}
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def installed_name(path: Path) -> str:
    """Return under which name a file of the source tree is installed."""
    name = str(path.relative_to(ROOT))
    return name if name.startswith("inbound/") else f"inbound/{name}"

"""`inbound new processor`: its files run, are tested and typed; and no file is overwritten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inbound.cli.main import main

OTHERS = pytest.mark.thorough("pytest, ruff and mypy take seconds; `world` is the name that collides with most")
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; what is imported from it is forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def files() -> dict[str, str]:
    """Return what is in the working directory."""
    return {str(path): path.read_text() for path in sorted(Path().rglob("*")) if path.is_file()}


def python(*arguments: str, within: Path) -> tuple[int, str]:
    """Run Python in a folder, with this inbound. Returns the exit code and everything it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=within, env=environment, capture_output=True, text=True, timeout=100
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_three_files_are_written_and_the_next_step_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder of the processor's name."""
    assert main(["new", "processor", "web_shop"]) == 0

    assert capsys.readouterr().out == (
        "wrote web_shop/web_shop.py\nwrote web_shop/test_web_shop.py\nwrote web_shop/inbound.yaml\n"
        "next: cd web_shop && python -m pytest && inbound check; the first lines of web_shop.py say how to go on\n"
    )
    assert list(files()) == ["web_shop/inbound.yaml", "web_shop/test_web_shop.py", "web_shop/web_shop.py"]
    assert not [text for text in files().values() if "$" in text.replace("$XDG", "")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["world", pytest.param("orders", marks=OTHERS), pytest.param("batch", marks=OTHERS)])
def test_its_test_passes_and_its_style_and_types_are_good(name: str, folder: Path) -> None:
    """Also where the name is one that the files use themselves; mypy --strict needs of inbound the annotations alone."""
    main(["new", "processor", name])
    strict = ("--strict", "--follow-imports=silent", f"--cache-dir={ROOT / '.mypy_cache' / 'starter'}")

    code, said = python("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", within=folder / name)
    style, remarks = python("-m", "ruff", "check", "--isolated", "--line-length", "120", ".", within=folder / name)
    types, found = python("-m", "mypy", *strict, f"{name}.py", f"test_{name}.py", within=folder / name)

    assert (code, "2 passed" in said, said if code else "") == (0, True, "")
    assert (style, remarks if style else "") == (0, "")
    assert (types, found) == (0, "Success: no issues found in 2 source files\n")


@pytest.mark.slow
def test_its_test_can_fail(folder: Path) -> None:
    """A processor that counts nothing is found out."""
    main(["new", "processor", "orders"])
    module = folder / "orders" / "orders.py"
    module.write_text(module.read_text().replace("self.counts.update(", "list("))

    code, said = python("-m", "pytest", "-q", "-p", "no:cacheprovider", within=folder / "orders")

    assert (code, "2 failed" in said) == (1, True)


@pytest.mark.parametrize("there", ["orders/orders.py", "orders/test_orders.py", "orders/inbound.yaml"])
def test_nothing_is_overwritten(there: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One file that exists, and none is written."""
    Path("orders").mkdir()
    Path(there).write_text("mine\n")

    assert main(["new", "processor", "orders"]) == 2

    assert capsys.readouterr().err == (
        f"error: {there}: exists already, so nothing was written; choose another name or --folder\n"
    )
    assert files() == {there: "mine\n"}


def test_a_folder_that_exists_is_no_obstacle() -> None:
    """Other files in it stay as they are."""
    Path("service").mkdir()
    Path("service/README").write_text("mine\n")

    assert main(["new", "processor", "orders", "--folder", "service"]) == 0

    assert (len(files()), files()["service/README"]) == (4, "mine\n")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("WebShop", "'WebShop' cannot name a processor: need a lower-case letter, then letters, digits and single _; did you "
                    "mean web_shop?"),
        ("web-shop", "'web-shop' cannot name a processor: need a lower-case letter, then letters, digits and single _; did you "
                     "mean web_shop?"),
        ("../orders", "'../orders' cannot name a processor: need a lower-case letter, then letters, digits and single _; did you "
                      "mean orders?"),
        ("7", "'7' cannot name a processor: need a lower-case letter, then letters, digits and single _"),
        ("", "'' cannot name a processor: need a lower-case letter, then letters, digits and single _"),
        ("class", "'class' is a keyword of Python; choose another name, such as class_events"),
        ("simple", "'simple' is a processor that comes with inbound; choose another name, such as my_simple"),
        ("test_orders", "'test_orders' is a name that pytest reserves for tests; choose another, such as orders"),
        ("json", "json.py would hide the module json (of Python's own library); choose another name, such as json_events"),
    ],
)  # fmt: skip
def test_a_name_that_would_not_work_is_refused(name: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With one that would; nothing is written."""
    assert main(["new", "processor", name]) == 2

    assert (capsys.readouterr().err, files()) == (f"error: {problem}\n", {})


def test_a_name_that_hides_an_installed_module_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A kafka.py beside the configuration would be imported in the client's place."""
    assert main(["new", "processor", "kafka"]) == 2

    assert capsys.readouterr().err.startswith("error: kafka.py would hide the module kafka (")


def test_a_folder_that_cannot_be_made_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1: the command was right, the disk was not."""
    Path("file").write_text("")

    assert main(["new", "processor", "orders", "--folder", "file/in"]) == 1

    assert capsys.readouterr().err.startswith("error: file/in: cannot be written: Not a directory; choose another")

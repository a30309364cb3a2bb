"""The image's installation, as deploy/install.sh does it from a wheelhouse: with extras, and without any."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCK = "pure-sasl==0.6.2 \\\n    --hash=sha256:cc\n"


def wheel(folder: Path, name: str, version: str, *, metadata: str = "", **files: str) -> None:
    """Write a wheel that pip takes, with these files of its metadata (`_` stands for a dot)."""
    about = f"{name}-{version}.dist-info"
    contents = {
        f"{name}.py": f"def main():\n    print('{name} {version}')\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{metadata}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{f"{about}/{file.replace('_t', '.t')}": text for file, text in files.items()},
    }
    record = f"{about}/RECORD"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
        archive.writestr(record, "".join(f"{path},,\n" for path in [*contents, record]))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with two wheels: inbound's name with one extra, and what that needs."""
    for name in ("deploy", "requirements", "wheelhouse"):
        (tmp_path / name).mkdir()
    for name in ("install.sh", "locked.py"):
        shutil.copy(ROOT / "deploy" / name, tmp_path / "deploy")
    (tmp_path / "requirements" / "dev.lock").write_text(LOCK)
    wheel(
        tmp_path / "wheelhouse", "inbound_kafka", "1.0",
        metadata="Provides-Extra: sasl\nRequires-Dist: pure-sasl; extra == 'sasl'\n",
        entry_points_txt="[console_scripts]\ninbound = inbound_kafka:main\n",
    )  # fmt: skip
    wheel(tmp_path / "wheelhouse", "pure_sasl", "0.6.2")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extras", "installed"), [("sasl", ["inbound_kafka-1.0", "pure_sasl-0.6.2"]), ("", ["inbound_kafka-1.0"])]
)
def test_as_many_extras_are_installed_as_are_asked_for(checkout: Path, extras: str, installed: list[str]) -> None:
    """None, too: that is what `--build-arg EXTRAS=` asks for."""
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(checkout)}
    command = ["sh", "deploy/install.sh", str(checkout / "made"), extras]
    ran = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=300)

    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["inbound_kafka 1.0"]), ran.stderr
    found = (checkout / "made").glob("lib/python*/site-packages/*.dist-info")
    assert sorted(path.stem for path in found if not path.stem.startswith(("pip-", "setuptools-"))) == installed

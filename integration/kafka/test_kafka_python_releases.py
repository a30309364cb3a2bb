"""The newest release of kafka-python, and the oldest that may be installed, from the package index: taken, or refused clearly."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from inbound.kafka.python.private_members import NEWEST, OLDEST
from integration.repository.installing import ROOT

CHECK = """
import kafka
from inbound.errors import ConfigError
from inbound.kafka.clients.choice import check_installed
try:
    check_installed("kafka-python")
    print(kafka.__file__, kafka.__version__, "is taken")
except ConfigError as error:
    print(error)
"""


def download(release: str, folder: Path) -> Path:
    """Unpack a release of kafka-python. Returns the folder that it is imported from."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*pip, "--no-deps", "--only-binary=:all:", "--dest", str(folder), f"kafka-python{release}"],
        check=True, timeout=100,
    )  # fmt: skip
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "unpacked")
    return folder / "unpacked"


def answer(packages: Path) -> tuple[str, str]:
    """Return the version of kafka-python in a folder, and what the check says of it."""
    (version,) = (path.stem.split("-")[1] for path in packages.glob("*.dist-info"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(ROOT)])}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHECK],
        env=environment, cwd=packages, check=True, timeout=100, capture_output=True, text=True,
    )  # fmt: skip
    return version, ran.stdout.strip()


@pytest.mark.parametrize("release", ["", f"=={OLDEST}", f"=={NEWEST}"], ids=["newest", "oldest", "locked"])
def test_a_release_has_all_members(release: str, tmp_path: Path) -> None:
    """Of the newest one a failure says what to change, before users meet it."""
    packages = download(release, tmp_path)
    version, said = answer(packages)

    assert said == f"{packages / 'kafka' / '__init__.py'} {version} is taken"


def test_a_release_that_lacks_a_member_is_refused(tmp_path: Path) -> None:
    """The newest one, with a member renamed."""
    packages = download("", tmp_path)
    fetcher = packages / "kafka" / "consumer" / "fetcher.py"
    fetcher.write_text(fetcher.read_text().replace("_fetch_futures", "_futures_of_fetches"))
    version, said = answer(packages)

    assert said == (
        f"kafka-python {version} lacks Fetcher._fetch_futures, which inbound needs; install a release that was checked: "
        f"pip install 'kafka-python>={OLDEST},<={NEWEST}', or set reader.client: confluent-kafka"
    )

"""The image's recipe: what the Dockerfile says, what of the checkout it sees, and what is taken from the lock."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from inbound.cli.main import parser
from inbound.kubernetes.pods import USER
from tests.http_receiver import Receiver, receiver
from tests.loaded_module import ROOT, load_module
from tests.repository.test_packaging import SOURCES

__all__ = ["receiver"]  # the fixture

DEPLOY = ROOT / "deploy"
locked = load_module("deploy/locked.py")
LOCK = (ROOT / "requirements" / "dev.lock").read_text()
SMALL_LOCK = """\
# Made by `make lock` from setup.cfg. Don't edit.
crc32c==2.9 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
pure-sasl==0.6.2 \\
    --hash=sha256:cc
uvloop==0.23.0 ; sys_platform != 'win32' \\
    --hash=sha256:dd
"""


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile: each with its arguments on one line."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined)]


DOCKERFILE = instructions((DEPLOY / "Dockerfile").read_text())
FINAL = DOCKERFILE[max(i for i, (word, _) in enumerate(DOCKERFILE) if word == "FROM") :]


def test_both_stages_stand_on_the_base_that_is_asked_for() -> None:
    """An image that is on the machine already can be built on; nothing else is fetched. The recipe needs no bash."""
    assert DOCKERFILE[0] == ("ARG", "BASE=python:3.11-slim")
    assert {rest.split()[0] for word, rest in DOCKERFILE if word == "FROM"} == {"${BASE}"}
    assert not [rest for word, rest in DOCKERFILE if word == "ADD"]
    assert not (DEPLOY / "Dockerfile").read_text().startswith("# syntax")
    ran = subprocess.run(["sh", "-n", str(DEPLOY / "install.sh")], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_container_is_nobody_says_how_it_is_and_ends_gracefully() -> None:
    """As Kubernetes' runAsNonRoot asks: a number; SIGTERM goes to inbound itself, which no shell stands in front of."""
    said = dict(FINAL)

    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", said["USER"])
    assert said["USER"] == f"{USER}:{USER}", "the volumes of a pod belong to this group"
    assert said["STOPSIGNAL"] == "SIGTERM"
    command = said["HEALTHCHECK"].partition("CMD ")[2]
    assert json.loads(command) == ["/opt/inbound/bin/python", "/opt/inbound/healthcheck.py"]
    entry, arguments = json.loads(said["ENTRYPOINT"]), json.loads(said["CMD"])
    assert entry == ["/opt/inbound/bin/inbound"]
    assert parser().parse_args(arguments).config == Path("/etc/inbound/config/inbound.yaml")


def context() -> list[str]:
    """Return what .dockerignore lets into the build, at the top."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    return [line[1:] for line in lines if line.startswith("!")]


def test_the_build_sees_what_it_needs_and_no_more() -> None:
    """Everything that the wheel is made of, the locks and the recipe; neither .git nor what lies about."""
    seen = set(context())

    assert set(SOURCES) <= seen
    assert seen - set(SOURCES) == {"deploy", "requirements", "wheelhouse"}
    assert [name for name in seen - {"wheelhouse"} if not (ROOT / name).exists()] == []
    copied = [rest.split()[0] for word, rest in DOCKERFILE if word == "COPY" and not rest.startswith("--from")]
    assert copied == [".", "deploy/healthcheck.py"]


def test_the_extras_of_the_image_are_those_of_the_package() -> None:
    """One that is misspelt would be left out by pip with a warning that is easily missed."""
    import configparser

    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (given,) = [rest.partition("=")[2].split(",") for word, rest in DOCKERFILE if rest.startswith("EXTRAS=")]

    assert set(given) <= set(setup["options.extras_require"]) - {"dev", "spark", "embedded"}
    assert {"fast", "requests", "ledger", "tracing"} <= set(given)


def test_pins_are_the_locks_entries_with_their_hashes() -> None:
    """For the packages that are asked for, however they are spelt; markers stay."""
    assert locked.pins(SMALL_LOCK, ["pure_sasl", "UVloop", "inbound-kafka"]) == [
        "pure-sasl==0.6.2 --hash=sha256:cc",
        "uvloop==0.23.0 ; sys_platform != 'win32' --hash=sha256:dd",
    ]
    with pytest.raises(ValueError, match="not in the lock: requests; renew it with `make lock`"):
        locked.pins(SMALL_LOCK, ["crc32c", "requests"])


def test_versions_are_the_whole_lock_without_hashes() -> None:
    """pip refuses constraints with hashes."""
    assert locked.versions(SMALL_LOCK) == [
        "crc32c==2.9",
        "pure-sasl==0.6.2",
        "uvloop==0.23.0 ; sys_platform != 'win32'",
    ]
    versions = locked.versions(LOCK)
    assert len(versions) == len(re.findall(r"(?m)^[^ #\n][^ \n]*==", LOCK)) > 50
    assert not [line for line in versions if "--hash" in line]


def test_what_pip_reports_becomes_pins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command, as install.sh calls it."""
    lock, report = tmp_path / "a.lock", tmp_path / "report.json"
    lock.write_text(SMALL_LOCK)
    report.write_text(json.dumps({"install": [{"metadata": {"name": name}} for name in ("crc32c", "inbound_kafka")]}))

    assert locked.main(["pins", str(lock), str(report)]) == 0
    assert capsys.readouterr().out == "crc32c==2.9 --hash=sha256:aa --hash=sha256:bb\n"
    assert locked.main(["pins"]) == 2


# -- the health check ----------------------------------------------------------------------------------------------------


def check(url: str) -> tuple[int, str]:
    """Run the health check as the engine does; return its exit code and its output."""
    environ = {"PATH": os.environ["PATH"], "HEALTH_URL": url, "http_proxy": "http://127.0.0.1:9"}
    command = [sys.executable, "-S", str(DEPLOY / "healthcheck.py")]
    ran = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout.strip()


@pytest.mark.slow
def test_a_container_is_healthy_while_its_process_says_so(receiver: Receiver) -> None:
    """Else the engine shows what is wrong, without a traceback; a proxy of the environment is not asked."""
    url = f"{receiver.url}/healthz"
    receiver.status, receiver.answer_body = lambda number: (200, 500)[number], b"ok\n"

    assert check(url) == (0, "ok")
    receiver.answer_body = b"thread reader is dead\n"
    assert check(url) == (1, f"{url}: 500: thread reader is dead")
    assert [(request.method, request.target) for request in receiver.requests] == [("GET", "/healthz")] * 2
    code, said = check("http://127.0.0.1:1/healthz")  # where nothing listens
    assert (code, said.startswith("http://127.0.0.1:1/healthz: ")) == (1, True)


# -- the installation, as install.sh does it from a wheelhouse ------------------------------------------------------------

SASL_LOCK = "pure-sasl==0.6.2 \\\n    --hash=sha256:cc\n"


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
    (tmp_path / "requirements" / "dev.lock").write_text(SASL_LOCK)
    wheel(
        tmp_path / "wheelhouse", "inbound_kafka", "1.0",
        metadata="Provides-Extra: sasl\nRequires-Dist: pure-sasl; extra == 'sasl'\n",
        entry_points_txt="[console_scripts]\ninbound = inbound_kafka:main\n",
    )  # fmt: skip
    wheel(tmp_path / "wheelhouse", "pure_sasl", "0.6.2")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extras", "installed"),
    [
        ("sasl", ["inbound_kafka-1.0", "pure_sasl-0.6.2"]),
        pytest.param("", ["inbound_kafka-1.0"], marks=pytest.mark.thorough("`make test` installs with an extra")),
    ],
)
def test_as_many_extras_are_installed_as_are_asked_for(checkout: Path, extras: str, installed: list[str]) -> None:
    """None, too: that is what `--build-arg EXTRAS=` asks for."""
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(checkout)}
    command = ["sh", "deploy/install.sh", str(checkout / "made"), extras]
    ran = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=300)

    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["inbound_kafka 1.0"]), ran.stderr
    found = (checkout / "made").glob("lib/python*/site-packages/*.dist-info")
    assert sorted(path.stem for path in found if not path.stem.startswith(("pip-", "setuptools-"))) == installed

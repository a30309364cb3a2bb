"""`POST /reload` and `inbound reload`: what came of it, as text, as JSON, as an exit code; and who may ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from inbound.admin.listener import AdminServer
from inbound.cli.main import main
from inbound.cli.run.processes import together
from inbound.observe.status.status import ReloadOutcome
from tests.observe.status.made_status import ask, process

DIGEST = "0123456789ab"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def serve() -> Iterator[Callable[..., AdminServer]]:
    """Serve an admin port whose reloads come to an outcome; closed at the end."""
    servers: list[AdminServer] = []

    def make(outcome: ReloadOutcome | None, token: str | None = None) -> AdminServer:
        server = AdminServer(
            process, host="127.0.0.1", port=0, port_given=True, reload=lambda seconds: outcome,
            token=None if token is None else lambda: token,
        )  # fmt: skip
        server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("outcome", "code", "out", "err"),
    [
        (ReloadOutcome("unchanged", [], None, DIGEST), 0, "nothing has changed\n", ""),
        (
            ReloadOutcome("applied", ["channel a: edited (workers)", "channel b: added"], None, DIGEST),
            0, "applied\n  channel a: edited (workers)\n  channel b: added\n", "",
        ),
        (
            ReloadOutcome("applied", ["channel b: added"], "KafkaChannel x/y cannot be used", DIGEST),
            3, "applied\n  channel b: added\n", "error: KafkaChannel x/y cannot be used\n",
        ),
        (
            ReloadOutcome("refused", [], "f:1: no\nf:2: neither", DIGEST),
            2, "refused: it cannot be used, and no part of it is applied\n", "error: f:1: no\nerror: f:2: neither\n",
        ),
        (
            ReloadOutcome("rolled-back", ["channel b: added"], "channel b cannot be added: no file", DIGEST),
            1, "rolled back: it does not start, and the configuration before it runs again\n  channel b: added\n",
            "error: channel b cannot be added: no file\n",
        ),
    ],
)  # fmt: skip
def test_the_command_tells_what_came_of_it(
    serve: Callable[..., AdminServer], outcome: ReloadOutcome, code: int, out: str, err: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Scripts go by the exit code, people by the lines."""
    assert main(["reload", "--url", serve(outcome).url]) == code
    assert tuple(capsys.readouterr()) == (out, err)


def test_the_answer_as_json(serve: Callable[..., AdminServer], capsys: pytest.CaptureFixture[str]) -> None:
    """With the digest of what runs."""
    url = serve(ReloadOutcome("applied", ["admin: listen"], None, DIGEST)).url
    assert main(["reload", "--json", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "v": 1, "outcome": "applied", "steps": ["admin: listen"], "problem": None, "digest": DIGEST,
    }  # fmt: skip


def test_one_that_takes_too_long_goes_on(serve: Callable[..., AdminServer], capsys: pytest.CaptureFixture[str]) -> None:
    """The status says when it is done."""
    assert main(["reload", "--url", serve(None).url]) == 1
    assert "it goes on: see `reload` in /status" in capsys.readouterr().err


def test_an_unusable_configuration_is_reported_without_asking_a_process(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is in it; and the process refuses it without the command."""
    (folder / "inbound.yaml").write_text("chanels: {}\n")
    assert main(["reload"]) == 2
    err = capsys.readouterr().err
    assert "inbound.yaml:1: chanels: unknown key; did you mean channels?" in err
    assert "no process is asked" in err


@pytest.mark.parametrize(
    ("method", "headers", "code"),
    [
        ("GET", {}, HTTPStatus.METHOD_NOT_ALLOWED),
        ("POST", {}, HTTPStatus.UNAUTHORIZED),
        ("POST", {"Authorization": "Bearer wrong"}, HTTPStatus.UNAUTHORIZED),
        ("POST", {"Authorization": "Bearer right"}, HTTPStatus.OK),
    ],
)
def test_who_may_ask(serve: Callable[..., AdminServer], method: str, headers: dict[str, str], code: HTTPStatus) -> None:
    """As for any other operation."""
    url = serve(ReloadOutcome("unchanged"), token="right").url
    assert ask(url, "/reload", method, **headers).code == code


def test_of_several_processes_the_worst_outcome_counts_and_each_line_appears_once() -> None:
    """They have the same files, so mostly they say the same."""
    own = ReloadOutcome("applied", ["admin: listen"], None, DIGEST)
    same = ReloadOutcome("applied", ["admin: listen", "channel a: added"], None, "x")
    bad = ReloadOutcome("rolled-back", ["admin: listen", "channel a: added"], "no file", "y")
    assert together(own, [same, bad, bad]) == ReloadOutcome(
        "rolled-back", ["admin: listen", "channel a: added"], "no file", DIGEST
    )

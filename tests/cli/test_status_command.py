"""`inbound status` from its arguments to its output and exit code, against real admin ports."""

from __future__ import annotations

import argparse
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from inbound.admin.listener import AdminServer
from inbound.cli.inspect import status
from inbound.cli.shared import output
from inbound.errors import ConfigError
from inbound.observe.status.status import ProcessStatus
from tests.http_receiver import Receiver, receiver
from tests.observe.status.made_status import channel, process

__all__ = ["receiver"]  # the fixture

CONFIG = """
admin: {{listen: "{listen}"}}
channels:
  {channel}:
    topics: [orders]
    group: orders-svc
    processor: {{type: simple}}
"""
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a snapshot; gives back the URL."""
    with ExitStack() as open_now:

        def start(found: ProcessStatus | list[ProcessStatus]) -> str:
            server = AdminServer(lambda: found, host="127.0.0.1", port=0, port_given=True)
            server.start()
            open_now.callback(server.close)
            return server.url

        yield start


def run(*arguments: str) -> int:
    """Run the command as the command line does."""
    parser = argparse.ArgumentParser()
    status.STATUS_COMMAND.add_to(parser.add_subparsers())
    args = parser.parse_args(["status", *arguments])
    code: int = args.run(args)
    return code


def write(folder: Path, listen: str, channel_name: str = "orders") -> str:
    """Write a configuration; returns its path."""
    path = folder / "inbound.yaml"
    path.write_text(CONFIG.format(listen=listen, channel=channel_name))
    return str(path)


def test_the_address_comes_from_the_configuration(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the process's configuration no address is needed."""
    url = serve(process())

    code = run("-c", write(tmp_path, url.removeprefix("http://")))

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("inbound 0.1.0, pid 4711 on host, up ")
    assert lines[1:5] == [
        "ZooKeeper: member, session 0x1000ab of 10 s, certain for 6.2 s",
        "",
        "Channel orders: group orders-svc as host-1 (dynamic)",
        "2 members: host-1, host-2",
    ]
    assert [line.split()[:7] for line in lines[6:8]] == [
        ["orders", "0", "scheduled", "7", "1,500", "1,400", "600"],
        ["orders", "1", "scheduled", "7", "1,500", "1,400", "600"],
    ]
    assert lines[8:] == [
        "Total: 2 of 4 partitions (share 2), 1,234 records in 12 batches, 11 commits (1 waiting, 0 fenced), lag 1,200"
    ]


@pytest.mark.parametrize("everywhere", [True, False])
def test_an_address_need_not_be_a_url(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str], everywhere: bool
) -> None:
    """host:port is enough; a process that listens at 0.0.0.0 is asked at this machine."""
    address = serve(process()).removeprefix("http://")
    listen = f"0.0.0.0:{address.rpartition(':')[2]}"

    assert run(*(("-c", write(tmp_path, listen)) if everywhere else ("--url", address))) == 0
    assert capsys.readouterr().out.startswith("inbound 0.1.0, pid 4711")


def test_several_addresses_and_several_processes(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that the addresses stand for, in their order."""
    first, second = serve(process(pid=1)), serve([process(pid=2), process(pid=3)])

    code = run("--url", first, "--url", f"{second}/status")

    assert code == 0
    headers = [line.split(",")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("inbound ")]
    assert headers == [" pid 1 on host", " pid 2 on host", " pid 3 on host"]


def test_json_is_a_line_per_address(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs: what the admin port answered, unchanged."""
    one, two = process(pid=1), [process(pid=2)]

    code = run("--json", "--url", serve(one), "--url", serve(two))

    assert code == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"v": 1, **one.as_dict()},
        {"v": 1, "processes": [two[0].as_dict()]},
    ]


def test_who_does_not_answer_is_named_and_the_others_are_shown(
    serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, which address, why, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        gone = f"http://127.0.0.1:{once.getsockname()[1]}"

    code = run("--url", gone, "--url", serve(process()))

    out, err = capsys.readouterr()
    assert code == 1
    assert err == (
        f"error: {gone}: no answer: nothing listens there; is the process running? If so, each process logs its "
        "address when it starts (`admin: http://...`): give that with --url\n"
    )
    assert "inbound 0.1.0, pid 4711 on host" in out


@pytest.mark.parametrize("given", ["user:pw", "user:p@w", "pw"])
def test_a_password_in_an_address_is_hidden(capsys: pytest.CaptureFixture[str], given: str) -> None:
    """The admin port wants none; the rest of the address is asked, and named."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        gone = f"127.0.0.1:{once.getsockname()[1]}"

    code = run("--url", f"https://{given}@{gone}")

    err = capsys.readouterr().err
    assert (code, err.startswith(f"error: https://***@{gone}: no answer: nothing listens there"), "pw" in err) == (
        1,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("code", "body", "message"),
    [
        (200, b"hello", "what answers there is not inbound; each process logs"),
        (200, b"[]", "what answers there is not inbound; each process logs"),
        (200, b"\xff", "what answers there is not inbound; each process logs"),
        (200, b'{"status": "up"}', "what answers there is not inbound; each process logs"),
        (
            200,
            b'{"v": 1, "state": "up"}',
            "not the status of an inbound process: version: Field required; each process",
        ),
        (200, b'{"v": 1, "processes": 3}', "'int' object is not iterable; each process logs"),
        (200, b'{"v": 1, "processes": [3]}', "not the status of an inbound process: status: Input should be"),
        (200, b'{"v": 2}', "gives its status in format 2, this inbound reads format 1; use `inbound status` of the"),
        (404, b"nothing here\nat all", "answered 404 Not Found for /status: nothing here; each process logs"),
        (500, b"", "answered 500 Internal Server Error for /status: (nothing); each process logs"),
    ],
)
def test_an_answer_that_is_no_status(
    receiver: Receiver, capsys: pytest.CaptureFixture[str], code: int, body: bytes, message: str
) -> None:
    """Another program may listen there, or another version of inbound."""
    receiver.status, receiver.answer_body = lambda number: code, body

    assert run("--url", receiver.url) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {receiver.url}: {message}")
    assert err.count("\n") == 1


def test_another_process_at_the_default_port_is_noticed(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours found the port taken and went on to the next; another program's answers there."""
    url = serve(process(channels=[channel(name="invoices")]))

    code = run("-c", write(tmp_path, url.removeprefix("http://")))

    assert code == 0
    assert capsys.readouterr().err == (
        f"note: the process at {url} runs invoices, the configuration has orders; each process logs its address when "
        "it starts (`admin: http://...`): give that with --url\n"
    )


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        (None, "inbound.yaml: no such file; name the configuration with -c, or the address of the process with --url"),
        ("nowhere", "inbound.yaml:2: admin.listen: need host:port"),
        ("127.0.0.1:0", "admin.listen is 127.0.0.1:0, which is any free port; each process logs its address when it "
                        "starts (`admin: http://...`): give that with --url"),
    ],
)  # fmt: skip
def test_a_configuration_that_does_not_say_the_address(tmp_path: Path, listen: str | None, message: str) -> None:
    """There is none, it is refused with file and line, or only the log knows the port; each says the way out."""
    path = str(tmp_path / "inbound.yaml") if listen is None else write(tmp_path, listen)
    with pytest.raises(ConfigError) as error:
        run("-c", path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--url", "ftp://host:1"), "need http://HOST:PORT, got 'ftp://host:1'"),
        (("--url", "http://host:port"), "need http://HOST:PORT, got 'http://host:port'"),
        (("--url", "http://[::1"), "need http://HOST:PORT, got 'http://[::1'"),
        (("--url", "http://a b"), "need http://HOST:PORT, got 'http://a b'"),
        (("--url", "http://host/a\tb"), r"need http://HOST:PORT, got 'http://host/a\tb'"),
        (("--url", "ftp://user:pw@host"), "need http://HOST:PORT, got 'ftp://***@host'"),
        (("--url", "http://user:p/w@host"), "need http://HOST:PORT, got 'http://***@host'"),
        (("--url", "http://user:p w@host:1"), "need http://HOST:PORT, got 'http://***@host:1'"),
        (("--url", "http://:80"), "need http://HOST:PORT, got 'http://:80'"),
        (("--watch", "0"), "need seconds between 0.1 and 86400, got '0'"),
        (("--watch", "nan"), "need seconds between 0.1 and 86400, got 'nan'"),
        (("--watch", "soon"), "need seconds between 0.1 and 86400, got 'soon'"),
    ],
)
def test_bad_arguments(arguments: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and what is wanted."""
    with pytest.raises(SystemExit) as end:
        run(*arguments)

    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_watching_goes_on_until_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows, waits, and shows again, also while the process is unavailable."""
    steps: list[str] = []

    def show() -> int:
        steps.append("show")
        return 1

    def wait(seconds: float) -> None:
        steps.append("wait")
        if len(steps) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(output, "pause", wait)

    assert output.watch(show, 2.0, clear=True) == 0
    assert steps == ["show", "wait"] * 3


def test_ctrl_c_ends_watching_well(
    serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0: it is the way to end it."""

    def interrupted(seconds: float) -> None:
        assert seconds == 0.5
        raise KeyboardInterrupt

    url = serve(process())
    with monkeypatch.context() as patched:
        patched.setattr(output, "pause", interrupted)
        code = run("--url", url, "--watch", "0.5")

    assert code == 0
    assert capsys.readouterr().out.count("inbound 0.1.0") == 1

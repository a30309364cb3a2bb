"""`cluster up|down|status` where no server is needed: arguments, folders, what is left of a dead cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from inbound.cli.main import main
from inbound.cli.shared import files
from inbound.cli.tools import cluster
from inbound.embedded import EmbeddedCluster, detached
from inbound.embedded.locks import LockFile
from inbound.errors import EmbeddedClusterError

INFO = {
    "version": 1,
    "pid": 2**22 + 1,  # above Linux' largest pid
    "started": 1700000000.5,
    "brokers": [{"name": "kafka-0", "port": 15001, "pid": 12}, {"name": "kafka-1", "port": 15003, "pid": 13}],
    "zookeepers": [{"name": "zookeeper-0", "port": 15002, "pid": 14}],
}


def run(*arguments: str) -> int:
    """Run `inbound cluster ...` in this process and return its exit code."""
    return main(["cluster", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["up", "--brokers", "0"], "argument --brokers: need 1 server or more, got '0'"),
        (["up", "--zookeepers", "-1"], "argument --zookeepers: need 1 server or more, got '-1'"),
        (["up", "--brokers", "two"], "argument --brokers: need 1 server or more, got 'two'"),
        (["sideways"], "invalid choice: 'sideways'"),
        ([], "the following arguments are required: up|down|status|fetch"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the message names the argument and its possible values."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)

    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_before_the_start_there_is_no_directory(tmp_path: Path) -> None:
    """Asking for it says to start first; closing what was never started does nothing. There must be a server."""
    cluster = EmbeddedCluster(jars=tmp_path)

    with pytest.raises(EmbeddedClusterError, match="not started"):
        _ = cluster.directory
    cluster.close()
    with pytest.raises(EmbeddedClusterError, match="zookeepers must be at least 1, got 0"):
        EmbeddedCluster(jars=tmp_path, zookeepers=0)


def test_status_where_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, and the way to start one; the folder is not made."""
    assert run("status", "--dir", str(tmp_path / "none")) == 1

    assert "no cluster runs here; start one with `cluster up --detach`" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_a_cluster_whose_supervisor_died_is_stale_and_cleared_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file has the addresses that clients take. `down` signals no process; afterwards the folder reads as empty."""
    (tmp_path / "cluster.json").write_text(json.dumps(INFO))
    info = detached.read(tmp_path)
    assert info is not None
    assert (info.bootstrap_servers, info.zookeeper_hosts) == ("127.0.0.1:15001,127.0.0.1:15003", "127.0.0.1:15002")
    assert not detached.supervised(info)

    assert run("status", "--dir", str(tmp_path)) == 1
    assert f"stale: its supervisor (pid {INFO['pid']}) has died" in capsys.readouterr().out
    assert run("down", "--dir", str(tmp_path)) == 0
    assert "no detached cluster runs here" in capsys.readouterr().out
    assert not (tmp_path / "cluster.json").exists()


def test_a_cluster_in_the_foreground_is_not_ended_by_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another process than a supervisor holds the folder: both commands name the pid and leave it alone."""
    lock = LockFile(tmp_path / "cluster.lock")
    with lock:
        assert lock.acquire()

        assert run("down", "--dir", str(tmp_path)) == 1
        assert f"is in use by pid {os.getpid()}, which is no detached cluster" in capsys.readouterr().err
        assert run("status", "--dir", str(tmp_path)) == 1
        assert f"pid {os.getpid()} has a cluster here that is starting or not detached" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "cluster.json: cannot be read") for text in ("", "[]", "{}", '{"version": 1, "pid": "x"}')),
        (
            json.dumps({**INFO, "version": 2}),
            "format version 2, this inbound reads 1. Use the inbound that started",
        ),
    ],
)
def test_a_cluster_file_that_cannot_be_read_is_named(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and the file's path; nothing is guessed, nothing is killed."""
    (tmp_path / "cluster.json").write_text(text)

    assert run("status", "--dir", str(tmp_path)) == 1
    assert run("down", "--dir", str(tmp_path)) == 1

    assert capsys.readouterr().err.count(said) == 2
    assert (tmp_path / "cluster.json").exists()


def test_up_without_java_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, no traceback, exit code 1; in the foreground and detached. Before that, a warning of unwise options."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert run("up", "--dir", str(tmp_path / "c"), "--zookeepers", "2") == 1
    assert run("up", "--dir", str(tmp_path / "c"), "--detach") == 1

    said = capsys.readouterr().err
    assert said.count("Install a Java runtime") == 2
    assert said.count("2 ZooKeeper servers survive no more deaths than 1 would") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("cache", "state", "expected"),
    [
        (None, None, ("/home/ann/.cache/inbound/jars", "/home/ann/.local/state/inbound/cluster")),
        ("/var/c", "/var/s", ("/var/c/inbound/jars", "/var/s/inbound/cluster")),
        ("relative", "", ("/home/ann/.cache/inbound/jars", "/home/ann/.local/state/inbound/cluster")),
    ],
)
def test_folders_follow_the_xdg_variables(
    monkeypatch: pytest.MonkeyPatch, cache: str | None, state: str | None, expected: tuple[str, str]
) -> None:
    """Unset, empty and relative values give the standard places below the home folder."""
    monkeypatch.setenv("HOME", "/home/ann")
    for name, value in (("XDG_CACHE_HOME", cache), ("XDG_STATE_HOME", state)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)

    assert (str(files.jar_cache()), str(cluster.cluster_dir())) == expected

"""The command line of `publish`: what it refuses before it connects to anything, and its progress."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from inbound.cli import publish
from inbound.cli.progress import Progress
from inbound.errors import ConfigError


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    publish.add_parser(parser.add_subparsers())
    args = parser.parse_args(["publish", *arguments])
    code: int = args.run(args)
    return code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders"], "--file --generate is required"),
        (["orders", "--generate", "0"], "need a whole number of at least 1, got '0'"),
        (["orders", "--generate", "ten"], "need a whole number of at least 1, got 'ten'"),
        (["orders", "--generate", "1", "--file", "x"], "not allowed with"),
        (["orders", "--generate", "1", "--rate", "fast"], "need events a second such as 500/s, got 'fast'"),
        (["orders", "--generate", "1", "--rate", "-3/s"], "need events a second|expected one argument"),
        (["orders", "--generate", "1", "--rate", "nan"], "need events a second such as 500/s, got 'nan'"),
        (["orders", "--generate", "1", "--size", "1 mile"], "need a size such as 1MiB"),
        (["orders", "--generate", "1", "--partitions", "0"], "need a whole number of at least 1"),
        (["orders", "--generate", "1", "-c", "x.yaml", "--bootstrap-servers", "h:1"], "not allowed with"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, and what would be right."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)

    assert ended.value.code == 2
    message = capsys.readouterr().err.replace("\n", " ")
    assert any(part in message for part in said.split("|"))


def test_a_name_that_no_topic_can_have_is_refused() -> None:
    """Before anything is asked of a broker."""
    with pytest.raises(ConfigError, match="topic 'a/b': need a Kafka topic"):
        run("a/b", "--generate", "1", "--bootstrap-servers", "127.0.0.1:1")


def test_a_bad_file_is_refused_before_anything_is_connected(tmp_path: Path) -> None:
    """Port 1 is not even tried."""
    (tmp_path / "e.jsonl").write_text("{}\n")

    with pytest.raises(ConfigError, match=r"e\.jsonl:1: "):
        run("orders", "--file", str(tmp_path / "e.jsonl"), "--bootstrap-servers", "127.0.0.1:1")


def test_a_size_for_events_of_a_file_is_refused(tmp_path: Path) -> None:
    """It would silently mean nothing."""
    with pytest.raises(ConfigError, match="--size goes with --generate"):
        run("orders", "--file", "x", "--size", "1KiB", "--bootstrap-servers", "127.0.0.1:1")


def test_a_configuration_that_is_named_must_exist(tmp_path: Path) -> None:
    """-c is never passed over."""
    with pytest.raises(ConfigError, match="no such file"):
        run("orders", "--generate", "1", "-c", str(tmp_path / "inbound.yaml"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_a_log_is_a_few_plain_lines() -> None:
    """A quarter each, however often it is told."""
    out = io.StringIO()
    progress = Progress("publishing", 100, out)

    for done in range(101):
        progress.update(done)
    progress.close()

    assert out.getvalue().splitlines() == [f"publishing {n:3d} %  {n}/100" for n in (25, 50, 75, 100)]


def test_progress_on_a_terminal_redraws_one_line_not_too_often_and_leaves_none() -> None:
    """At most ten times a second, always at the end; lines that stay are put above it."""
    out = Terminal()
    times = iter([0.0, 0.05, 0.2])
    progress = Progress("counted", 4, out, now=lambda: next(times))

    progress.update(1, "a")
    progress.update(2, "b")
    progress.update(4, "c")
    progress.say("hello")
    progress.close()

    drawn = out.getvalue().split("\r\x1b[K")
    assert drawn == [
        "",
        "[######..................] counted  25 %  1/4  a",
        "[########################] counted 100 %  4/4  c",
        "hello\n",
        "[########################] counted 100 %  4/4  c",
        "",
    ]

"""The command line of `publish`: options that are refused before it connects, and its progress."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from inbound.cli.shared.output import ProgressLine
from inbound.cli.tools import publish
from inbound.errors import ConfigError


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    publish.COMMAND.add_to(parser.add_subparsers())
    args = parser.parse_args(["publish", *arguments])
    code: int = args.run(args)
    return code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders", "-", "--file", "x"], "not allowed with"),
        (["orders", "x"], "invalid choice: 'x'"),
        (["orders", "--generate", "0"], "need a whole number of at least 1, got '0'"),
        (["orders", "--generate", "ten"], "need a whole number of at least 1, got 'ten'"),
        (["orders", "--generate", "1", "--file", "x"], "not allowed with"),
        (["orders", "--generate", "1", "--rate", "fast"], "need events a second such as 500/s, got 'fast'"),
        (["orders", "--generate", "1", "--rate", "-3/s"], "need events a second|expected one argument"),
        (["orders", "--generate", "1", "--rate", "nan"], "need events a second such as 500/s, got 'nan'"),
        (["orders", "--generate", "1", "--size", "1 mile"], "need a size such as 1MiB"),
        (["orders", "--generate", "1", "--partitions", "0"], "need a whole number of at least 1"),
        (["orders", "--generate", "1", "--to", "http://h:1", "--bootstrap-servers", "h:1"], "not allowed with"),
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


SERVERS = ("--bootstrap-servers", "127.0.0.1:1")  # nothing listens there: it is not even tried


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a/b", "--generate", "1", *SERVERS], "topic 'a/b': need a Kafka topic"),
        (["orders", "--file", "e.jsonl", *SERVERS], r"e\.jsonl:1: "),
        (["orders", "--generate", "1", "-c", "nowhere.yaml"], "no such file"),
        (["orders", "--generate", "3", "--plain", *SERVERS], "--plain goes with lines"),
        (["orders", "--file", "x", "--plain", "--structured", *SERVERS], "--structured goes with CloudEvents"),
        (["orders", "-", "--size", "1KiB", *SERVERS], "--size goes with --generate"),
        (["orders", "--file", "x", "--size", "1KiB", *SERVERS], "--size goes with --generate"),
        (["orders", "--generate", "3", "-c", "x.yaml", *SERVERS], "-c does not go with --bootstrap-servers"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_connected(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic's name, a bad line of a file, a missing configuration, and options that would mean nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=said):
        run(*arguments)


def test_on_a_terminal_it_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than wait for input that the user does not know to type."""
    monkeypatch.setattr("sys.stdin", Terminal())

    with pytest.raises(ConfigError, match="nothing to publish: give --file FILE, --generate N, or - and type"):
        run("orders", "--bootstrap-servers", "127.0.0.1:1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_in_a_log_is_a_few_plain_lines() -> None:
    """A quarter each, however often it is updated."""
    out = io.StringIO()
    progress = ProgressLine("publishing", 100, out)

    for done in range(101):
        progress.update(done)
    progress.close()

    assert out.getvalue().splitlines() == [f"publishing {n:3d} %  {n}/100" for n in (25, 50, 75, 100)]


def test_progress_without_a_total_counts_on_a_terminal_and_is_silent_in_a_log() -> None:
    """The size of a pipe is unknown."""
    terminal, log = Terminal(), io.StringIO()
    for out in (terminal, log):
        times = iter([0.0, 0.05, 0.2])
        progress = ProgressLine("publishing to orders", None, out, now=lambda times=times: next(times))  # type: ignore[misc]
        for done in (1, 2, 3000):
            progress.update(done)
        progress.close()

    assert terminal.getvalue().split("\r\x1b[K") == ["", "publishing to orders  1", "publishing to orders  3,000", ""]
    assert log.getvalue() == ""


def test_progress_on_a_terminal_redraws_one_line_not_too_often_and_leaves_none() -> None:
    """At most ten times a second, always at the end; lines that stay are put above it."""
    out = Terminal()
    times = iter([0.0, 0.05, 0.2])
    progress = ProgressLine("counted", 4, out, now=lambda: next(times))

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

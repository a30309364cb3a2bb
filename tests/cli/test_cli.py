"""The command line: exit codes, and messages that name the thing and the way out, without a traceback."""

from __future__ import annotations

import argparse
import logging
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.cli.main import main, parser

GOOD = """\
channels:
  orders:
    topics: [orders]
    group: orders-svc
    processor: {type: "PLUGIN"}
"""


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plugins of one test are not those of the next; logging set-up is undone."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    handlers, level = list(logging.getLogger().handlers), logging.getLogger().level
    yield
    for name in set(sys.modules) - before:
        if name.startswith("my_"):
            del sys.modules[name]
    logging.getLogger().handlers[:], logging.getLogger().level = handlers, level


def check(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run `inbound check` on a configuration; return exit code and output, without the folder's name."""
    config = tmp_path / "inbound.yaml"
    config.write_text(text)
    code = main(["check", "-c", str(config)])
    out = capsys.readouterr()
    return code, (out.err or out.out).replace(f"{tmp_path}/", "")


def test_a_good_configuration_is_reported_as_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, and what each channel will do."""
    text = GOOD.replace('"PLUGIN"', "simple, options: {sinks: [log]}")
    assert check(tmp_path, text, capsys) == (
        0,
        "channel orders: group orders-svc reads orders with simple (inbound.processors.simple:SimpleProcessor, part of "
        "inbound), coordinator dynamic\n"
        "inbound.yaml: good\n",
    )


PLUGINS = [
    (
        "my_missing:Orders",
        None,
        "inbound.yaml:5: channels.orders.processor.type: no module 'my_missing'; put my_missing.py beside the configuration "
        "file, or install it",
    ),
    (
        "my_broken:Orders",
        "import nowhere_to_be_found\n",
        "inbound.yaml:5: channels.orders.processor.type: my_broken needs the module 'nowhere_to_be_found', which is not "
        "installed (my_broken.py:1)",
    ),
    (
        "my_failing:Orders",
        "x = 1\ny = x / 0\n",
        "inbound.yaml:5: channels.orders.processor.type: my_failing failed when imported: ZeroDivisionError: division by zero "
        "(my_failing.py:2)",
    ),
    (
        "my_typo:Orders",
        "x = 1\nclass Orders:\n    def on next_batch(self, batch): ...\n",
        "inbound.yaml:5: channels.orders.processor.type: my_typo failed when imported: SyntaxError: expected '(' "
        "(my_typo.py:3)",
    ),
    (
        "my_evaluated:Orders",
        "x = 1\neval('1 +')\n",
        "inbound.yaml:5: channels.orders.processor.type: my_evaluated failed when imported: SyntaxError: invalid syntax "
        "(<string>, line 1) (my_evaluated.py:2)",
    ),
    (
        "my_other:Orders",
        "class Order: ...\n",
        "inbound.yaml:5: channels.orders.processor.type: my_other has no 'Orders'; its path is my_other.py",
    ),
    (
        "my_plain:Orders",
        "class Orders: ...\n",
        "inbound.yaml:5: channels.orders.processor.type: my_plain:Orders is <class 'my_plain.Orders'>, not a "
        "BatchEventProcessor; derive it from inbound.BatchEventProcessor",
    ),
    (
        "my_empty:Orders",
        "from inbound import BatchEventProcessor\nclass Orders(BatchEventProcessor): ...\n",
        "inbound.yaml:5: channels.orders.processor.type: my_empty:Orders lacks on_next_batch; write it: every batch is "
        "delivered to it",
    ),
    (
        "my_mixed:Orders",
        "from inbound import BatchEventProcessor\nclass Orders(BatchEventProcessor):\n    def on_next_batch(self, batch): ...\n"
        "    async def on_idle(self, partition): ...\n",
        "inbound.yaml:5: channels.orders.processor.type: my_mixed:Orders: on_idle is async, on_next_batch is not; make "
        "on_next_batch async too, or none of them",
    ),
    (
        "unknown",
        None,
        "inbound.yaml:5: channels.orders.processor.type: no processor is called 'unknown'; use one of dispatch, simple, or "
        "module:Class",
    ),
]


@pytest.mark.parametrize(("plugin", "source", "message"), PLUGINS, ids=[row[0] for row in PLUGINS])
def test_a_plugin_that_cannot_be_used_is_refused(
    plugin: str, source: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with the line of the configuration, and where in the plugin it went wrong."""
    if source is not None:
        (tmp_path / f"{plugin.split(':')[0]}.py").write_text(source)
    code, said = check(tmp_path, GOOD.replace("PLUGIN", plugin), capsys)
    assert (code, said) == (2, f"error: {message}\n")


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One run is enough to correct a file."""
    text = (
        "channels:\n  orders:\n    topcs: [orders]\n    group: 7/8\n    workers: many\n    processor: {type: simple}\n"
    )
    code, said = check(tmp_path, text, capsys)
    lines = [line.split(": ")[0] for line in said.removeprefix("error: ").splitlines()]
    assert (code, {*lines} >= {"inbound.yaml:3", "inbound.yaml:4", "inbound.yaml:5"}) == (2, True), said


def commands(of: argparse.ArgumentParser, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield every command, and the commands of commands."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield (*path, name)
                yield from commands(below, *path, name)


@pytest.mark.parametrize("command", [(), *commands(parser())], ids=" ".join)
def test_every_command_has_help_that_ends_with_examples_that_work(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each example is one of that command (of any, for inbound itself), with arguments that it takes."""
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    said = capsys.readouterr().out

    assert (caught.value.code, said.startswith("usage: inbound")) == (0, True)
    examples = [line.split("|")[-1].split(">")[0].strip() for line in said.partition("\nexamples:\n")[2].splitlines()]
    assert examples
    for example in examples:
        program, *arguments = shlex.split(example)
        assert (program, tuple(arguments[: len(command)])) == ("inbound", command)
        parser().parse_args(arguments)


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("cluster", "up|down|status|fetch"),
        ("dead-letters", "list|show|redrive|purge"),
        ("new", "processor"),
        ("offsets", "show|export|reset|import|delete"),
        ("spark", "validate|replay|archive|report"),
    ],
)
def test_a_group_without_its_command_names_them(group: str, names: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In the usage and in the error."""
    with pytest.raises(SystemExit) as caught:
        main([group])

    assert (caught.value.code, capsys.readouterr().err) == (
        2,
        f"usage: inbound {group} [-h] {names} ...\ninbound {group}: error: the following arguments are required: {names}\n",
    )


@pytest.mark.parametrize("number", ["0", "257", "many", "1" * 5000])
def test_no_more_processes_than_make_sense(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip of the pen must not start thousands."""
    with pytest.raises(SystemExit) as caught:
        main(["run", "--processes", number])
    assert (caught.value.code, f"need 1 to 256 processes, got '{number[:20]}" in capsys.readouterr().err) == (2, True)


def test_inbound_alone_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """With the list of commands; to a script it is an error all the same."""
    code = main([])
    assert (code, "new          write a processor to start from" in capsys.readouterr().err) == (2, True)


@pytest.mark.slow  # a process of its own
def test_who_reads_the_output_may_have_seen_enough() -> None:
    """As in `inbound schema | head -1`: no traceback, and the exit code of a broken pipe."""
    command = [sys.executable, "-m", "inbound", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before the first byte
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")

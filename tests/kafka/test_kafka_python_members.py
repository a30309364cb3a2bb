"""The table of kafka-python's private members: as the code uses them, and a release that lacks one is refused."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.net.transport import KafkaTCPTransport

from inbound.errors import ConfigError
from inbound.kafka.clients.choice import check_installed
from inbound.kafka.python.private_members import MEMBERS, NEWEST, OLDEST, check
from scripts.rooms import ROOT, modules

IMPORTS_KAFKA = re.compile(r"^ *(?:import|from) kafka\b", re.MULTILINE)
#: Public in spite of the underscore (a named tuple's), and constants of confluent_kafka beside code for kafka-python.
NOT_PRIVATE = {
    "_fields", "_FATAL", "_QUEUE_FULL", "_INVALID_DIFFERENT_RECORD", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION",
}  # fmt: skip


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    """No check has run in this process, before and after."""
    check.cache_clear()
    yield
    check.cache_clear()


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NOT_PRIVATE


def used_in(source: str) -> set[str]:
    """Return the private members that a module uses of objects of others, and of what its classes inherit from kafka-python.

    Of `self` they are inherited where the module's own classes neither assign nor define them.
    """
    if not IMPORTS_KAFKA.search(source):
        return set()
    tree = ast.parse(source)
    of_others, of_self, ours = set[str](), set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            by_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            (of_self if by_self else of_others).add(node.attr)
            if by_self and isinstance(node.ctx, ast.Store):
                ours.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            ours.add(node.name)
    return of_others | (of_self - ours)


def test_the_table_lists_what_the_code_uses_and_nothing_else() -> None:
    """In every module that imports kafka-python."""
    used = set[str]().union(*(used_in(path.read_text()) for _, path in modules().items()))

    assert used | OVERRIDDEN == {member.name for member in MEMBERS}


#: Used by replacing a method alone, without a call of the original.
OVERRIDDEN = {"_maybe_uncompress"}


@pytest.mark.parametrize(
    ("line", "found"),
    [("x._new", {"_new"}), ("x._new = 1", {"_new"}), ("self._new", {"_new"}), ("self._new = 1", set()), ("x._fields", set())],
)  # fmt: skip
def test_a_use_is_found(line: str, found: set[str]) -> None:
    """Read or written; what a class of ours assigns is its own."""
    assert used_in(f"import kafka\n{line}\n") == found


def test_the_release_that_is_installed_is_taken() -> None:
    """The locked one."""
    check_installed("kafka-python")


def test_a_release_that_lacks_members_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods, and attributes that only instances have; the message says what lacks, and what to do."""
    monkeypatch.delattr(KafkaTCPTransport, "_sock_recv")
    monkeypatch.setattr(kafka, "KafkaProducer", type("KafkaProducer", (), {}))
    monkeypatch.setattr(kafka, "__version__", "9.9.9")

    with pytest.raises(ConfigError) as refused:
        check_installed("kafka-python")

    assert str(refused.value) == (
        "kafka-python 9.9.9 lacks KafkaProducer._sender, KafkaTCPTransport._sock_recv, which inbound needs; install a release "
        "that was checked: pip install 'kafka-python>=3.0.9,<=3.0.12', or set reader.client: confluent-kafka"
    )


def test_a_class_that_is_gone_lacks_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved to another module, say."""
    monkeypatch.delattr("kafka.consumer.fetcher.Fetcher")

    with pytest.raises(
        ConfigError, match=r"lacks Fetcher\._send_list_offsets_request, Fetcher\._cached_log_truncation"
    ):
        check()


def test_another_client_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the message advises."""
    monkeypatch.delattr(Fetcher, "_send_list_offsets_request")

    check_installed("confluent-kafka")


def test_the_table_begins_with_the_oldest_release_that_may_be_installed() -> None:
    """And ends with the locked one."""
    asked = Path(ROOT, "setup.cfg").read_text().split()
    locked = Path(ROOT, "requirements/dev.lock").read_text()

    assert (f"kafka-python>={OLDEST}" in asked, f"kafka-python=={NEWEST} " in locked) == (True, True)


@pytest.mark.parametrize(
    ("file", "source", "message"),
    [
        ("kafka/__init__.py", "__version__ = '2.0.2'", "kafka-python 2.0.2 lacks "),
        ("kafka.py", "class Orders: ...", "kafka.py, and not kafka-python: give that file another name"),
        (
            "sitecustomize.py",
            "import sys; sys.modules['kafka'] = None",
            "kafka-python is not installed; install it: pip ",
        ),
    ],
    ids=["old", "shadowed", "missing"],
)
def test_a_kafka_that_cannot_be_imported_is_reported_in_one_line(
    tmp_path: Path, file: str, source: str, message: str
) -> None:
    """It was a traceback that ended with `No module named 'kafka.net'`."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(source)
    ended = subprocess.run(
        [sys.executable, "-m", "inbound", "check"], capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "PYTHONSAFEPATH": "1"},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith("error: ")
    assert message in ended.stderr

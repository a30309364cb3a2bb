"""Which Java is good enough, and what people are told when theirs is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.embedded.java import check_java, java_major
from inbound.errors import EmbeddedClusterError


def fake_java(folder: Path, said: str, code: int = 0) -> str:
    """Write a program that answers `-version` on standard error, as Java does."""
    path = folder / "java"
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("sh: java: not found", None),
        ("", None),
    ],
)
def test_the_major_version_is_read_from_what_java_says(said: str, major: int | None) -> None:
    """Old (1.8) and new (17) numbering, early access, and a line in front are all understood."""
    assert java_major(said) == major


def test_a_new_enough_java_is_taken(tmp_path: Path) -> None:
    """Java 17 is enough; its full path comes back."""
    java = fake_java(tmp_path, 'openjdk version "17.0.15"')

    assert check_java(java) == java


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ('openjdk version "11.0.2"', 0, "is version 11, but Kafka needs 17"),
        ("no such thing", 0, "named no version"),
        ('openjdk version "17.0.15"', 1, "ended with 1"),
    ],
)
def test_a_useless_java_is_named_with_the_way_to_a_better_one(tmp_path: Path, said: str, code: int, words: str) -> None:
    """Too old, silent or broken: the message says what was found, where, and how to get a good one."""
    java = fake_java(tmp_path, said, code)

    with pytest.raises(EmbeddedClusterError) as caught:
        check_java(java)

    message = str(caught.value)
    assert words in message
    assert java in message
    assert "Install a Java runtime" in message


def test_no_java_at_all_is_said(tmp_path: Path) -> None:
    """A machine without Java gets the way to one."""
    with pytest.raises(EmbeddedClusterError, match=r"no program .* was found\. Install a Java runtime"):
        check_java(str(tmp_path / "java"))

"""Fetching the servers' jars: what Ivy is asked for, and that only a complete fetch counts."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from inbound.embedded.jars import KAFKA, ZOOKEEPER, fetch_jars, find_ivy
from inbound.errors import EmbeddedClusterError

#: A program that answers as Java, and as Ivy retrieves: the last argument names where the jars go.
FAKE_JAVA = """\
#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi
echo "$@" >> "{folder}/calls"
for last; do :; done
mkdir -p "$(dirname "$last")"
echo jar > "$(dirname "$last")/server-1.0.jar"
{then}
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a PySpark that has an Ivy, first on the import path."""
    jars = tmp_path / "site" / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars.parent / "__init__.py").write_text("raise AssertionError('PySpark must not be imported')\n")
    (jars / "ivy-2.5.3.jar").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    return tmp_path


def java(machine: Path, then: str = "exit 0") -> str:
    path = machine / "java"
    path.write_text(FAKE_JAVA.format(folder=machine, then=then))
    path.chmod(0o755)
    return str(path)


def calls(machine: Path) -> int:
    return len((machine / "calls").read_text().splitlines())


def test_the_first_fetch_fills_the_cache_and_the_second_asks_nobody(machine: Path) -> None:
    """Both bundles appear under their final names; the next call runs no Ivy."""
    cache = machine / "cache"

    first = fetch_jars(cache, java=java(machine))
    after_first = calls(machine)
    second = fetch_jars(cache, java=java(machine))

    assert (first.kafka, first.zookeeper) == (cache / "kafka_2.13-4.2.0", cache / "zookeeper-3.9.6")
    assert [jar.name for jar in first.kafka.iterdir()] == ["server-1.0.jar"]
    assert second == first
    assert (after_first, calls(machine)) == (2, 2)


def test_a_failed_fetch_leaves_nothing_that_looks_complete(machine: Path) -> None:
    """Ivy fails with some jars there: the error has its reason, no folder appears, and the next attempt succeeds."""
    cache = machine / "cache"
    broken = java(machine, then="echo 'module not found: org.apache.kafka'; exit 1")

    with pytest.raises(EmbeddedClusterError, match=r"kafka_2\.13-4\.2\.0: Ivy ended with 1 .*module not found: org"):
        fetch_jars(cache, java=broken)
    assert [path.name for path in cache.iterdir()] == ["kafka_2.13-4.2.0.lock"]

    assert fetch_jars(cache, java=java(machine)).kafka.is_dir()


def test_what_a_killed_fetch_left_is_cleared_away(machine: Path) -> None:
    """The half-filled folder of a process that was killed is removed, not used."""
    cache = machine / "cache"
    leftover = cache / ".kafka_2.13-4.2.0.abc123" / "jars"
    leftover.mkdir(parents=True)
    (leftover / "half.jar").touch()

    fetched = fetch_jars(cache, java=java(machine))

    assert not leftover.exists()
    assert [jar.name for jar in fetched.kafka.iterdir()] == ["server-1.0.jar"]


def test_without_pyspark_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """No PySpark, no Ivy: the extra to install is named."""
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(EmbeddedClusterError, match=r"pip install 'inbound-kafka\[embedded\]'"):
        find_ivy()


def test_ivy_is_found_without_importing_pyspark(machine: Path) -> None:
    """PySpark's package is only looked up: importing it takes a second."""
    assert find_ivy() == machine / "site" / "pyspark" / "jars" / "ivy-2.5.3.jar"


@pytest.mark.parametrize("bundle", [KAFKA, ZOOKEEPER])
def test_ivy_is_asked_for_runtime_jars_of_fixed_versions_only(bundle: object) -> None:
    """Every dependency has a version and takes the default configuration, without sources or optional extras."""
    assert isinstance(bundle, type(KAFKA))
    dependencies = ET.fromstring(bundle.ivy_file()).findall("dependencies/dependency")

    assert [(one.get("org"), one.get("name"), one.get("rev")) for one in dependencies] == list(bundle.modules)
    assert {one.get("conf") for one in dependencies} == {"default->default"}

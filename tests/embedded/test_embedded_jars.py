"""Java and the servers' jars: which Java is good enough, what Ivy is asked for, and that only a complete fetch counts."""

from __future__ import annotations

import hashlib
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from inbound.embedded.jars import (
    KAFKA,
    ZOOKEEPER,
    check_java,
    connector,
    digests_of,
    fetch,
    fetch_jars,
    find_ivy,
    java_major,
)
from inbound.errors import EmbeddedClusterError
from scripts.rooms import ROOT
from tests.embedded.fake_java import fake_java
from tests.embedded.more_jars import KAFKA_TOOLS, ZOOKEEPER_TLS

#: As Ivy retrieves: the last argument names where the jars go.
RETRIEVE = """\
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
    digest = hashlib.sha256(b"jar\n").hexdigest()
    listed = tmp_path / "jars.sha256"
    listed.write_text("".join(f"{digest}  {bundle.name}/server-1.0.jar\n" for bundle in (KAFKA, ZOOKEEPER)))
    monkeypatch.setattr("inbound.embedded.jars.LISTED", listed)
    return tmp_path


def java(machine: Path, then: str = "exit 0") -> str:
    return fake_java(machine, then=RETRIEVE.format(folder=machine, then=then))


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


def test_a_jar_that_is_another_is_not_run(machine: Path) -> None:
    """A false repository cannot give us one: nothing gets its final name, and the message names the jar."""
    cache = machine / "cache"
    other = java(machine, then='echo other > "$(dirname "$last")/server-1.0.jar"')

    with pytest.raises(
        EmbeddedClusterError, match=r"kafka_2\.13-4\.2\.0: .*server-1\.0\.jar has the SHA-256 .*Delete the folder"
    ):
        fetch_jars(cache, java=other)

    assert [path.name for path in cache.iterdir()] == ["kafka_2.13-4.2.0.lock"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda jars: (jars / "server-1.0.jar").write_text("raj\n"), "server-1.0.jar has the SHA-256"),
        (lambda jars: (jars / "server-1.0.jar").unlink(), "server-1.0.jar is missing"),
        (lambda jars: (jars / "further.jar").touch(), "further.jar is none of its jars"),
    ],
)
def test_jars_that_change_in_the_cache_are_not_run(machine: Path, change: Callable[[Path], object], words: str) -> None:
    """Also after they were found good, by an earlier release too, which left no note of it."""
    cache = machine / "cache"
    kafka = fetch_jars(cache, java=java(machine)).kafka
    change(kafka)

    with pytest.raises(EmbeddedClusterError, match=words.replace(".", r"\.")):
        fetch_jars(cache, java=java(machine))


def test_jars_of_a_version_without_digests_are_taken_with_a_note(machine: Path) -> None:
    """Such as those of another Spark's connector."""
    said: list[str] = []

    fetch(machine / "cache", connector("4.9.9"), java=java(machine), progress=said.append)

    assert (
        "spark-sql-kafka-0-10_2.13-4.9.9: no digests of this version are known; its jars are taken as they came" in said
    )


def test_every_bundle_that_is_fetched_has_digests() -> None:
    """Also the connector of the Spark that is locked; each jar that a bundle names is among them."""
    locked = re.search(r"(?m)^pyspark==(\S+)", (ROOT / "requirements" / "dev.lock").read_text())
    assert locked is not None
    bundles = (KAFKA, KAFKA_TOOLS, ZOOKEEPER, ZOOKEEPER_TLS, connector(locked[1]))

    missing = [
        (bundle.name, module)
        for bundle in bundles
        for _, module, revision in bundle.modules
        if f"{module}-{revision}.jar" not in digests_of(bundle.name)
    ]
    assert missing == []
    assert all(
        re.fullmatch("[0-9a-f]{64}", digest) for bundle in bundles for digest in digests_of(bundle.name).values()
    )


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


# -- Java ------------------------------------------------------------------------------------------------------------


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


def test_missing_java_is_an_error(tmp_path: Path) -> None:
    """A machine without Java gets the way to one; Java 17 is enough, and its full path comes back."""
    with pytest.raises(EmbeddedClusterError, match=r"no program .* was found\. Install a Java runtime"):
        check_java(str(tmp_path / "java"))
    java = fake_java(tmp_path, 'openjdk version "17.0.15"')
    assert check_java(java) == java

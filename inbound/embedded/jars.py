"""Ivy fetches the servers' jars once; digests verify them.

`jars.sha256` lists the SHA-256 of each jar, as `sha256sum --check` reads it in the cache folder. Maven's own checksums come
from the server that the jars come from; these come with inbound.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from inbound.embedded.locks import LockFile
from inbound.errors import EmbeddedClusterError

KAFKA_VERSION = "4.2.0"
ZOOKEEPER_VERSION = "3.9.6"

Progress = Callable[[str], None]
#: How long another process may take to fetch the same jars before we give up waiting for it, in seconds.
_LOCK_TIMEOUT = 900.0
#: Ivy gives up on a dead server; this only bounds a transfer that never ends. Seconds.
_FETCH_TIMEOUT = 840.0


def silent(message: str) -> None:
    """Ignore a progress message."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """One server's jars: a cache folder's name, and Ivy's request."""

    name: str
    #: (organisation, module, revision) of each dependency.
    modules: tuple[tuple[str, str, str], ...]
    #: Whether Ivy follows the modules' own dependencies.
    transitive: bool
    #: (organisation, module) of each exclusion; `*` is every module.
    without: tuple[tuple[str, str], ...] = ()
    #: Which of the files of each module is wanted, as Maven has it; empty: the plain one.
    classifier: str = ""

    def ivy_file(self) -> str:
        """Return the text of the ivy.xml that asks for these modules."""
        # Without conf="default->default" Ivy brings sources, javadoc and every optional dependency as well.
        lines = "".join(
            f'    <dependency org="{org}" name="{module}" rev="{revision}" conf="default->default"{self._file(module)}>\n'
            for org, module, revision in self.modules
        )
        lines += "".join(f'    <exclude org="{org}" module="{module}"/>\n' for org, module in self.without)
        return (
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
            f'  <info organisation="inbound" module="{self.name}"/>\n'
            '  <configurations><conf name="default"/></configurations>\n'
            f"  <dependencies>\n{lines}  </dependencies>\n"
            "</ivy-module>\n"
        )

    def _file(self, module: str) -> str:
        """Return how a dependency's tag ends."""
        if not self.classifier:
            return "/"
        return f'><artifact name="{module}" type="jar" ext="jar" m:classifier="{self.classifier}"/></dependency'


#: slf4j-simple is what makes a server's log appear at all: Kafka's dependencies name no logger.
KAFKA = Bundle(
    f"kafka_2.13-{KAFKA_VERSION}",
    (("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), ("org.slf4j", "slf4j-simple", "1.7.36")),
    transitive=True,
)
#: Named one by one: ZooKeeper's own list leaves out metrics-core and snappy, which the server needs, brings 5 MB of
#: netty, which it does not, and reading it needs a parent description that not every mirror of 3.9.6 has.
ZOOKEEPER = Bundle(
    f"zookeeper-{ZOOKEEPER_VERSION}",
    (
        ("org.apache.zookeeper", "zookeeper", ZOOKEEPER_VERSION),
        ("org.apache.zookeeper", "zookeeper-jute", ZOOKEEPER_VERSION),
        ("org.apache.yetus", "audience-annotations", "0.12.0"),
        ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
        ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
        ("commons-io", "commons-io", "2.17.0"),
        ("org.slf4j", "slf4j-api", "2.0.13"),
        ("org.slf4j", "slf4j-simple", "2.0.13"),
    ),
    transitive=False,
)
_SETTINGS_WITHOUT_POMS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def connector(spark_version: str) -> Bundle:
    """Return the bundle of Spark's Kafka connector, without Spark's own jars."""
    modules = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
    return Bundle(
        f"spark-sql-kafka-0-10_2.13-{spark_version}",
        tuple(("org.apache.spark", module, spark_version) for module in modules),
        transitive=True,
        without=(
            ("org.apache.hadoop", "*"), ("org.apache.spark", "spark-tags_2.13"), ("org.scala-lang", "*"),
            ("org.scala-lang.modules", "*"), ("org.lz4", "*"), ("org.xerial.snappy", "*"), ("org.slf4j", "*"),
            ("com.google.code.findbugs", "*"),
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Jars:
    """The folders of the servers' jars."""

    kafka: Path
    zookeeper: Path


def fetch_jars(cache: Path, *, java: str = "java", progress: Progress = silent) -> Jars:
    """Return the jar folders in `cache`, fetching what is missing.

    The first fetch brings 48 MB in about 40 s. A folder appears under its final name once it is complete. Of several processes
    one fetches, and the others wait. Raises EmbeddedClusterError: PySpark or Java is missing, the fetch failed, or a jar
    differs from `jars.sha256`.
    """
    return Jars(*(fetch(cache, bundle, java=java, progress=progress) for bundle in (KAFKA, ZOOKEEPER)))


def fetch_connector(
    cache: Path, spark_version: str, *, java: str = "java", progress: Progress = silent
) -> tuple[Path, ...]:
    """Return Spark's connector jars (6 MB), fetched as by `fetch_jars`."""
    return tuple(sorted(fetch(cache, connector(spark_version), java=java, progress=progress).glob("*.jar")))


def fetch(cache: Path, bundle: Bundle, *, java: str = "java", progress: Progress = silent) -> Path:
    """Return a bundle's folder in `cache`, fetched as by `fetch_jars`."""
    target = cache / bundle.name
    if target.is_dir():
        check_once(target, bundle.name)
        return target
    java = check_java(java)
    ivy = find_ivy()
    with LockFile(cache / f"{bundle.name}.lock") as lock:
        if not lock.acquire():
            progress(f"{bundle.name}: another process is fetching the jars, waiting for it")
            if not lock.acquire(_LOCK_TIMEOUT):
                raise EmbeddedClusterError(
                    f"{bundle.name}: another process has held {lock.path} for {_LOCK_TIMEOUT:.0f} s. "
                    "End it, then try again."
                )
        if not target.is_dir():  # the one we waited for has fetched it
            # Remains of an interrupted fetch; no other process can be in here, we hold the lock.
            for leftover in cache.glob(f".{bundle.name}.*"):
                shutil.rmtree(leftover)
            part = Path(tempfile.mkdtemp(prefix=f".{bundle.name}.", dir=cache))
            try:
                _retrieve(java, ivy, cache, bundle, part, progress)
                check(part / "jars", bundle.name)
                (part / "jars").rename(target)
            finally:
                shutil.rmtree(part)
    check_once(target, bundle.name)
    return target


def find_ivy() -> Path:
    """Return PySpark's own Ivy jar, without importing PySpark (which takes a second).

    Raises EmbeddedClusterError: PySpark is not installed, or has no Ivy jar.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedClusterError(
            "embedded cluster: PySpark is not installed, and its Ivy is what fetches the servers. "
            "Install it: pip install 'inbound-kafka[embedded]'"
        )
    jars = Path(spec.origin).parent / "jars"
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise EmbeddedClusterError(
            f"embedded cluster: {jars} holds no ivy-*.jar. "
            "Install a full PySpark: pip install --force-reinstall 'inbound-kafka[embedded]'"
        )
    return found[-1]


def _retrieve(java: str, ivy: Path, cache: Path, bundle: Bundle, part: Path, progress: Progress) -> None:
    """Run Ivy, and leave exactly the bundle's jars in `part`/jars."""
    progress(f"{bundle.name}: fetching the jars (once)")
    (part / "ivy.xml").write_text(bundle.ivy_file())
    # The run is too short for the optimizing compiler: without it this takes half the processor time. Each bundle has a cache of
    # its own, as Ivy locks none and bundles are fetched in parallel.
    command = [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(ivy), "-ivy", str(part / "ivy.xml")]
    command += ["-cache", str(cache / "ivy" / bundle.name), "-confs", "default"]
    if not bundle.transitive:
        (part / "settings.xml").write_text(_SETTINGS_WITHOUT_POMS)
        command += ["-settings", str(part / "settings.xml")]
    command += ["-types", "jar", "bundle", "-retrieve", f"{part / 'jars'}/[artifact]-[revision].[ext]"]
    last: deque[str] = deque(maxlen=400)
    count = 0
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        limit = threading.Timer(_FETCH_TIMEOUT, process.kill)
        limit.start()
        try:
            for line in process.stdout:
                last.append(line)
                if "[SUCCESSFUL ]" in line and ".jar" in line:
                    count += 1
                    if count % 5 == 0:
                        progress(f"{bundle.name}: {count} jars fetched")
        except BaseException:
            process.kill()
            raise
        finally:
            limit.cancel()
    if process.returncode != 0 or not any((part / "jars").glob("*.jar")):
        raise EmbeddedClusterError(
            f"{bundle.name}: Ivy ended with {process.returncode} and could not fetch the jars: {_reasons(last)}. "
            "Check that this machine reaches the Maven Central repository, then try again."
        )
    if not digests_of(bundle.name):
        progress(f"{bundle.name}: no digests of this version are known; its jars are taken as they came")
    progress(f"{bundle.name}: {len(list((part / 'jars').glob('*.jar')))} jars are ready")


def _reasons(lines: deque[str]) -> str:
    """Return Ivy's complaints from its output, or else its last lines."""
    marks = ("not found", "problem", "exception", "unreachable", "timed out", "failed", "error")
    picked = [line.strip() for line in lines if any(mark in line.lower() for mark in marks) and "::::" not in line]
    return "; ".join(dict.fromkeys(picked[:6] or [line.strip() for line in lines][-6:])) or "it printed nothing"


# -- digests ------------------------------------------------------------------------------------------------------------

#: Of every jar that is fetched, below the name of its bundle. `sha256sum --check` reads it in the cache folder.
LISTED = Path(__file__).with_name("jars.sha256")


def digests_of(bundle: str) -> Mapping[str, str]:
    """Return each jar's digest by name; empty for an unknown bundle."""
    found = {}
    for line in LISTED.read_text().splitlines():
        digest, _, path = line.partition("  ")
        folder, _, name = path.partition("/")
        if folder == bundle:
            found[name] = digest
    return found


def check(folder: Path, bundle: str) -> None:
    """Check a folder's jars against the list of their bundle.

    Those of an unknown bundle are accepted. Raises EmbeddedClusterError: a jar differs, is missing, or is not listed.
    """
    expected = digests_of(bundle)
    if not expected:
        return
    found = {path.name: path for path in folder.glob("*.jar")}
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"{name} is none of its jars" for name in sorted(found.keys() - expected.keys())]
    for name in sorted(expected.keys() & found.keys()):
        with found[name].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected[name]:
            wrong.append(f"{name} has the SHA-256 {digest}, and should have {expected[name]}")
    if wrong:
        raise EmbeddedClusterError(
            f"{bundle}: {folder}: {'; '.join(wrong[:3])}{f'; and {len(wrong) - 3} more' if len(wrong) > 3 else ''}. Nothing of "
            "it is run. Delete the folder to have it fetched again; if that does not help, what answers as the Maven Central "
            "repository has other files."
        )


def check_once(folder: Path, bundle: str) -> None:
    """Check a folder again only if its files or the list changed."""
    expected = digests_of(bundle)
    if not expected:
        return
    stamp = folder.with_name(f"{bundle}.checked")
    seen = "".join(f"{expected.get(path.name)} {_state(path)}\n" for path in sorted(folder.glob("*.jar")))
    try:
        if stamp.read_text() == seen:
            return
    except (OSError, UnicodeDecodeError):
        pass  # not checked yet
    check(folder, bundle)
    with suppress(OSError):  # a cache that may only be read is checked each time
        stamp.write_text(seen)


def _state(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns} {path.name}"


# -- Java ---------------------------------------------------------------------------------------------------------------

#: Kafka 4 needs it; ZooKeeper 3.9 would run on less.
MIN_JAVA = 17

_VERSION_LINE = re.compile(r'version "(\d+)(?:\.(\d+))?')
_HOW = (
    f"Install a Java runtime of version {MIN_JAVA} or later (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk) and put it on the PATH."
)


def java_major(version_output: str) -> int | None:
    """Return the major version that `java -version` prints; None without one."""
    found = _VERSION_LINE.search(version_output)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second else first  # "1.8.0_392" is version 8


def check_java(command: str = "java") -> str:
    """Return the path of `command`, a Java that is new enough.

    Takes about 0.1 s. Raises EmbeddedClusterError: there is none, it does not run, or it is too old.
    """
    path = shutil.which(command)
    if path is None:
        raise EmbeddedClusterError(f"java: no program {command!r} was found. {_HOW}")
    try:
        ran = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedClusterError(f"java: {path} does not run: {error}. {_HOW}") from error
    said = (ran.stderr + ran.stdout).strip()
    major = java_major(said)
    if ran.returncode != 0 or major is None:
        raise EmbeddedClusterError(
            f"java: {path} -version ended with {ran.returncode} and named no version ({said[:200]!r}). {_HOW}"
        )
    if major < MIN_JAVA:
        raise EmbeddedClusterError(f"java: {path} is version {major}, but Kafka needs {MIN_JAVA}. {_HOW}")
    return path

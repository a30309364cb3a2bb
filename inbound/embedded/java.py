"""Finds a Java that can run the servers, and says what to do when there is none."""

from __future__ import annotations

import re
import shutil
import subprocess

from inbound.errors import EmbeddedClusterError

#: Kafka 4 needs it; ZooKeeper 3.9 would run on less.
MIN_JAVA = 17

_VERSION_LINE = re.compile(r'version "(\d+)(?:\.(\d+))?')
_HOW = (
    f"Install a Java runtime of version {MIN_JAVA} or later (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "Fedora: dnf install java-21-openjdk-headless; macOS: brew install openjdk) and put it on the PATH."
)


def java_major(version_output: str) -> int | None:
    """Return the major version in what `java -version` prints (8 for "1.8.0_392"); None if there is none in it."""
    found = _VERSION_LINE.search(version_output)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second else first


def check_java(command: str = "java") -> str:
    """Return the path of the Java that `command` names, once it is known to be new enough (takes about 0.1 s).

    Raises EmbeddedClusterError: there is none, it does not run, or it is too old.
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

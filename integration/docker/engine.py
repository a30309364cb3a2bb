"""The Docker engine, if one answers; and what tests made in it, found by its labels and removed."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import pytest
import requests
from docker.errors import APIError, DockerException, NotFound

#: On everything that is made here: who made it.
OWNER = "io.github.inbound.tests.owner"
#: On images: what they were made of. They stay for the next run, until that makes them of something else.
CONTENT, NAME = "io.github.inbound.tests.content", "io.github.inbound.tests.name"
#: How long an engine may take to say whether it is there, and to answer anything else (a build is one answer). Seconds.
_PING, _ANSWER = 5.0, 600.0


def reachable() -> Any:
    """Return a client of the engine that Docker's own environment names (DOCKER_HOST, else the local socket).

    Skips the test if there is none: it needs an engine, and nothing else in this suite is ever skipped.
    """
    try:
        client = docker.from_env(timeout=_PING)
    except (DockerException, requests.RequestException) as error:
        _skip(error)
    try:
        client.ping()
        if client.version()["Os"] != "linux":
            raise DockerException("it runs no Linux containers")
    except (DockerException, requests.RequestException) as error:
        client.close()
        _skip(error)
    client.api.timeout = _ANSWER
    return client


def _skip(error: Exception) -> None:
    pytest.skip(
        f"no Docker engine answers ({str(error)[:200]}). To run these tests, start one (Debian, Ubuntu: apt-get install "
        "docker.io iptables) as a user who may use it, or set DOCKER_HOST"
    )


@contextmanager
def engine() -> Iterator[Any]:
    """Give a client, without what earlier runs that were killed have left behind; afterwards nothing of this one is left.

    Images stay: making them takes a minute, and the next run finds them by their content.
    """
    client = reachable()
    try:
        sweep(client, everything=False)
        yield client
    finally:
        try:
            sweep(client, everything=True)
        finally:
            client.close()


def owner() -> str:
    """Return what this process marks as its own: host, process, and when that began (a number can come back)."""
    return f"{socket.gethostname()}/{os.getpid()}/{_began(os.getpid())}"


def labels(**more: str) -> dict[str, str]:
    """Return the labels of what this process makes."""
    return {OWNER: owner(), **more}


def unique(name: str) -> str:
    """Return a name that nothing in the engine has."""
    return f"inbound-{name}-{uuid.uuid4().hex[:8]}"


def sweep(client: Any, *, everything: bool) -> None:
    """Remove containers, then networks, of test runs of this host that are dead; with `everything`, of this one too."""
    for kind in (
        client.containers.list(all=True, filters={"label": OWNER}),
        client.networks.list(filters={"label": OWNER}),
    ):
        for one in kind:
            mark = (one.attrs.get("Labels") or one.attrs["Config"]["Labels"])[OWNER]
            if (mark == owner() and everything) or _dead(mark):
                remove(one)


def remove(one: Any) -> None:
    """Remove a container that may still run, or a network that may have members."""
    with suppress(NotFound):
        if hasattr(one, "kill"):
            one.remove(force=True, v=True)
            return
        one.reload()
        for container in one.containers:
            with suppress(APIError):
                one.disconnect(container, force=True)
        one.remove()


def _dead(mark: str) -> bool:
    host, pid, began = mark.split("/")
    return host == socket.gethostname() and _began(int(pid)) != began


def _began(pid: int) -> str:
    """Return when a process began, in the system's own count; "" if it does not exist; "?" where that is not to be known."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return ""
        except PermissionError:
            pass  # made by another process: it exists
        return "?"
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""

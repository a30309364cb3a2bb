"""What tests make in the engine is removed, also what a run that was killed has left."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest

from integration.docker.engine import OWNER, labels, remove, sweep, unique

pytestmark = pytest.mark.thorough("needs a Docker engine, as all tests of this folder; only they use what it decides")


def test_what_a_dead_run_has_left_is_swept_and_what_a_living_one_has_stays(docker_engine: Any) -> None:
    """A network of a process that has ended goes; those of this process, and of another host, are left alone."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    marks = {
        "dead": {OWNER: f"{socket.gethostname()}/{ended.pid}/1"},
        "ours": labels(),
        "elsewhere": {OWNER: f"not-{socket.gethostname()}/{ended.pid}/1"},
    }
    made = {
        name: docker_engine.networks.create(unique(name), internal=True, labels=mark) for name, mark in marks.items()
    }
    try:
        sweep(docker_engine, everything=False)
        left = {network.id for network in docker_engine.networks.list()}
        assert {name for name, network in made.items() if network.id in left} == {"ours", "elsewhere"}
    finally:
        for network in made.values():
            remove(network)

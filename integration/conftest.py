"""Fixtures of the integration tests: real servers, shared by the session or made for one test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.places import jar_cache
from inbound.embedded import EmbeddedCluster
from inbound.embedded.pytest_plugin import cluster_factory, embedded_cluster
from integration.browser import browser, chromium
from integration.dispatching import Dispatching
from integration.sink import Sink
from integration.upgrading import mixed_scene, releases

__all__ = [
    "browser",
    "chromium",
    "client",
    "cluster_factory",
    "embedded_cluster",
    "inbound_jars",
    "mixed_scene",
    "releases",
]

#: A test here waits for servers and processes, and each of its waits has a bound of its own. Seconds.
HANGS_AFTER = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test of this folder take longer than one of `tests/` before it counts as hanging, if it does not say itself."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANGS_AFTER))


@pytest.fixture
def client() -> str:
    """The Kafka client of a test's consumers; `both_clients` sets others."""
    return "kafka-python"


@pytest.fixture(scope="session")
def inbound_jars() -> Path:
    """The cache that the command line uses too."""
    return jar_cache()


@pytest.fixture
def dispatching(embedded_cluster: EmbeddedCluster, tmp_path: Path, client: str) -> Iterator[Callable[..., Dispatching]]:
    """Make scenes with HTTP subscribers, of one partition if not told otherwise; end what they started."""
    scenes: list[Dispatching] = []

    def make(**settings: Any) -> Dispatching:
        folder = tmp_path / f"scene-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        scenes.append(Dispatching(embedded_cluster, folder, client=client, **{"partitions": 1, **settings}))
        return scenes[-1]

    yield make
    for one in scenes:
        one.close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A subscriber on this machine."""
    one = Sink()
    yield one
    one.close()

"""Your tests get real servers from these fixtures.

Name them in conftest.py: `pytest_plugins = ["inbound.embedded.pytest_plugin"]`.

    def test_orders(embedded_cluster):
        producer = KafkaProducer(bootstrap_servers=embedded_cluster.bootstrap_servers)

Topics are not created automatically, and all tests share the servers: give topics and groups a name per test.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from inbound.embedded.cluster import EmbeddedCluster

_log = logging.getLogger("inbound.embedded")


class ClusterFactory(Protocol):
    """Starts a cluster, which closes with the test session at the latest."""

    def __call__(self, *, brokers: int = 1, zookeepers: int = 1, directory: Path | None = None) -> EmbeddedCluster: ...


@pytest.fixture(scope="session")
def inbound_jars() -> Path:
    """The cache folder of the servers' jars; redefine it for another."""
    return Path("~/.cache/inbound/jars").expanduser()


@pytest.fixture(scope="session")
def cluster_factory(inbound_jars: Path) -> Iterator[ClusterFactory]:
    """Clusters of other sizes: `cluster = cluster_factory(brokers=3, zookeepers=3)`."""
    with contextlib.ExitStack() as made:

        def make(*, brokers: int = 1, zookeepers: int = 1, directory: Path | None = None) -> EmbeddedCluster:
            cluster = EmbeddedCluster(
                directory, jars=inbound_jars, brokers=brokers, zookeepers=zookeepers, progress=_log.info
            )
            return made.enter_context(cluster)

        yield make


@pytest.fixture(scope="session")
def embedded_cluster(cluster_factory: ClusterFactory) -> EmbeddedCluster:
    """One Kafka and one ZooKeeper server, up for the whole session."""
    return cluster_factory()

"""Fixtures with real servers, for your tests: `pytest_plugins = ["inbound.embedded.pytest_plugin"]` in conftest.py.

    def test_orders(embedded_cluster):
        producer = KafkaProducer(bootstrap_servers=embedded_cluster.bootstrap_servers)

Topics are not created by themselves, and all tests share the servers: give topics and groups a name per test.
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
    """Makes a started cluster, which is closed at the end of the session if the test has not done so."""

    def __call__(self, *, brokers: int = 1, zookeepers: int = 1, directory: Path | None = None) -> EmbeddedCluster: ...


@pytest.fixture(scope="session")
def inbound_jars() -> Path:
    """The cache folder of the servers' jars. Define a fixture of this name to have another."""
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

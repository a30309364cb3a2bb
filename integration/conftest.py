"""Fixtures of the integration tests: real servers, shared by the session or made for one test."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from inbound.cli.shared.files import jar_cache
from inbound.embedded import EmbeddedCluster
from inbound.embedded.pytest_plugin import cluster_factory, embedded_cluster
from integration.admin.browser import browser, chromium
from integration.harness import Scenes, serve_again
from integration.process.upgrading import mixed_scene, releases
from integration.processors.dispatch.dispatching import Dispatching, MakeScene
from integration.processors.sink import Sink
from integration.spark.spark_stage import spark

__all__ = [
    "browser",
    "chromium",
    "client",
    "cluster_factory",
    "embedded_cluster",
    "inbound_jars",
    "mixed_scene",
    "releases",
    "spark",
]

#: A test here waits for servers and processes, and each of its waits has a bound of its own, which grows with the machine. Seconds.
HANGS_AFTER = 900


#: Of tests of a class that names its `slice` for `make test`, and has others.
NOT_IN_SLICE = pytest.mark.thorough(
    "on real servers `make test` has a slice of this suite, and the fakes pass all of it there"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test of this folder take longer than one of `tests/` before it counts as hanging, if it does not say itself.

    Of a conformance suite, mark what is not in its class's slice.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANGS_AFTER))
        if isinstance(item, pytest.Function) and item.originalname not in getattr(
            item.cls, "slice", [item.originalname]
        ):
            item.add_marker(NOT_IN_SLICE)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test whose consumers have read something ends with a proof of it."""
    result = yield
    for value in pyfuncitem.funcargs.values():
        if isinstance(value, Scenes):
            value.prove()
    return result


@pytest.fixture
def client() -> str:
    """The Kafka client of a test's consumers; `both_clients` sets others."""
    return "kafka-python"


@pytest.fixture(scope="session")
def inbound_jars() -> Path:
    """The cache that the command line uses too."""
    return jar_cache()


@pytest.fixture
def scenes(embedded_cluster: EmbeddedCluster, tmp_path: Path, client: str) -> Iterator[Scenes]:
    """Make scenes with consumers whose sessions outlive the machine's delays; end what they started."""
    made = Scenes(embedded_cluster, tmp_path, client=client)
    yield made
    made.close()


@pytest.fixture
def mortal_cluster(embedded_cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """The shared cluster, for a test that stops, kills or freezes its servers; afterwards all serve again."""
    yield embedded_cluster
    serve_again(embedded_cluster)


@pytest.fixture
def dispatching(scenes: Scenes, client: str) -> MakeScene:
    """Make scenes with HTTP subscribers, of one partition if not told otherwise; end what they started."""
    usual = {"client": client, "partitions": 1, "session": Dispatching.session}
    return lambda **settings: scenes(Dispatching, **{**usual, **settings})


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A subscriber on this machine."""
    one = Sink()
    yield one
    one.close()

"""Fixtures of the tests on containers: an engine, images, servers for the session; replicas for each test."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.docker.engine import engine
from integration.docker.images import Images, made
from integration.docker.replicas import Replicas
from integration.docker.site import Site


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Any]:
    """A client of the Docker engine; without one the test is skipped."""
    with engine() as client:
        yield client


@pytest.fixture(scope="session")
def images(docker_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Images:
    """The images, made of this machine's files and this checkout."""
    return made(docker_engine, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def site(docker_engine: Any, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Kafka and ZooKeeper in containers."""
    one = Site(docker_engine, images, tmp_path_factory.mktemp("site"))
    yield one
    one.close()


@pytest.fixture
def replicas(site: Site, tmp_path: Path) -> Iterator[Callable[..., Replicas]]:
    """Make scenes with replicas; remove what they started."""
    scenes: list[Replicas] = []

    def make(**settings: Any) -> Replicas:
        scenes.append(Replicas(site, tmp_path / f"scene-{uuid.uuid4().hex[:8]}", **settings))
        return scenes[-1]

    yield make
    for one in scenes:
        one.close()

"""The commands in the documentation, carried out on real servers: they end well, and print what the pages show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.embedded.pytest_plugin import ClusterFactory
from integration.repository.docs_scenes import SCENES, Stage
from tests.repository.docs_blocks import blocks

pytestmark = pytest.mark.thorough(
    "runs what pages show on real servers, minutes; make test parses each command of each page with its options"
)


@pytest.fixture(scope="module")
def cluster(cluster_factory: ClusterFactory) -> Iterator[EmbeddedCluster]:
    """Servers of its own: pages call their topics `orders`, and so may others."""
    with closing(cluster_factory()) as one:
        yield one


@pytest.mark.timeout(1200)  # a dozen processes, one after the other, each with a bound of its own
@pytest.mark.parametrize("scene", SCENES)
def test_commands_do_and_print_what_the_page_says(scene: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The blocks of all pages that run on the same state run one after the other; running commands stop gracefully."""
    with closing(Stage(cluster, tmp_path, scene)) as stage, contextmanager(SCENES[scene])(stage):
        for block in blocks():
            if (block.annotation, block.value) == ("run", scene):
                stage.follow(block)
        stage.end()

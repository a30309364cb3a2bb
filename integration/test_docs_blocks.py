"""The commands in the documentation, carried out on real servers: they end well, and print what the pages show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.embedded.pytest_plugin import ClusterFactory
from integration.docs_scenes import SCENES, Stage
from tests.docs_blocks import WITH_SERVERS, blocks

#: The blocks of all pages that run on the same state run one after the other, in the order of the pages.
RUN = [b for b in blocks() if b.annotation == "run" and b.language in ("bash", "console")]


@pytest.fixture(scope="module")
def cluster(cluster_factory: ClusterFactory) -> Iterator[EmbeddedCluster]:
    """Servers of its own: pages call their topics `orders`, and so may others."""
    one = cluster_factory()
    yield one
    one.close()


def test_every_scene_is_described_and_can_be_prepared() -> None:
    """The list of them stands where blocks are described."""
    assert SCENES.keys() == WITH_SERVERS.keys() - {"tutorial"}  # which has a test of its own


@pytest.mark.timeout(1200)  # a dozen processes, one after the other, each with a bound of its own
@pytest.mark.parametrize("scene", SCENES)
def test_commands_do_and_print_what_the_page_says(
    scene: str, cluster: EmbeddedCluster, tmp_path: Path, inbound_jars: Path
) -> None:
    """Each ends well, with the output that is shown; what lasts ends in good order."""
    stage = Stage(cluster, tmp_path, inbound_jars, scene)
    try:
        with contextmanager(SCENES[scene])(stage) as steps:
            for block in RUN:
                if block.value == scene:
                    steps.run(block)
            steps.end()
    finally:
        stage.close()

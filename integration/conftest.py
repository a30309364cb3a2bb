"""Fixtures of the integration tests: real servers, shared by the session or made for one test."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.cli.places import jar_cache
from inbound.embedded.pytest_plugin import cluster_factory, embedded_cluster

__all__ = ["cluster_factory", "embedded_cluster", "inbound_jars"]


@pytest.fixture(scope="session")
def inbound_jars() -> Path:
    """The cache that the command line uses too."""
    return jar_cache()

"""Admin servers that live as long as one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from inbound.admin.listener import AdminServer
from tests.observe.status.made_status import process

Make = Callable[..., AdminServer]


@pytest.fixture
def make() -> Iterator[Make]:
    """Start an admin server of a snapshot with any settings; it is closed after the test."""
    with ExitStack() as open_now:

        def start(snapshot: Any = process, **settings: Any) -> AdminServer:
            server = AdminServer(snapshot, **{"host": "127.0.0.1", "port": 0, "port_given": True, **settings})
            open_now.callback(server.close)
            server.start()
            return server

        yield start

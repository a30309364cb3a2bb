"""Owning a cluster until a signal comes: what `cluster up` does, in the foreground and in the supervisor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from inbound.embedded.cluster import EmbeddedCluster
from inbound.embedded.jars import Progress
from inbound.signals import handled

_LOOK_EVERY = 0.5


class _Signalled(BaseException):
    """SIGINT or SIGTERM came. Not an Exception: nothing on the way may handle it."""


def own_until_signalled(cluster: EmbeddedCluster, when_up: Callable[[], None], report: Progress) -> None:
    """Start `cluster`, call `when_up`, wait for SIGINT or SIGTERM, close it. Call it from the main thread.

    A signal during the start ends it too; a second one during the close kills what has not ended. A server that ends
    by itself is reported once; the others go on. Raises EmbeddedClusterError: the cluster did not come up.
    """
    with _signals_raise():
        try:
            try:
                cluster.start()
                when_up()
                gone: set[str] = set()
                while True:
                    for server in cluster.servers:
                        if not server.running and server.name not in gone:
                            gone.add(server.name)
                            report(f"{server.name}: the server has ended by itself; its log is {server.log_path}")
                    time.sleep(_LOOK_EVERY)
            finally:
                cluster.close()
        except _Signalled:
            cluster.close()


@contextmanager
def _signals_raise() -> Iterator[None]:
    def handle(number: int, frame: FrameType | None) -> None:
        raise _Signalled(number)

    with handled(handle):
        yield

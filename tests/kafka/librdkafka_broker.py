"""librdkafka's own broker in memory, for tests of its producer: it answers as the test wants."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PRODUCE = 0  # the API's key
_PRODUCER = 0  # the type of a handle


class LibrdkafkaBroker:
    """One broker; its topics have a partition and are made when they are written to."""

    def __init__(self, library: ctypes.CDLL, cluster: int) -> None:
        self._library = library
        self._cluster = ctypes.c_void_p(cluster)
        self.address: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str) -> None:
        self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), 1, 1)

    def refuse(self, *codes: int) -> None:
        """Answer the next produce requests with these errors, and then as before."""
        push = self._library.rd_kafka_mock_push_request_errors
        push(self._cluster, ctypes.c_int16(_PRODUCE), ctypes.c_size_t(len(codes)), *codes)


@contextmanager
def librdkafka_broker() -> Iterator[LibrdkafkaBroker]:
    """Run a broker inside of the library that confluent-kafka has loaded."""
    import confluent_kafka  # noqa: F401  # loads it

    library = ctypes.CDLL(_library())
    for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    said = ctypes.create_string_buffer(512)
    handle = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, None, said, len(said)))
    assert handle.value, said.value
    cluster = library.rd_kafka_mock_cluster_new(handle, 1)
    try:
        yield LibrdkafkaBroker(library, cluster)
    finally:
        library.rd_kafka_mock_cluster_destroy(ctypes.c_void_p(cluster))
        library.rd_kafka_destroy(handle)


def _library() -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "librdkafka" in line:
            return line.split()[-1]
    raise AssertionError("librdkafka is not loaded")

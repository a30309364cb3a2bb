"""Jars that only tests and benchmarks need: Kafka's command-line tools, and what ZooKeeper speaks TLS with."""

from __future__ import annotations

from pathlib import Path

from inbound.embedded.jars import KAFKA, KAFKA_VERSION, Bundle, fetch

#: Kafka's command-line tools, among them its producer-perf-test; what they need besides is among `KAFKA`'s jars.
KAFKA_TOOLS = Bundle(
    f"kafka-tools-{KAFKA_VERSION}", (("org.apache.kafka", "kafka-tools", KAFKA_VERSION),), transitive=False
)
#: What ZooKeeper needs besides to speak TLS; few do, so it is fetched only when asked for.
NETTY_VERSION = "4.1.118.Final"
ZOOKEEPER_TLS = Bundle(
    f"zookeeper-tls-{NETTY_VERSION}",
    tuple(
        ("io.netty", f"netty-{module}", NETTY_VERSION)
        for module in (
            "buffer", "codec", "common", "handler", "resolver", "transport", "transport-classes-epoll",
            "transport-native-unix-common",
        )
    ),
    transitive=False,
)  # fmt: skip


def fetch_tools(cache: Path, *, java: str = "java") -> tuple[Path, ...]:
    """Return the class path of Kafka's command-line tools, as folders in `cache`, fetching what is missing.

    Raises EmbeddedClusterError as `fetch_jars` does.
    """
    return tuple(fetch(cache, bundle, java=java) for bundle in (KAFKA, KAFKA_TOOLS))


def fetch_tls(cache: Path, *, java: str = "java") -> Path:
    """Return the folder in `cache` of the jars with which ZooKeeper speaks TLS, fetching what is missing (3 MB; once).

    Raises EmbeddedClusterError as `fetch_jars` does.
    """
    return fetch(cache, ZOOKEEPER_TLS, java=java)

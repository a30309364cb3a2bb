"""Real Kafka and ZooKeeper servers as child processes: for tests, the demo, and trying inbound out."""

from inbound.embedded.cluster import EmbeddedCluster
from inbound.embedded.server import Server

__all__ = ["EmbeddedCluster", "Server"]

"""Real Kafka and ZooKeeper servers as child processes, for tests and demos.

The room imports only `errors` and `runtime`: it starts servers, and has no client of theirs. A server never outlives its
owner: a guardian process (`guardian.py`) stands between them. Jars are fetched once, and checked against digests (`jars.py`).
Begin with `cluster.py`; `detached.py` keeps a cluster up behind `inbound cluster up`, `pytest_plugin.py` has fixtures for
your tests. Not for production: one address, without replication across machines.
"""

from inbound.embedded.cluster import EmbeddedCluster
from inbound.embedded.server import Server

__all__ = ["EmbeddedCluster", "Server"]

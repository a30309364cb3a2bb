"""Reads logs and writes records through two Kafka clients.

No consumer group, no commits to Kafka. Begin with `base.py`: a reader needs of a client what `LogClient` has. The order is
`base.py` < `auth/` < `python/`, `confluent/` < `clients/`, and nothing here knows a channel, a member or ZooKeeper. There are two
clients because kafka-python needs no compiler, and confluent-kafka is faster; both pass the conformance tests in
tests/kafka/log_client_conformance.py.
"""

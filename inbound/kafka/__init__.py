"""Kafka's clients: how a channel reads logs, and how records are written. No consumer group, no commits to Kafka.

Begin with `base.py`: `LogClient` is all that a reader needs of a client. The order is `base.py` < `auth/` <
`python/`, `confluent/` < `clients/`, and nothing here knows a channel, a member or ZooKeeper. Two clients are kept: kafka-python
needs no compiler, confluent-kafka is faster; both pass the conformance tests in tests/kafka/log_client_conformance.py.
"""

"""The controller coordinates a process's channels through one ZooKeeper connection.

It also resets offsets. It knows its channels only by the protocol `KafkaConsumer`, and nothing of Kafka, processors or
configuration files.

Begin with `kafka_controller.py`: the table of the session's states, the protocol, and the loop that decides when a
channel rejoins, evaluates, claims and releases. All of it runs on one thread, as coroutines that await ZooKeeper's
answers. `kazoo_zk.py` is the real client, `kazoo_link.py` closes the gaps of kazoo's connection, `zookeeper_access.py`
decides about TLS, credentials and access rights of nodes. `reset_offset/` moves the offsets of running groups.
"""

"""Mirrors landed commits to a Kafka group, for tools that read there.

ZooKeeper stays the truth. `mirror.py` notes landed commits, and the positions that claims read, and sends them on its own
thread; `plan.py` decides what is sent when (pure), and what Kafka's refusals mean; `kafka_python.py` and `confluent.py` are the
clients. Why: docs/decisions/0036-offsets-mirror.md. How to use it: docs/offsets-mirror.md.

No commit, claim or release waits for the mirror, and nothing reads offsets from it. Begin reading in `plan.py`.
"""

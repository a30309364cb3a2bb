"""Mirrors landed commits to a Kafka group, for tools that read there.

ZooKeeper stays the truth. A commit that landed, and the position that a claim read, is noted by `mirror.py`, which sends on a
thread of its own; `plan.py` says what is sent when (pure), and what Kafka's refusals mean, `kafka_python.py` and
`confluent.py` ask. Why: docs/decisions/0036-offsets-mirror.md. How to use it: docs/offsets-mirror.md.

No commit, claim or release waits for the mirror, and nothing reads offsets from it. Begin reading in `plan.py`.
"""

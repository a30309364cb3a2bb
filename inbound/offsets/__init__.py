"""Shows, exports, imports and deletes a group's offsets, from outside.

No live member calls this. It reads and changes nodes by the rules of `coordinators`, and asks Kafka with the clients of channels.
Begin with `model.py` (pure: nodes and logs become rows, also for the exporter). `nodes.py` reads ZooKeeper, `gather.py` asks the
brokers and combines both; `changes.py` sets offsets in one transaction that no live member can overlap, `removal.py` deletes a
group; `csv_file.py` is Kafka's own CSV, `kafka_group.py` reads a group that keeps its offsets in Kafka.
"""

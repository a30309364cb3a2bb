"""A group's offsets from outside: show, export, import, delete, and the exporter's rows. No live member calls this.

It reads and changes nodes by the rules of `coordinators`, and asks Kafka with the clients of channels. Begin with `model.py` (pure:
nodes and logs become rows). `nodes.py` reads ZooKeeper, `gather.py` asks the brokers and puts both together; `changes.py` sets
offsets in one transaction that no live member can overlap, `removal.py` deletes a group; `csv_file.py` is Kafka's own CSV,
`kafka_group.py` reads a group that keeps its offsets in Kafka.
"""

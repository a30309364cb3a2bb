"""`spark archive`: topics as Parquet of CloudEvents, each offset once.

The archive knows no group, ledger or ZooKeeper: Spark's checkpoint and its own manifests have its progress.

Begin with `job.py`: the queries, from start to summary; it asks the brokers for topic ids and log starts. On the way:

batches.py     one micro-batch: staged, written down, moved into place; compaction.py: many small files into few
rows.py        Kafka's records as rows, on the executors
layout.py      folders, file names and manifests; storage.py: the folder on any file system of Hadoop's
"""

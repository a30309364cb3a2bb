"""`spark archive`: topics as Parquet of CloudEvents, each offset once.

layout.py     where a record belongs: folders and file names; pure
rows.py       records of Kafka -> rows of the archive, on the executors; pure
manifests.py  what is written down of a batch before anybody sees it; pure
topics.py     what Kafka says of a topic: its id, its log's ends
storage.py    the archive's folder, on any file system of Hadoop's
batches.py    one micro-batch: staged, written down, moved into place
compaction.py many small files of a day into few
job.py        the queries: from start to summary
"""

"""Spark jobs: `validate`, `replay`, `archive` and `report`.

`validate` proves delivery from ledger and log, `replay` runs processors again. Nothing that `inbound run` imports needs Spark,
so only `inbound.cli` and `inbound.demo` may import this room. It gathers evidence; `inbound.proof` judges it.

Begin with `validate.py`: ZooKeeper first, then the ledger, then the log. On the way:

cluster_state.py   commits, claims and owners in ZooKeeper; topics and log limits at the brokers
ledger_source.py   the files of a group's ledger at one moment, in chunks
ledger_topic.py    the same for a ledger that is a topic
stories.py         a ledger as spans and events, run by run
kafka_source.py    options and credentials of Spark's Kafka source; log_source.py: which offsets have a record
proofs.py          a proof's files, and where the next proof begins
session.py         starts and ends Spark, with the code that executors on other machines need
"""

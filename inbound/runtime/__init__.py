"""Threads, wakeups, backoff, counters and small helpers that every room may use.

Every active part (worker, committer, controller, mirror) offers `run_once() -> when to run next` and gets its clock from
outside. A `Driver` calls it on a thread; the simulator calls it on a fake clock. Nothing in a part knows which.

| thread | started by | wakes on |
| --- | --- | --- |
| controller | `process/zookeeper/coordination.py` | ZooKeeper answers, watches, timers |
| worker (`workers` + 1 per channel) | `channel/kafka_channel.py` | polls of Kafka, a partition that is due, claims |
| event loop of an asynchronous channel, and its reader | `channel/kafka_channel.py` | a partition that is due, sockets |
| loop and reading that dispatching channels share | `channel/shared.py` | the same |
| committer (one for all channels) | `channel/committer.py` | results to commit, an answer of ZooKeeper |
| mirror | `mirror/mirror.py` | a landed commit, a claim, once a day |
| reload | `process/reload/` | changes of the configuration's folder |
| stall detector | `observe/explain/detector.py` | timer |
| ledger | `ledger/housekeeping.py`, `ledger/shipping.py` | timer: full files become Parquet, are shipped, deleted by age |
| log, traces, profiles | `observe/` | lines, spans, requests |
| admin, ingress | `http/server/` | HTTP |

A lock is held over a few statements, never over I/O or a callback of a processor. Two exceptions wait: the token for Kafka
(`kafka/auth/tokens.py`), which every connection needs, and the shared reading, which steps one reader.

The room knows nothing of Kafka, ZooKeeper, channels or configuration. Begin reading in `driver.py`.
"""

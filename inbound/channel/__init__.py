"""One channel: its records from the poll to the landed commit.

A record passes through these files, in this order:

1. `reader.py` polls the client and fills the partitions' buffers (`streams.py` says which are fetched).
2. The schedule (`inbound.partition.schedule`) decides which partition is due.
3. `turn.py` serves it, and `delivery.py` delivers a batch: a pause, the session and `begun` in the ledger come first.
4. `outcome.py` carries out the answer: where reading goes on, what is committed, when the partition is due again.
5. `committer.py` writes the commits of all channels together, and reports when they have landed.

Each rule has its own file: how a processor is called (`processor_session.py`, for replays too), what its answer means
(`response.py`), what a refused commit does (`commit.py`), what follows from a processor's error (`failure_policy.py`), from a
position that the log does not have (`out_of_range.py`).
A turn is one coroutine: a worker's thread runs it from beginning to end (`worker.py`), an event loop runs many at once
(`async_worker.py`, `shared.py`). Which worker polls: docs/decisions/0058-leader-and-followers.md; the commit window: 0057.

The room knows Kafka by `inbound.kafka.base` and ZooKeeper by `inbound.coordinators.zookeeper`. It does not know how members
share partitions: `inbound.group` claims and releases them. Begin reading in `kafka_channel.py`, which puts the parts
together, and has the methods that other rooms call; `parts.py` lists what the parts share.
"""

"""One partition's path: from the poll to the landed commit.

A record passes through five files, in this order:

1. `reader.py` polls the client and puts what came into the partitions' buffers (`buffer.py`, `back_pressure.py`).
2. `schedule.py` holds every partition in exactly one place and says which is due next (`partition.py` has the table).
3. `delivery.py` cuts a batch, writes `begun` and calls the processor; `turn.py` says what else a turn may have to do first.
4. `outcome.py` carries out the answer: where reading goes on, what is committed, when the partition is due again.
5. `committer.py` writes commits, those of all channels together, and tells when they have landed.

Each rule is in the file that is named after it: who polls and who delivers (`leader.py`), what is due (`schedule.py`), what
may be in flight (`window.py`), what an answer means (`answer.py`), what a refused commit does (`refusals.py`), what comes of
a processor's error (`failure_policy.py`), and of a position that the log does not have any more (`out_of_range.py`).

The room knows ZooKeeper by the interface `inbound.coordinators.zookeeper`, Kafka by `inbound.kafka.base`, and claims by what
they bring: it does not know how members share partitions. `kafka_channel.py` puts the parts together: begin reading there.
"""

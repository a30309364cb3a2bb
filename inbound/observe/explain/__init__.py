"""Why a partition moves, rests or is stalled: facts in, one cause out; and the detector of stalled partitions.

`gather.py` reads the facts (`facts.py`) of a running channel, `rules.py` decides (pure; the order of its rules is the order of
precedence), `detector.py` does both for every partition, four times per `explain.interval`. `GET /explain` is `answer.py`: for
now, and for an earlier time by the journal or the ledger. `outside.py` explains a partition whose owner does not
answer, from ZooKeeper and Kafka.
The room reads channels, and changes nothing of them but `Partition.stall`. It knows no admin port, process or command line.
Begin with `cause.py`, then `rules.py`. Reasons: docs/decisions/0032-explain.md.
"""

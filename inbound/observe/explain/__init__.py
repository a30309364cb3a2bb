"""The explanation of a partition: why it moves, waits or is stalled.

Begin with `facts.py`, then `rules.py`. `gather.py` reads the facts of a running channel, `rules.py` decides the cause (pure),
`detector.py` does both for every partition, four times per `explain.interval`. `answer.py` answers `GET /explain`, for an
earlier time with `history.py`. `outside.py` explains a partition whose owner does not answer, from ZooKeeper and Kafka.

The room reads channels and changes `Partition.stall` alone. It knows no admin port, process or command line. Reasons:
docs/decisions/0032-explain.md.
"""

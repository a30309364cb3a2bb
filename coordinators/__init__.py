"""Who owns which partition: plans, transactions, and the data of nodes.

Plans are pure: the same view gives the same plan on every member. Transactions check the versions that they rely on, for
reads are hints. This room knows no Kafka client, no processor and no thread; the clock is passed in.

Begin with `base.py` (view, plan, `ZkCoordinator`), then `ownership.py`: claim, recover, verify, release, each with its races.
`rights.py` and `assignment.py` compute shares; `dynamic.py`, `fixed_count.py`, `static.py` and `custom.py` are the plans;
`nodes.py` reads and writes nodes, `paths.py` is the only place with their paths; `zookeeper.py` is the client's interface,
`tasks.py` runs the coroutines, so that a simulator can own the order of every step.
"""

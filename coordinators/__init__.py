"""Who owns which partition: plans, transactions, and the data of nodes.

Plans are pure: the same view gives the same plan on every member. Transactions check the versions that they rely on, because
reads are hints. This room knows no Kafka client, no processor and no thread; the clock is passed in.

Begin with `base.py` (view, plan, `ZkCoordinator`), then `ownership.py`: claim, recover, verify, release, each with its races.
`rights.py` and `assignment.py` compute shares; `dynamic.py`, `fixed_count.py`, `static.py` and `custom.py` are the plans;
`members.py` has the id nodes, `subscriber_status.py` what they report on Knative's subscription, `pauses.py` the pauses;
`nodes.py` encodes nodes, `paths.py` has all paths; `zookeeper.py` is the client's interface, and `tasks.py` runs coroutines,
so that a simulator can own the order of every step.
"""

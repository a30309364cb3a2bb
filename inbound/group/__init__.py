"""One member of a group: which partitions it claims, keeps and releases.

`membership.py` follows the group and plans with a coordinator; `claims.py` carries out claims, checks, recoveries and releases
by the transactions of `inbound.coordinators.ownership`. A coordinator gets the group's view, and answers with the partitions
to claim and to release; the nodes are the truth, so `Claims.verify` checks beliefs against them first. `node_watches.py` knows
which nodes need not be read again (docs/decisions/0013-cost-of-evaluation.md).

What stops a member: `PauseState` in `parts.py` (pauses), `reset_participant.py` (resets of offsets: while a gate is
closed, partitions of its topic are released and none is claimed; docs/decisions/0035-members-in-a-reset.md),
`partition_backoff.py` (nodes that ZooKeeper refuses, partitions that an operator had released), `topic_identity.py` (a topic
that may have been recreated). `operations.py` carries out operators' pause, resume and rebalance. `group_journal.py` says why
partitions move.

Everything runs on the controller's thread, except where a method says "any thread". The room knows partitions and the schedule
(`inbound.partition`), but not how records are read, delivered and committed: its channel gives it `MemberParts` and a `Reading`.
Begin reading in `membership.py`.
"""

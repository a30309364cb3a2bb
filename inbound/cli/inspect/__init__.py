"""Commands for running processes and their groups, such as `status` and `pause`.

`status.py` (status, reload) and `explain.py` ask the admin port of a process; `operate.py` (pause, resume, rebalance, acl) uses
ZooKeeper alone, so its commands work while no process runs. The `*_text.py` files are pure: a snapshot and a time in, lines out.
`inbound.observe.explain` decides why a partition is stalled. This room imports `cli.shared`, and no other room of the command
line.

Begin reading at `status.py`.
"""

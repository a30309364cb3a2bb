"""Commands for running processes and their groups: status, explain, pause, resume, rebalance, reload, acl.

`status.py` (status, reload) and `explain.py` ask the admin port of a process; `operate.py` (pause, resume, rebalance, acl) uses
ZooKeeper alone, so its commands work while no process runs. The `*_text.py` files are pure: a snapshot and a time in, lines out.
Why a partition is stalled is decided in `inbound.observe.explain`, not here. It imports `cli.shared`, and no other room of the
command line.

Begin reading at `status.py`.
"""

"""`inbound run` and `ingress` run processes; `check` only reads the configuration.

The room handles signals, watches folders, and reads tokens and policies from files: the rooms below may not. The process itself
is `inbound.process.application`; `processes.py` is the parent of `run --processes N`, and uses only the children's admin ports.
The room imports `cli.shared`, and no other room of the command line. Nothing here imports Spark.

Begin reading at `run.py`.
"""

"""Commands that run processes: `run`, `ingress`, and `check`, which only reads the configuration.

This room makes what the rooms below may not: signals, the watch on folders, tokens and policies from files.
The process itself is `inbound.process.application`; `processes.py` is the parent of `run --processes N`, and needs only their
admin ports. It imports `cli.shared`, and no other room of the command line. Nothing here imports Spark.

Begin reading at `run.py`.
"""

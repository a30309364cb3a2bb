"""`inbound spark`: validate, replay, archive and report, as jobs on Spark.

PySpark is an extra: nothing here imports it before a job starts, so that the other commands work without it. The jobs are in
`inbound.spark`, the judgement of a proof in `inbound.proof`; this room has the options, the exit codes and the printed text. It
imports `cli.shared`, and no other room of the command line.

Begin reading at `options.py`: what all four commands share; then `validate.py`.
"""

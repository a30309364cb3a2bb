"""`inbound spark` runs validate, replay, archive and report as jobs on Spark.

PySpark is an extra: nothing here imports it before a job starts, so the other commands work without it. `inbound.spark` runs
the jobs, `inbound.proof` judges a proof; this room has the options, the exit codes and the printed text. It
imports `cli.shared`, and no other room of the command line.

Begin reading at `options.py`: what all four commands share; then `validate.py`.
"""

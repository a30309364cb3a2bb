"""`spark replay`: a processor runs again over a range of the log.

Each partition is replayed in order, marked offsets never again. A mark is a `done` line in a ledger of the replay's own; the
group's offsets stay as they are. The room knows no channel beyond its failure policy and answers: one attempt owns its
partition, so it needs no reader, committer or claim.

Begin with `job.py`, on the driver. `plan.py` cuts ranges into units, `task.py` is an attempt on an executor, `run.py` its
loop, `feed.py` its records, `marks.py` the folder with plan, marks and locks, `shadow.py` captures outputs and compares.
"""

"""Pure functions prove from ledger, log and ZooKeeper that nothing was lost.

A wrong PROVEN is the worst defect there is. So `judge` names missing evidence (`missing`) and proves only the rest. The
room knows no Spark, files or servers: `inbound.spark` gathers the evidence. Only the columns need numpy and pyarrow.

Begin with `judge.py`, one partition from evidence to verdict. On the way:

model.py       evidence and result: spans, events, the log's extent, findings, verdict
spans.py       a run's lines as spans; columns.py and column_spans.py make them from whole columns at a time
claims.py      spans and events of a partition, cut into claims in the order of their epochs
chain.py       claim after claim, against the commit before it; walk.py: one claim; evidence.py keeps the state
log_cuts.py    what still counts of a log that was cut; commit_window.py: what a claim left uncommitted
rules.py       the findings after all claims, against ZooKeeper and the log
words.py       the sentences of terminal, page and JSON; export.py: a proof as JSON; rows.py: as rows
"""

"""`spark report`: throughput, lag and delivery latency of groups over time, from ledger and log.

Begin with `job.py`, from a configuration's groups to a `DeliveryReport`. `landings.py` finds in the ledger when offsets
were delivered and landed, and counts the log's records against that on the executors. The page is `inbound.report`'s.
"""

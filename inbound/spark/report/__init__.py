"""`spark report`: throughput, lag and latency of groups over time.

Begin with `job.py`, from a configuration's groups to a `DeliveryReport`. `landings.py` finds in the ledger when offsets
were delivered and landed; `record_counter.py` counts the log's records against that on the executors. `inbound.report`
makes the page.
"""

"""`spark report`: throughput, lag and delivery latency of groups over time, from ledger and log.

landings.py   the ledger's lines -> when which offsets were handed out and landed, by partition
delays.py     the log's records, held against landings -> counts per bucket of time; on the executors
job.py        from a configuration's groups to a `Report`
"""

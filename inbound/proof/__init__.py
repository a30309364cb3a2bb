"""The proof of delivery: pure functions from ledger, log and ZooKeeper to what was lost, repeated or done out of order.

Nothing in here knows Spark, files or servers: `inbound.spark` gathers what these functions are given.
"""

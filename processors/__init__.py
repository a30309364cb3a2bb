"""Processors: the class that users write, ready ones, and the CloudEvents codec.

`base.py` (BatchEventProcessor, Context) and `batch.py` (Batch, BatchResponse) are the API: begin there. `simple/` sends
batches to `sinks/`, `dispatch/` posts events to HTTP subscribers. `cloudevents_*.py` reads and writes events: `_kafka` and
`_http` have one side each, `_bridge` converts between them without an event object, `_plain` has the fast paths of nearly all
records, `_values` has the rules of attributes and data.

This room knows the configuration, `runtime` and the HTTP client, and nothing of channels, coordinators, ZooKeeper or
Kafka's clients: a processor gets records, and answers with an offset. The codec is pure.
"""

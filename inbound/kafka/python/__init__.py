"""kafka-python: the reader's client over it, and the producers and admin calls of the rest of inbound.

It may not import `confluent/` or `clients/`. Begin with `client.py`. kafka-python waits where a reader must not, so `brokers.py`
and `metadata.py` ask over its own connections without waiting; `bounded_records.py` bounds decompression. `private_members.py`
lists all private members in use, with reasons and the releases that were checked (decision 59). `producer.py` and `topics.py`
write.
"""

"""The client over kafka-python, and its producers and admin calls.

It may not import `confluent/` or `clients/`. Begin with `client.py`. kafka-python waits where a reader must not, so `brokers.py`
and `metadata.py` ask over its own connections without waiting; `bounded_records.py` bounds what batches may become
(`decompression.py`). `private_members.py` lists all private members in use, with reasons and the checked releases
(decision 59). `producer.py` writes records; `topics.py` creates, counts and cuts topics.
"""

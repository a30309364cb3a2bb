"""The ingress: takes CloudEvents over HTTP, and answers 202 once Kafka has acknowledged every one of them.

It reads no topic and knows no channel, member or ZooKeeper. Begin with `receiver.py`: from a request to its answer, all on the
event loop's thread. `request_head.py` finds the topic and the headers to keep; `topics.py` watches whether Kafka answers and which
topics there are; `producer.py` says what a producer has to do, with one file per client beside it; `server.py` puts it together.
"""

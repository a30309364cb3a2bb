"""The ingress takes CloudEvents over HTTP and writes them to Kafka.

It answers 202 when Kafka has acknowledged every event of a request. Begin with `receiver.py`: from a request to its answer, all
on the event loop's thread. `request_head.py` finds the topic and the headers to keep; `topics.py` watches Kafka and its topics;
`producer.py` has the protocol of a producer, with one file per client beside it; `server.py` puts it together. The ingress reads
no topic and knows no channel, member or ZooKeeper.
"""

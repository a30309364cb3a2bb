"""confluent-kafka (librdkafka): the reader's client over it. An extra: only `clients/` and the ingress import it, when it is used.

It may not import `python/` or `clients/`. Begin with `client.py`. `questions.py` asks brokers with futures, so that no call waits;
`records.py` has records as views of messages, without Python code per record; `settings.py` translates properties and notices
rotated credentials; `figures.py` reads the statistics. Settings that differ from librdkafka's defaults: decision 16.
"""

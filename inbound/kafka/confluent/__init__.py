"""The client over confluent-kafka (librdkafka), an optional extra.

Only `clients/`, the mirror and the ingress import it, when it is used. It may not import `python/` or `clients/`. Begin with
`client.py`. `questions.py` asks brokers with futures, so that no call waits; `records.py` has records as views of messages, without
Python code per record; `settings.py` translates properties and detects rotated credentials; `figures.py` reads the statistics.
Settings that differ from librdkafka's defaults: decision 16.
"""

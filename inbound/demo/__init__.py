"""The demo: real flights through a real Kafka and ZooKeeper, while consumers are killed, stopped and added.

Its consumers are ordinary `inbound run` processes: the room uses the product from outside, by configuration, and only `cli` may
know it. The figures come from the processors' journals and from ZooKeeper's nodes, not from the product. Begin with
`scenario.py`, the course of events; `accounting.py` adds up and names problems, `flights.py` fetches the data.
"""

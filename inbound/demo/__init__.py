"""The demo: real flights through real servers, while consumers are killed.

Consumers also stop and join. They are ordinary `inbound run` processes: the room uses the product from outside, by
configuration, and only `cli` may import it. The figures come from the processors' journals and from ZooKeeper's nodes, not from
the product. Begin with `scenario.py`, the course of events; `accounting.py` adds up and names problems, `flights.py` fetches the
data.
"""

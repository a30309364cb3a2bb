"""The HTTP/1.1 server of all listeners, and the client of all senders.

Begin with `server/serving.py` or `client/client.py`. Neither folder imports the other, and neither knows a route, an event or a
topic: they import configuration, `runtime` and leaves alone.
"""

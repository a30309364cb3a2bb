"""HTTP/1.1: the one server of all listeners, and the client of everything that posts.

`server/` accepts connections, TLS and requests; `client/` posts. Neither imports the other, and neither knows a route, an event
or a topic: they import configuration, `runtime` and leaves alone. Begin with `server/serving.py` or `client/client.py`.
"""

"""The HTTP/1.1 client: pools of kept connections on one event loop, many requests at a time.

It knows no events and no retries: the dispatcher has those. Begin with `client.py` (pool, connection). `exchange.py` has the
target and the answer; `sockets.py` reads and writes plain connections in one go, which keeps the interpreter (measured there).
"""

"""The HTTP/1.1 client keeps pools of connections on one event loop.

Begin with `client.py` (pool, connection). `exchange.py` has the target and the answer; `sockets.py` reads and writes plain
connections without giving up the interpreter (measured there). The client knows no events and no retries: the dispatcher does.
"""

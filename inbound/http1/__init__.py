"""HTTP/1.1 as a client speaks it: requests on kept connections, answers that are bounded in size and time.

It knows bytes, sockets and one event loop; not what an event is, nor who asks. Begin with `client.py`; what goes in and comes
out is in `exchange.py`.
"""

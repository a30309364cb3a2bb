"""The HTTP/1.1 server of admin port, profiles and ingress survives bad clients.

Begin with `serving.py` (bind, accept, TLS, stop). `connection.py` parses one connection with llhttp, bounded, answers in order;
`listener.py` closes a connection when there are too many. `server.py` makes pages in a few threads, with separate ones for
probes; `page.py` has pages and answers. `rights.py` decides which clients may read or change something; `tls.py` reloads
certificates while the process runs.

The room imports configuration, `runtime` and leaves alone: routes belong to the handler. docs/decisions/0054-one-http-server.md
has the reasons against a ready-made server.
"""

"""One HTTP/1.1 server that bad clients cannot hurt: the admin port, profiles and the ingress use it.

It imports configuration, `runtime` and leaves alone: routes are the handler's. Begin with `serving.py` (bind, accept, TLS, stop).
`connection.py` parses one connection with llhttp, bounded, answers in order; `listener.py` decides which connection is closed when
there are too many. `server.py` makes pages in a few threads, with separate ones for probes; `page.py` has pages and answers.
`rights.py` decides who may read and who may change something; `tls.py` reloads certificates while the process runs.
Why no ready-made server: docs/decisions/0054-one-http-server.md.
"""

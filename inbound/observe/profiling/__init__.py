"""Profiles of a running process over HTTP: for `go tool pprof`, and as flame graphs. Imported only where configured.

`sampler.py` measures CPU time, `heap.py` memory, `threads.py` shows where threads are; each returns a `Profile`,
which `profile.py` (for pprof) and `flame.py` write (pure). `pages.py` reads requests, `listener.py` is the HTTP server with
its rights; `inbound/process/sections.py` starts it.
The room knows no channel and no status: a thread's channel is in its name. Begin with `pages.py`. Reasons:
docs/decisions/0041-profiling.md.
"""

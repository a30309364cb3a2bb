"""Profiles of a running process, for pprof and as flame graphs.

Begin with `pages.py`, which reads requests; `listener.py` is the HTTP server with its rights. `sampler.py` measures CPU time,
`heap.py` memory, `threads.py` shows the places of threads; each returns a `Profile`, which `profile.py` (for pprof) and
`flame.py` write (pure). `inbound/process/sections.py` imports and starts the listener if it is configured.

The room knows no channel and no status: a thread's channel is in its name. Reasons: docs/decisions/0041-profiling.md.
"""

"""The status, metrics, logs, traces and profiles of a running process.

Begin with `status/status.py`. `status/` is the snapshot that the others read: `metrics/` (Prometheus), `jmx/` (beans), and
outside of this room the status page and `inbound status`. `explain/` finds why a partition is stalled; `logs/`, `tracing/` and
`profiling/` stand alone.

Nothing here changes a channel. `status/` imports no room that acts; only `explain/` reads running channels; no folder knows
the admin port, the process or the command line.
"""

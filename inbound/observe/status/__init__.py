"""The status of a process: one snapshot, from which `/status`, `/metrics`, beans and `inbound status` are made.

Plain frozen values that JSON takes, without logic but `ready` and `stuck`; each room fills its own part. `process_status` reads
the JSON of another process, perhaps of another release: unknown keys are ignored.
The room imports the values of other rooms (ledger, mirror, meters, pauses), and no room that acts: never admin, process,
channel or cli. Begin with `ProcessStatus` in `status.py`.
"""

"""The status of a process is one snapshot.

`/status`, `/metrics`, beans and `inbound status` show it. Begin with `ProcessStatus` in `status.py`: plain frozen values for
JSON, without logic but `ready` and `stuck`; each room fills its own part. `process_status` reads the JSON of another process,
perhaps of another release: unknown keys are ignored. The room imports the values of other rooms (ledger, mirror, meters,
pauses), and no room that acts: never admin, process, channel or cli.
"""

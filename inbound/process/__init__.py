"""One process of inbound: makes, starts, watches and stops all its parts.

Only the command line imports it. It reads no files and no environment: `Makers` make the parts that need them.

Begin with `application.py`. `channels.py` adds, edits and removes channels while others go on; `zookeeper/` is a connection
with all that runs on it, `ledgers.py` the ledgers: both are replaced as a whole, and a former one stays open while channels
use it. `sections.py` has the other parts that a new configuration replaces, `reload/` decides what changes and when;
`ingress.py` is a process without channels, `resets.py` the process's part in resets of offsets, `exporter.py` reads offsets
for scrapes, `member_operations.py` carries out operators' requests to one member.
"""

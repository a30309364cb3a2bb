"""Beans show the status snapshot under `/jmx` and `/jolokia`.

`/jmx` is Hadoop's JSON servlet, `/jolokia` Jolokia's protocol, both on the admin port. Begin with `tables.py`, which has the
attributes and operations of each type of bean. `beans.py` makes beans of a snapshot, reads and writes them; `requests.py`
parses Jolokia's requests, `jolokia.py` answers them; `policy.py` decides which are allowed; `pages.py` is the HTTP side. Names
follow `names.py`.

Nothing is counted here but `resetCounters`. A change goes out as an `Operation` (`inbound/group/operations.py`); the room
knows no channel, no process and no admin port. Reasons: docs/decisions/0031-jmx-face.md.
"""

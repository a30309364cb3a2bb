"""One held partition: its place, its positions, its buffer, its schedule.

A partition is in exactly one place, and only the owner of that place may touch it: callbacks of one partition never overlap,
without flags (`place.py` has the table; a test walks every pair).

    STARTING --> SCHEDULED <--> RUNNING --> SETTLING --> SCHEDULED
        ^                         |             |
        +------- on_claim --------+             |
                                  +--> LEAVING <+ --> GONE
                                  +--> ABANDONED --> GONE

SETTLING waits for commits in flight: the window is full, or the partition leaves or changes its processor. Its `Fate` (keep,
release, drop) only gets worse. `position.py` has the four offsets (read, delivered, advanced, committed) and
the commit window; `leader.py` decides which worker polls. All parts of a channel share `journal.py`, `ledger_notes.py`,
`meters.py`, and the current processor and configuration (`service.py`).

The room does not know who reads, delivers or commits (`inbound.channel`), nor who owns which partition (`inbound.group`).
Begin reading in `place.py` and `partition.py`, then `schedule.py`.
"""

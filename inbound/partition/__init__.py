"""One held partition: its place, its positions, its buffer, its schedule.

A partition is in exactly one place, and only the owner of that place may touch it: callbacks of one partition never overlap,
without flags (`partition.py` has the table; a test walks every pair).

    STARTING --> SCHEDULED <--> RUNNING --> SETTLING --> SCHEDULED
        ^                         |             |
        +------- on_claim --------+             |
                                  +--> LEAVING <+ --> GONE
                                  +--> ABANDONED --> GONE

SETTLING waits for commits in flight: the window is full, or the partition leaves or changes its processor. Its `Fate` (keep,
release, drop) only gets worse. `position.py` has the four offsets (read, delivered, advanced, committed) and
what may be in flight; `leader.py` says which worker polls. Beside them stand what all parts of a channel write to: the
`journal.py`, the `ledger_notes.py`, the `meters.py`, and the processor and configuration of now (`service.py`).

The room does not know who reads, delivers or commits (`inbound.channel`), nor who owns which partition (`inbound.group`).
Begin reading in `partition.py`, then `schedule.py`.
"""

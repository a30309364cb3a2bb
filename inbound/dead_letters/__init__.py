"""Dead letters: reading, choosing, redriving and purging. `docs/dead-letters.md` is the manual.

Begin with `letter.py`: from a record of a dead letter topic to its facts, and back to the record that was read. `log.py`
reads a topic up to its end at the start, `selection.py` filters, counts and plans a purge, `subscribers.py` gives groups their
names, `redrive.py` decides what is sent, and has the ledger that makes that resumable; `senders.py` sends it (to topics, or to a
subscriber as the dispatcher would). Nothing here prints or asks. Reasons: docs/decisions/0068.
"""

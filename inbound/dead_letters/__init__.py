"""Reads, chooses, redrives and purges dead letters.

Begin with `letter.py`: from a record of a dead letter topic to its facts, and back to the original record. `log.py` reads a
topic up to its end at the start, `selection.py` filters, counts and plans a purge, `subscribers.py` names the subscriptions,
`redrive.py` plans a redrive, `redrive_ledger.py` makes it resumable, `senders.py` sends letters to topics or to a subscriber.
Nothing here prints or asks the user. Manual: `docs/dead-letters.md`; reasons: docs/decisions/0068.
"""

"""Chooses a channel's client; shared log, dead letters, ledger topic, topic logs.

It knows both clients, `ledger` and the protocol of resets, but no channel. Begin with `choice.py`. `shared_log.py` reads each
partition once for several channels of a process (`shared_cursor.py`: cursors and places); `dead_letter_topic.py` writes dead
letters; `outlets.py` has all producers of a channel; `ledger_topic.py` writes the ledger; `topic_logs.py` reads the limits of
whole topics for resets.
"""

"""Which client a configuration gets, and what is built on clients: the shared log, outlets, the ledger's topic, topic logs.

It knows both clients, `ledger` and the protocol of resets, but no channel. Begin with `choice.py`. `shared_log.py` reads each
partition once for several channels of a process (`shared_cursor.py`: cursors and places); `outlets.py` writes dead letters and
processors' topics; `ledger_topic.py` writes the ledger; `topic_logs.py` reads the limits of whole topics for resets.
"""

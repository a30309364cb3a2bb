"""`inbound dead-letters`: list, show, redrive and purge the letters of a dead letter topic.

The commands ask Kafka alone. What a letter is, and how it is sent, is in `inbound.dead_letters`; this room has the options,
the questions to the user and the printed text. It imports `cli.shared`, and no other room of the command line.

Begin reading at `options.py`: which letters a command is about.
"""

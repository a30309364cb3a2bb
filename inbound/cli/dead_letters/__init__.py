"""`inbound dead-letters` lists, shows, redrives and purges the letters of a topic.

The commands ask Kafka alone. `inbound.dead_letters` reads and sends the letters; this room has the options, the
questions to the user and the printed text. It imports `cli.shared`, and no other room of the command line.

Begin reading at `options.py`: the topic and the choice of letters.
"""

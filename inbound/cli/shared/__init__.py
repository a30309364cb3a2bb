"""The code that several commands share.

It imports no other room of the command line. `command.py` has the type of a command, the options and value types that commands
share, and the signals that stop a command. `files.py` reads configuration and tokens, `output.py` prints tables, notes and
progress, `zookeeper.py` and `admin_port.py` connect.

Begin reading at `command.py`.
"""

"""What several commands share; it imports no other room of the command line.

`command.py` says what a command is, and how signals stop it; it has the arguments and value types of several commands. Each
command is declared as a `Command` at the end of its file. `files.py` has the configuration, tokens and folders, `output.py` what is
printed, `zookeeper.py` and `admin_port.py` the connections.

Begin reading at `command.py`.
"""

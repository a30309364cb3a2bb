"""The command line: one file per command.

Each file declares its command as a `Command` at its end. `main.py` has the table of all commands and the exit codes; it imports
all rooms of the command line, and `shared/` imports none of them. Commands read files and the environment, print, and translate
errors into exit codes; decisions belong to the rooms below, none of which imports this one.

Begin reading at `main.py`, then `shared/command.py`.
"""

import sys

# Without a usable kafka-python the command ends here, with one line and no traceback.
try:
    import inbound.kafka.clients.choice  # noqa: F401
except ImportError as error:
    if (error.name or "").partition(".")[0] != "kafka":
        raise
    from inbound.kafka.python.private_members import why

    sys.stderr.write(f"error: {why(error)}\n")
    sys.exit(2)

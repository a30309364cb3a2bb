"""The command line. Without a kafka-python that it can use it ends here, with one line and no traceback."""

import sys

try:
    import inbound.kafka.clients  # noqa: F401
except ImportError as error:
    if (error.name or "").partition(".")[0] != "kafka":
        raise
    from inbound.kafka.unusable import why

    sys.stderr.write(f"error: {why(error)}\n")
    sys.exit(2)

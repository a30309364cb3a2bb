"""`python -m inbound.cli.jars`: fetch the jars of the embedded servers, if they are not there; for the set-up."""

from __future__ import annotations

import sys

from inbound.cli.places import jar_cache, java_command
from inbound.embedded.jars import fetch_jars
from inbound.errors import InboundError


def main() -> int:
    """Fetch what is missing. Returns the exit code."""
    try:
        fetch_jars(jar_cache(), java=java_command(), progress=lambda line: print(line, file=sys.stderr))
    except InboundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

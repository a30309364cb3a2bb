"""Runs `python -m inbound`."""

import sys

from inbound.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

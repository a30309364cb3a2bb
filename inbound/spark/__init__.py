"""Spark jobs: `validate` proves delivery from ledger and log, `replay` runs processors again, `archive`, `report`."""

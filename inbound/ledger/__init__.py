"""The ledger: what a consumer process did with offset ranges, so that it can be proved later."""

from inbound.ledger.base import Done, Ledger, Outcome, Range, Settled
from inbound.ledger.files import FilesLedger
from inbound.ledger.memory import MemoryLedger, Note
from inbound.ledger.none import NoLedger
from inbound.ledger.ranges import died, open_ranges
from inbound.ledger.reader import (
    Corrupt,
    Entry,
    Item,
    LedgerFile,
    TornTail,
    list_files,
    read_batches,
    read_directory,
    read_file,
)

__all__ = [
    "Corrupt",
    "Done",
    "Entry",
    "FilesLedger",
    "Item",
    "Ledger",
    "LedgerFile",
    "MemoryLedger",
    "NoLedger",
    "Note",
    "Outcome",
    "Range",
    "Settled",
    "TornTail",
    "died",
    "list_files",
    "open_ranges",
    "read_batches",
    "read_directory",
    "read_file",
]

"""The ledger records what a consumer process did with offset ranges.

Delivery is proved from it later. The room knows no channel, no ZooKeeper and no Kafka client. Begin with `base.py` (the
contract of every ledger). `lines.py` makes lines, `format.py` seals and names them; `files.py` writes files (an fsync
per `done`), `kafka.py` a topic, `memory.py` is for tests. `reader.py` reads all of it, `jsonl.py` line by line and
`columns.py` as Arrow. `housekeeping.py` converts and deletes local files, `shipping.py` sends them to a URI
(`places.py`), `conversion.py` writes Parquet in a process of its own. The format is in docs/ledger.md.
"""

from inbound.ledger.base import Done, Ledger, NoLedger, Outcome, Range, Settled
from inbound.ledger.files import FilesLedger
from inbound.ledger.jsonl import Corrupt, Entry, Item, LedgerFile, TornTail
from inbound.ledger.memory import MemoryLedger, Note
from inbound.ledger.reader import died, list_files, open_ranges, read_batches, read_directory, read_file

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

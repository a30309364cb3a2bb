"""What the code makes now of what blocks `made by: ...` show: each returns how a block differs, or None."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from inbound.clock import SystemClock
from inbound.coordinators.subscriber_status import SubscriberStatus, decode_status
from inbound.demo.accounting import Account
from inbound.ledger import Done, FilesLedger, Range, Settled
from inbound.ledger.format import seal
from inbound.spark.archive import layout
from inbound.spark.archive.compaction import Compacted
from inbound.spark.archive.job import Summary, TopicSummary
from inbound.spark.archive.manifests import Counts
from tests.docs_blocks import Block
from tests.docs_printed import difference, shape_difference
from tests.made_proof import partition, proof, repeated


def _proof(block: Block) -> str | None:
    from inbound.cli.proof_text import shown

    printed = shown(proof(partition(0), partition(1, repeated())), width=100)  # without the columns that hold nothing
    return difference(block.text, re.sub(r"\n {4}(?=\w)", " ", printed))


def _report(block: Block) -> str | None:
    from inbound.cli.report_text import shown
    from tests.test_report_page import made

    return difference(_output(block), shown(made()))


def _archive_summary(block: Block) -> str | None:
    from inbound.cli.spark_archive import shown

    orders = TopicSummary("orders", Counts(10, 2, 1, 3, 4096), Counts(10, 2, 1, 3, 4096), {0: 8, 1: 5}, ())
    return difference(block.text, shown(Summary((orders,), Compacted(0, 0, 0), 21.5), "./archive"))


def _archive_folders(block: Block) -> str | None:
    """The names that the layout gives to folders and files."""
    events = layout.folder(layout.EVENTS, "2013-01-01", layout.type_name("orders.placed"))
    made = [
        f"FOLDER/{events}/{layout.file_name('orders', 7, 0)}",
        f"FOLDER/{layout.folder(layout.LATE, '2013-01-01', 'orders.placed')}/",
        f"FOLDER/{layout.folder(layout.UNDECODABLE, '2013-01-01')}/",
        f"FOLDER/{layout.BOOKS}, FOLDER/{layout.CHECKPOINT}  books; leave them alone",
    ]
    return difference(block.text, "\n".join(made))


def _demo(block: Block) -> str | None:
    """The keys of the line that ends the demo; README.md shows it too."""
    from inbound.cli.demo import Ending, figures
    from inbound.demo.scenario import Result
    from inbound.demo.subscriber import Dispatched

    ending = Ending(proof(), TopicSummary("flights", Counts(), Counts(events=1), {}, ()), {}, [])
    account = Account(published=1, failover_seconds=1.0)
    made = figures(Result(account, [], {}, Dispatched(1, 1, 0)), ending)
    return shape_difference(json.loads(block.text), made)


def _subscriber_status(block: Block) -> str | None:
    """It can be read, and written again as it stands."""
    status = decode_status("shown", block.text.encode())
    assert isinstance(status, SubscriberStatus)
    return difference(block.text, status.encode().decode())


def _ledger(block: Block) -> str | None:
    """Each line has the members that such a line has now, in their order, and its own checksum."""
    with TemporaryDirectory() as folder:
        ledger = FilesLedger(Path(folder), "orders-svc", "host-1", SystemClock())
        batch = Range("orders", 3, 7, 100, 200, 99)
        ledger.begun(batch)
        ledger.done([Done("orders", 3, 7, 100, 200, 200)])
        ledger.settled([Settled("orders", 3, 7, 200, "landed", 8589934719)])
        ledger.note("skip", topic="orders", partition=3, epoch=7, **{"from": 200, "to": 210, "reason": "dead-lettered"})
        ledger.close()
        made = {
            json.loads(line)["kind"]: line
            for file in Path(folder).rglob("*.jsonl")
            for line in _lines(file.read_text())
        }
    named = ""
    for shown in _lines(re.sub(r"\n +", "", block.text)):
        kind = re.search(r'"kind":"([\w-]+)"', shown)
        assert kind is not None, shown
        if kind[1] == "begun":
            named = shown[shown.index('"group"') : shown.index(',"epoch"')]
        whole = shown.replace(" ... ", named)
        if list(json.loads(whole)) != list(json.loads(made[kind[1]])):
            return f"a line {kind[1]} has {list(json.loads(made[kind[1]]))} now"
        if seal(whole[: whole.rindex(',"crc"')].encode()).decode().strip() != whole:
            return f"the checksum of the line {kind[1]} is not its own"
    return None


MADE: Mapping[str, Callable[[Block], str | None]] = {
    "archive-folders": _archive_folders,
    "archive-summary": _archive_summary,
    "demo": _demo,
    "ledger": _ledger,
    "proof": _proof,
    "report": _report,
    "subscriber-status": _subscriber_status,
}


def _output(block: Block) -> str:
    """Return what a console block shows below its command."""
    return block.text.partition("\n")[2]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]

"""What the code makes now of what blocks `made by: ...` show: each returns a text that the block is compared with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from inbound.cli import demo, proof_text, report_text, spark_archive
from inbound.clock import SystemClock
from inbound.coordinators.subscriber_status import SubscriberStatus, decode_status
from inbound.demo.accounting import Account
from inbound.demo.scenario import Result
from inbound.demo.subscriber import Dispatched
from inbound.ledger import Done, FilesLedger, Range, Settled
from inbound.ledger.format import seal
from inbound.spark.archive import layout
from inbound.spark.archive.compaction import Compacted
from inbound.spark.archive.job import Summary, TopicSummary
from inbound.spark.archive.manifests import Counts
from tests.made_proof import partition, proof, repeated
from tests.test_report_page import made


def _proof(text: str) -> str:
    printed = proof_text.shown(proof(partition(0), partition(1, repeated())), width=100)
    return re.sub(r"\n {4}(?=\w)", " ", printed)  # without the columns that hold nothing


def _report(text: str) -> str:
    return f"{text.splitlines()[0]}\n{report_text.shown(made())}"  # below the command


def _archive_summary(text: str) -> str:
    orders = TopicSummary("orders", Counts(10, 2, 1, 3, 4096), Counts(10, 2, 1, 3, 4096), {0: 8, 1: 5}, ())
    return spark_archive.shown(Summary((orders,), Compacted(0, 0, 0), 21.5), "./archive")


def _archive_folders(text: str) -> str:
    """The names that the layout gives to folders and files."""
    events = layout.folder(layout.EVENTS, "2013-01-01", layout.type_name("orders.placed"))
    return (
        f"FOLDER/{events}/{layout.file_name('orders', 7, 0)}\n"
        f"FOLDER/{layout.folder(layout.LATE, '2013-01-01', 'orders.placed')}/\n"
        f"FOLDER/{layout.folder(layout.UNDECODABLE, '2013-01-01')}/\n"
        f"FOLDER/{layout.BOOKS}, FOLDER/{layout.CHECKPOINT}  books; leave them alone"
    )


def _demo(text: str) -> str:
    """The line that ends the demo; README.md shows it too."""
    ending = demo.Ending(proof(), TopicSummary("flights", Counts(), Counts(events=1), {}, ()), {}, [])
    account = Account(published=1, failover_seconds=1.0)
    return json.dumps(demo.figures(Result(account, [], {}, Dispatched(1, 1, 0)), ending))


def _subscriber_status(text: str) -> str:
    """It can be read, and written again as it stands."""
    status = decode_status("shown", text.encode())
    assert isinstance(status, SubscriberStatus)
    return status.encode().decode()


def _ledger(text: str) -> str:
    """Each line has the members that such a line has now, in their order, and its own checksum."""
    with TemporaryDirectory() as folder:
        ledger = FilesLedger(Path(folder), "orders-svc", "host-1", SystemClock())
        ledger.begun(Range("orders", 3, 7, 100, 200, 99))
        ledger.done([Done("orders", 3, 7, 100, 200, 200)])
        ledger.settled([Settled("orders", 3, 7, 200, "landed", 8589934719)])
        ledger.note("skip", topic="orders", partition=3, epoch=7, **{"from": 200, "to": 210, "reason": "dead-lettered"})
        ledger.close()
        lines = [line for file in Path(folder).rglob("*.jsonl") for line in file.read_text().splitlines() if line]
    members = {entry["kind"]: list(entry) for entry in map(json.loads, lines)}
    joined = re.sub(r"\n +", "", text)
    named = re.findall(r'"kind":"begun",("group".*?),"epoch"', joined)[0]
    for line in joined.replace(" ... ", named).splitlines():
        entry = json.loads(line)
        assert list(entry) == members[entry["kind"]], entry
        assert seal(line[: line.rindex(',"crc"')].encode()).decode().strip() == line
    return text


#: By the names that blocks say.
MADE: Mapping[str, Callable[[str], str]] = {
    maker.__name__.lstrip("_").replace("_", "-"): maker
    for maker in (_archive_folders, _archive_summary, _demo, _ledger, _proof, _report, _subscriber_status)
}

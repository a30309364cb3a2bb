"""What the code makes now of what blocks `made by: ...` show: each returns a text that the block is compared with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from inbound.cli import demo, proof_text, report_text, spark_archive
from inbound.coordinators.subscriber_status import decode_status
from inbound.demo.accounting import Account
from inbound.demo.scenario import Result
from inbound.demo.subscriber import Dispatched
from inbound.ledger import Entry
from inbound.ledger.jsonl import read_line
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


def _demo(text: str) -> str:
    """The line that ends the demo; README.md shows it too."""
    ending = demo.Ending(proof(), TopicSummary("flights", Counts(), Counts(events=1), {}, ()), {}, [])
    account = Account(published=1, failover_seconds=1.0)
    return json.dumps(demo.figures(Result(account, [], {}, Dispatched(1, 1, 0)), ending))


def _subscriber_status(text: str) -> str:
    """It can be read, and written again as it stands."""
    return decode_status("shown", text.encode()).encode().decode()  # type: ignore[union-attr]


def _ledger(text: str) -> str:
    """The reader takes each line, with the members of its kind and its checksum."""
    joined = re.sub(r"\n +", "", text)
    named = re.findall(r'"kind":"begun",("group".*?),"epoch"', joined)[0]
    for line in joined.replace(" ... ", named).splitlines():
        assert isinstance(read := read_line(line.encode(), Path("shown.jsonl"), 1, "host-1"), Entry), read
    return text


#: By the names that blocks say.
MADE: Mapping[str, Callable[[str], str]] = {
    maker.__name__.lstrip("_").replace("_", "-"): maker
    for maker in (_archive_summary, _demo, _ledger, _proof, _report, _subscriber_status)
}

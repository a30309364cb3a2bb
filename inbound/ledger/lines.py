"""The text of a ledger's lines, as `docs/ledger.md` describes them; without the sequence number and the seal."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.format import FORMAT_VERSION, FileName


class Lines:
    """Formats the entries of one consumer. A constant per partition is kept, the numbers are put in by hand:
    `json.dumps` of a whole line would take longer than to write it. Any thread.

    `wall` is in seconds since the Unix epoch, for people.
    """

    def __init__(self, group: str, consumer_id: str) -> None:
        self._group = group
        self._consumer_id = consumer_id
        self._owner = f'"group":{json.dumps(group)},"consumer":{json.dumps(consumer_id)}'
        self._partitions: dict[tuple[str, int], str] = {}

    def begun(self, entry: Range, wall: float) -> str:
        commit = "" if entry.commit is None else f'"commit":{entry.commit},'
        return (
            f'{{"kind":"begun",{self._of(entry.topic, entry.partition)},"epoch":{entry.epoch},"first":{entry.first},'
            f'"next":{entry.next},"records":{entry.records},{commit}"wall":{wall:.3f}'
        )

    def done(self, entry: Done, wall: float) -> str:
        return (
            f'{{"kind":"done",{self._of(entry.topic, entry.partition)},"epoch":{entry.epoch},"first":{entry.first},'
            f'"next":{entry.next},"commit":{_or_null(entry.commit)},"wall":{wall:.3f}'
        )

    def settled(self, entry: Settled, wall: float) -> str:
        return (
            f'{{"kind":"settled",{self._of(entry.topic, entry.partition)},"epoch":{entry.epoch},'
            f'"commit":{entry.commit},"outcome":"{entry.outcome}","mzxid":{_or_null(entry.mzxid)},"wall":{wall:.3f}'
        )

    def note(self, kind: str, topic: str, partition: int, epoch: int, facts: Mapping[str, Any], wall: float) -> str:
        owner = self._of(topic, partition)
        return f'{{"kind":"{kind}",{owner},"epoch":{epoch},"facts":{_json(facts)},"wall":{wall:.3f}'

    def degraded(self, lacking: Mapping[tuple[str, int, int], float], wall: float) -> list[str]:
        """Since those times (seconds since 1970) something was done with partitions, under epochs, that is not in the ledger.

        The first line is of the run, for readers of earlier releases, who know no others.
        """
        facts = _json({"from": round(min(lacking.values()), 3), "to": round(wall, 3), "partitions": len(lacking)})
        return [
            f'{{"kind":"degraded",{self._owner},"facts":{facts},"wall":{wall:.3f}',
            *(
                self.note("degraded", topic, partition, epoch, {"from": round(since, 3), "to": round(wall, 3)}, wall)
                for (topic, partition, epoch), since in sorted(lacking.items())
            ),
        ]

    def end(self, why: str, wall: float) -> str:
        """The last line of a file: `rolled` if another follows, `closed` if the run ended in good order."""
        return f'{{"kind":"end",{self._owner},"why":"{why}","wall":{wall:.3f}'

    def header(self, name: FileName, previous: str | None, why: str, wall: float) -> str:
        """The first line of a file: which it is, which came before it in this run, and why that one was left."""
        members = {
            "v": FORMAT_VERSION,
            "kind": "header",
            "group": self._group,
            "consumer": self._consumer_id,
            "run": name.run,
            "file": name.number,
            "previous": previous,
            "why": why,
            "writer": _writer(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": name.start,
            "wall": round(wall, 3),
        }
        return _json(members)[:-1]

    def _of(self, topic: str, partition: int) -> str:
        members = self._partitions.get((topic, partition))
        if members is None:
            members = f'{self._owner},"topic":{json.dumps(topic)},"partition":{partition}'
            self._partitions[topic, partition] = members
        return members


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _or_null(value: int | None) -> int | str:
    return "null" if value is None else value


def _writer() -> str:
    try:
        return f"inbound {metadata.version('inbound-kafka')}"
    except metadata.PackageNotFoundError:
        return "inbound (from a checkout)"

"""A process made by hand whose status has everything that the page can show, behind a real admin port."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inbound.admin.listener import AdminServer
from inbound.admin.routes import answered
from inbound.coordinators.pauses import Pause
from inbound.coordinators.subscriber_status import SubscriberStatus
from inbound.group.operations import Operation, OperationKind, OperationResult
from inbound.http.server.rights import Token
from inbound.ledger.base import LedgerStatus
from inbound.observe.explain.answer import PartitionQuestion
from inbound.observe.status.status import (
    ChannelStatus,
    ManifestStatus,
    PartitionStatus,
    ProcessStatus,
    ReloadStatus,
    ResetDetail,
    ResetsStatus,
    ResetStatus,
    stalled,
)
from inbound.partition.meters import MetersStatus
from tests.observe.status.made_status import channel, partition, process

TOKEN = "s3cret"
CONDITIONS = (
    ("RefMapped", "True"),
    ("AcquireDataPlaneServices", "True"),
    ("ConsumerGroupsStopped", "True"),
    ("OffsetsUpdated", "Unknown"),
    ("ConsumerGroupsStarted", "Unknown"),
    ("Succeeded", "Unknown"),
)


def well(number: int, now: float, **changes: Any) -> PartitionStatus:
    """Return a partition that moves."""
    made = {"cause": "healthy", "cause_since": now - 400, "lag": number * 3, "last_batch_at": now - number % 7}
    return partition(number, **{**made, **changes})


def night(now: float) -> ProcessStatus:
    """Return a process on a bad night: one of each of what can be wrong."""
    held = (
        "offset 811: ValueError: no such customer; failed 10 times; `inbound offsets reset --to-offset 812`, or mend it"
    )
    orders = [
        *(well(n, now) for n in range(5)),
        well(
            5,
            now,
            cause="poison-event",
            held=held,
            cause_since=now - 4000,
            stalled=stalled("poison-event", now - 4000),
            lag=4711,
        ),
        well(
            6,
            now,
            cause="slow-processor",
            cause_since=now - 95,
            stalled=stalled("slow-processor", now - 95),
            lag=120,
            place="running",
        ),
        well(
            7,
            now,
            cause="processor-fails",
            attempts=3,
            last_error="ConnectionResetError: [Errno 104] Connection reset by peer",
            lag=60,
        ),
    ]
    bills = [
        replace(
            well(n, now),
            topic="bills",
            cause="subscriber-down",
            cause_since=now - 700,
            lag=900 - n,
            stalled=stalled("subscriber-down", now - 700),
        )
        for n in range(3)
    ]
    audit = [replace(well(n, now), topic="audit", cause="paused", paused=True, lag=77) for n in range(2)]
    dispatch = {
        "subscriber": "https://billing.example/events",
        "subscriber_problem": "answered 503 for 11 min",
        "in_flight": 3,
        "open": 3,
        "waiting_dead_letters": 0,
        "standing": "bills/0: offset 17",
        "partitions": {"bills/0": "offset 17: answered 503, tried 41 times"},
        "delivered_total": 90123,
        "dead_lettered_total": 2,
        "filtered_total": 0,
        "skipped_total": 0,
        "undecodable_total": 3,
        "replied_total": 4,
        "retries_total": 512,
        "dead_letter_failures_total": 0,
        "headers_left_out_total": 0,
        "answers": {"0": 2, "202": 90123, "503": 510},
    }
    common: dict[str, Any] = {"ledger": LedgerStatus(entries_total=20412, bytes_total=4_000_000)}
    channels = [
        channel(
            topics={"orders": 12},
            members=["orders-0", "orders-1"],
            consumer_id="orders-0",
            partitions=orders,
            paced=True,
            meters=MetersStatus(exceptions={"ValueError": 10, "ConnectionResetError": 3}, retention_lost=17),
            **common,
        ),
        channel(
            name="bills.billing",
            group="bills",
            topics={"bills": 3},
            members=["bills-0"],
            consumer_id="bills-0",
            partitions=bills,
            processor=dispatch,
            not_sent_total=0,
            subscriber=SubscriberStatus(
                uid="billing", observedGeneration=4, ready="False", message="member bills-0: bills/0: answered 503"
            ),
            **common,
        ),
        channel(
            name="audit",
            group="audit",
            topics={"audit": 2},
            members=["audit-0"],
            consumer_id="audit-0",
            partitions=audit,
            not_sent_total=0,
            paused=[Pause("operator", None, "2026-11-22T01:40:00.000+00:00", "ann on web-7", "a new disk")],
            **common,
        ),
        channel(
            name="clicks",
            group="clicks",
            topics={"clicks": 4},
            members=["clicks-0"],
            consumer_id="clicks-0",
            partitions=[],
            not_sent_total=0,
            resets=[ResetStatus(name="20261122T014000Z-ab12", topic="clicks", step="stopping", since=now - 30)],
            **common,
        ),
    ]
    return process(
        started=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(now - 11000)),
        channels=channels,
        threads=[replace(t, last_step_age=0.1) for t in process().threads],
        config_problem="/etc/inbound/inbound.yaml:14: channels.orders.workers: needs a whole number above 0, got 'five'",
        reload=ReloadStatus(
            digest="0123456789ab",
            applied_total=3,
            refused_total=1,
            last_outcome="refused",
            last_at=now - 60,
            last_steps=["orders: edit (workers)"],
        ),
        reset_manifests=[
            ManifestStatus(
                name="shop/back", where="channels/reset.yaml:3", problem="channels/reset.yaml:3: no channel 'shop'"
            )
        ],
        resets=ResetsStatus(unfinished=1, known=resets(now)),
    )


def resets(now: float) -> list[ResetDetail]:
    """Return one that is under way, and one that has ended."""
    conditions = [
        {
            "type": type_,
            "status": status,
            "reason": "Stopped" if type_ == "ConsumerGroupsStopped" else "",
            "message": "no partition has an owner" if type_ == "ConsumerGroupsStopped" else "",
            "time": "2026-11-22T01:40:00Z",
        }
        for type_, status in CONDITIONS
    ]
    running = ResetDetail(
        name="20261122T014000Z-ab12",
        ref="Channel clicks",
        topic="clicks",
        group="clicks",
        what="to 2026-11-21T00:00:00Z",
        by="ann on web-7",
        state="stopped",
        finished=False,
        created=now - 31,
        ended=None,
        conditions=conditions,
    )
    done = [{**condition, "status": "True"} for condition in conditions]
    return [
        running,
        replace(
            running,
            name="20261121T1",
            topic="audit",
            what="to the earliest offset",
            state="succeeded",
            finished=True,
            created=now - 9000,
            ended=now - 8990,
            conditions=done,
        ),
    ]


def many(now: float, count: int = 1000) -> ProcessStatus:
    """Return a process that holds very many partitions, one of which is stalled."""
    rows = [well(n, now, lag=n % 50) for n in range(count)]
    rows[617] = well(617, now, cause="slow-processor", stalled=stalled("slow-processor", now - 50), lag=9)
    return process(channels=[channel(topics={"orders": count}, partitions=rows, not_sent_total=0)])


class Stage:
    """An admin port with this status; `asked` is what was asked for by POST, `looks` how often for the status. `close` ends it."""

    def __init__(
        self, found: ProcessStatus | Sequence[ProcessStatus], token: Token | None = None, port: int = 0
    ) -> None:
        self.found = found
        self.looks = 0
        self.asked: list[tuple[str, Operation]] = []
        self.texts: dict[str, Any] = {
            "text": "the processor has had offsets 0 to 56 for 22 s",
            "todo": "look where it is, below: the other side has to answer",
            "evidence": ['File "/app/orders.py", line 15, in book\n  billing.getresponse()'],
        }
        self.admin = AdminServer(
            self._look,
            host="127.0.0.1",
            port=port,
            port_given=True,
            token=token,
            operate=lambda name, operation: answered(lambda: self._operate(name, operation)),
            explain=self._explain,
        )
        self.admin.start()

    @property
    def url(self) -> str:
        return f"{self.admin.url}/"

    def close(self) -> None:
        self.admin.close()

    def _look(self) -> ProcessStatus | Sequence[ProcessStatus]:
        self.looks += 1
        return self.found

    def _channels(self) -> list[ChannelStatus]:
        processes = [self.found] if isinstance(self.found, ProcessStatus) else self.found
        return [one for process in processes for one in process.channels]

    def _operate(self, name: str, operation: Operation) -> OperationResult:
        self.asked.append((name, operation))
        if operation.verb is OperationKind.PAUSE and isinstance(self.found, ProcessStatus):
            self.found = replace(
                self.found,
                channels=[
                    replace(
                        one,
                        paused=[Pause("operator", None, "now", "the page", operation.reason)],
                        partitions=[replace(p, paused=True, cause="paused", stalled=None) for p in one.partitions],
                    )
                    if one.name == name
                    else one
                    for one in self.found.channels
                ],
            )
        done = f"{name}: {operation.verb.value} is done"
        return OperationResult(name, "svc", operation.verb.value, operation.consumer, True, done, ["a"], ["operator"])

    def _explain(self, question: PartitionQuestion) -> list[dict[str, Any]]:
        now, answers = time.time(), []
        for one in self._channels():
            found = next(
                (p for p in one.partitions if (p.topic, p.partition) == (question.tp.topic, question.tp.partition)),
                None,
            )
            if found is None or question.channel not in (None, one.name):
                continue
            event = {
                "at": now - 300,
                "kind": "claimed",
                "text": "claimed, after joining the group (share 4 of 4 partitions)",
                "facts": {},
            }
            answers.append(
                {
                    "channel": one.name,
                    "group": one.group,
                    "consumer": one.consumer_id,
                    "topic": found.topic,
                    "partition": found.partition,
                    "held": True,
                    "asked_at": now,
                    "members": one.members,
                    "share": one.share,
                    "notices": [],
                    "claimed": event,
                    "events": [
                        event,
                        {
                            **event,
                            "at": now - 90,
                            "kind": "stalled",
                            "text": f"stalled: {self.texts['text']}",
                            "count": 3,
                            "last": now - 80,
                        },
                    ],
                    "numbers": {
                        "epoch": 7,
                        "place": "running",
                        "position": found.position,
                        "committed": found.committed,
                        "end": found.high_watermark,
                        "lag": found.lag,
                        "buffered_records": 12,
                        "buffered_bytes": 40960,
                        "records": 500,
                        "commits": 4,
                        "last_batch_at": now - 4,
                    },
                    "explanation": {"cause": found.cause, "since": found.cause_since, **self.texts},
                }
            )
        return answers

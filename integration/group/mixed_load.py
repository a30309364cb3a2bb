"""Load of many kinds with nothing wrong, and an account of its own of what was stalled: nobody may be accused wrongly."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from inbound import Batch, BatchResponse
from inbound.observe.explain.facts import BENIGN, Cause
from inbound.partition.partition import Partition
from inbound.process.application import Application
from inbound.topic_partition import TopicPartition
from integration.observe.explain.explaining import Stage, advance
from tests.waiting import until

#: What advanced this short a time before it was accused was not stalled, in seconds: a second, and the time between two
#: looks, for it advanced somewhere between them. A machine that was frozen there counts as well.
JUST_MOVED = 1.5
PARTITIONS = 4
#: Longer than a busy machine is frozen: a member that has lost its session is not stalled by its own fault.
SESSION = "30s"


class Subscriber:
    """Takes every event, some of them a little late."""

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                time.sleep(random.random() * 0.02)
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, name="subscriber", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def slow_now_and_then(batch: Batch) -> BatchResponse:
    if batch.first_offset % 50 < len(batch):
        time.sleep(0.3)
    return BatchResponse.advance()


def half(batch: Batch) -> BatchResponse:
    return BatchResponse.advance(batch.first_offset + (len(batch) + 1) // 2)


def resting(batch: Batch) -> BatchResponse:
    return BatchResponse.advance(wait=0.5)


def later(batch: Batch) -> BatchResponse:
    return BatchResponse.next(commit_within=2.0)


def once_more(batch: Batch) -> BatchResponse:
    """Reads each batch twice, as who lacks something for a moment."""
    if random.random() < 0.3:
        return BatchResponse.revert(wait=0.1)
    return BatchResponse.advance()


@dataclass
class Account:
    """What was said in that time."""

    seconds: float
    records: int = 0
    looks: int = 0
    rebalances: int = 0
    said: Counter[str] = field(default_factory=Counter)  # cause: at how many looks, over all partitions
    false: list[str] = field(default_factory=list)  # accusations of who had just moved, or had nothing to read
    disturbed: list[str] = field(default_factory=list)  # really stalled: the machine was held up
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class _Seen:
    """How a partition stood right before a look."""

    partition: Partition
    at: float  # monotonic time of the look
    mark: tuple[int, int]  # committed, position
    since: float  # it had that mark then; where it has just got it, since the look before
    done: bool  # there is nothing to read, and nothing was read ahead


def run_mixed_load(stage: Stage, seconds: float, *, per_second: float = 30.0) -> Account:
    """Let it run so long, with a second member that comes and goes, and look at the cause of each partition."""
    subscriber = Subscriber()
    kinds = {
        "plain": advance,
        "slowish": slow_now_and_then,
        "half": half,
        "resting": resting,
        "later": later,
        "twice": once_more,
    }
    for name, behaviour in kinds.items():
        stage.channel(name, behaviour, partitions=PARTITIONS)
    stage.channel(
        "async", partitions=PARTITIONS, processor={"type": "integration.observe.explain.explaining:ToldLater"}
    )
    options = {"subscriberUri": subscriber.url}
    stage.channel("dispatched", partitions=PARTITIONS, processor={"type": "dispatch", "options": options})
    stage.channel(
        "paced", partitions=PARTITIONS, processor={"type": "simple", "options": {"max_read_rate": 20, "sinks": ["log"]}}
    )
    stage.channel("silent", partitions=PARTITIONS)
    names = [*kinds, "async", "dispatched", "paced", "silent"]
    first = stage.start(*names, session=SESSION)
    until(lambda: all(len(c.parts.schedule.held()) == PARTITIONS for c in first.channels), 120, "all is owned")
    account = Account(seconds)
    stop = threading.Event()
    load = threading.Thread(target=_load, args=(stage, names[:-1], per_second, stop, account), name="load")
    load.start()
    looks = _Looks(first, account)
    try:
        _members(stage, names, seconds, account)
    finally:
        looks.end()
        stop.set()
        load.join()
        subscriber.close()
    return account


def _load(stage: Stage, names: list[str], per_second: float, stop: threading.Event, account: Account) -> None:
    """Publish in bursts and with pauses: partitions run dry, and are filled again."""
    rng = random.Random(1)
    while not stop.wait(0.25):
        for name in names:
            partition = rng.randrange(PARTITIONS)
            count = rng.randrange(int(per_second / 2))
            if count:
                stage.publish(name, partition, count)
                account.records += count


class _Looks:
    """What one process says of its partitions right after it has looked at them, beside what they did right before.

    A look at another time can't tell which was wrong: a partition that was stalled, was named for it, and has gone
    on since is called so until the process looks again. On the thread of the process that looks.
    """

    def __init__(self, application: Application, account: Account) -> None:
        self._application = application
        self._account = account
        self._seen: dict[TopicPartition, _Seen] = {}
        self._told: set[tuple[TopicPartition, str, float | None]] = set()
        self._over = False
        self._run_once = application.detector.run_once
        application.detector.run_once = self._look  # type: ignore[method-assign]

    def end(self) -> None:
        """Judge no more. Any thread. A member that is ended in the midst of its work is stalled."""
        with self._account.lock:
            self._over = True

    def _look(self) -> float | None:
        for p in self._held():
            mark, before = (p.committed or 0, p.position.delivered), self._seen.get(p.tp)
            still = before is not None and (before.partition, before.mark) == (p, mark)
            now = time.monotonic()
            since = now if before is None or before.partition is not p else before.since if still else before.at
            self._seen[p.tp] = _Seen(p, now, mark, since, p.lag == 0 and not p.buffer)
        at = self._run_once()
        with self._account.lock:
            self._judge(time.monotonic())
        return at

    def _held(self) -> list[Partition]:
        return [p for channel in self._application.channels for p in channel.parts.schedule.held()]

    def _judge(self, now: float) -> None:
        account = self._account
        if self._over:
            return
        account.looks += 1
        for p in self._held():
            account.said[p.stall.cause] += 1
            told = (p.tp, p.stall.cause, p.stall.cause_since)
            if told in self._told or (Cause(p.stall.cause) in BENIGN and p.stall.since is None):
                continue
            self._told.add(told)
            seen = self._seen.get(p.tp)
            known = seen is not None and seen.partition is p
            still = now - seen.since if known and seen is not None else 0.0
            done = known and seen is not None and seen.done
            line = f"{p.tp}: {p.stall.cause}, and had not moved for {still:.1f} s, lag {p.lag}"
            (account.false if still < JUST_MOVED or done else account.disturbed).append(line)


def _members(stage: Stage, names: list[str], seconds: float, account: Account) -> None:
    """For so long, let a second member come and go."""
    began = time.monotonic()
    other: tuple[Application, _Looks] | None = None
    change_at = began + seconds / 4
    while (now := time.monotonic()) < began + seconds:
        if now >= change_at:
            change_at = now + max(5.0, seconds / 4)
            account.rebalances += 1
            if other is None:
                member = stage.start(*names, session=SESSION)
                other = member, _Looks(member, account)
            else:
                member, looks = other
                looks.end()
                stage.stop(member)
                other = None
        time.sleep(0.25)
    if other is not None:
        other[1].end()

"""Simulated HTTP receivers of dispatched events judge what arrives.

Of the dispatcher they know nothing but what `docs/dispatch.md` promises.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from inbound.processors.batch import Batch, BatchResponse, PlainRecord
from inbound.processors.dispatch.processor import DispatchProcessor
from inbound.processors.dispatch.transport import Answer, Done, Target, Transport
from inbound.testing.simulation.reset_judge import changed_offsets
from inbound.testing.world import Consumer
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.testing.simulation.stage import Stage

SUBSCRIBER, REPLIES, DEAD = "http://subscriber/", "http://replies/", "http://dead/"
#: The number of keys; one event in `POISONED` is refused for good, and one record in `UNDECODABLE` is no event.
KEYS, POISONED, UNDECODABLE = 3, 11, 17
#: How long a request and its answer are in flight at most, and how long a receiver takes. Seconds.
LATENCY, TAKES = 0.01, 0.05
#: Answers that refuse an event for good.
REFUSALS = (400, 403, 302)
#: The longest `Retry-After`, and the timeout of a request. Seconds.
LONGEST_REST, TIMEOUT = 3.0, 1.5

Lane = tuple[TopicPartition, bytes | None]


@dataclass(frozen=True, eq=False)
class Trouble:
    """What a receiver does to some events for a while."""

    what: str  # refuses, fails, busy, hangs, late, cuts, dead
    url: str
    share: int  # it affects one event in this many
    seconds: float  # that it asks for, or takes

    def meets(self, url: str, ids: Sequence[str]) -> bool:
        """Return whether it affects this request."""
        return url == self.url and any(crc32(one.encode()) % self.share == 0 for one in ids)


@dataclass(eq=False)
class PostedEvent:
    """One record, and what the receivers know of it."""

    tp: TopicPartition
    offset: int
    #: Its number in order of publication: where a log was cut, the lower offset may be the later one.
    number: int
    lane: Lane | None
    decodable: bool
    arrived: bool = False
    #: The subscriber has answered 2xx; its reply was taken; it is with the dead letters.
    taken: bool = False
    replied: bool = False
    dead: bool = False


@dataclass(eq=False)
class PostRequest:
    """One request in flight."""

    by: SimulatedTransport
    url: str
    ids: tuple[str, ...]
    done: Done
    claim: object  # under which its events were delivered
    said: Mapping[str, str]  # attributes, of a single event
    timer: asyncio.TimerHandle | None = None
    over: bool = False


@dataclass(eq=False)
class _Sent:
    """One claim's posts of one event."""

    posts: int = 0
    answer: Answer | None = None  # the last one that came back
    not_before: float = 0.0


class SimulatedTransport(Transport):
    """One processor's transport; answers wait in its loop while it is stopped."""

    def __init__(self, receivers: Receivers, host: Callable[[], Consumer], loop: asyncio.AbstractEventLoop) -> None:
        self._receivers = receivers
        self.host = host
        self.loop = loop

    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        headers = dict(line.decode().split(": ", 1) for line in [*target.headers, *lines])
        request = self._receivers.posted(self, target.url, headers, body, done)
        late = Answer(0, problem=f"no whole answer within {target.timeout:g} s")
        request.timer = self.loop.call_later(target.timeout, self._came_back, request, late)

    def came_back(self, request: PostRequest, answer: Answer) -> None:
        """An answer reaches the process."""
        if not (self.host().dead or self.loop.is_closed()):
            self.loop.call_soon(self._came_back, request, answer)
            self.host().channel.parts.worker_wakeup.set()

    def _came_back(self, request: PostRequest, answer: Answer) -> None:
        if not request.over:
            request.over = True
            if request.timer is not None:
                request.timer.cancel()
            self._receivers.told(request, answer)
            request.done(answer)

    def retire(self, target: Target) -> None:
        """There are no connections to be closed."""

    def close(self) -> None:
        """Open requests stay unanswered."""


class Heard(DispatchProcessor):
    """A dispatcher that reports the claim of each delivery to the receivers."""

    def __init__(self, receivers: Receivers, host: Callable[[], Consumer]) -> None:
        super().__init__(partial(SimulatedTransport, receivers, host))
        self._told = receivers.handed
        self._host = host

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        self._told(self._host().name, batch)
        return await super().on_next_batch(batch)


class Receivers:
    """All receivers, which judge each request."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        assert stage.plan.setup.dispatch is not None
        self._setup = stage.plan.setup.dispatch
        self.troubles: list[Trouble] = []
        self._rng = Random(f"{stage.plan.seed} receivers")
        self._events: dict[str, PostedEvent] = {}
        self._commits: dict[TopicPartition, int] = {}
        #: The claim of the last delivery, and its events by offset: a commit answers for these, also where the log was cut since
        #: and has other records there.
        self._held: dict[TopicPartition, tuple[object, dict[int, str]]] = {}
        self._under_way: list[PostRequest] = []
        self._claims: dict[tuple[str, str], object] = {}  # by process and event
        self._sent: dict[tuple[object, SimulatedTransport, str], _Sent] = defaultdict(_Sent)
        self._posted: dict[tuple[object, SimulatedTransport, TopicPartition], set[int]] = defaultdict(set)
        stage.kafka.stamp = self._stamp
        stage.ensemble.observers.append(self._committed)

    # -- what the processes are made of ------------------------------------------------------------------------------------

    @property
    def options(self) -> dict[str, Any]:
        """The processors' options."""
        setup = self._setup
        sink = {"topic": {"deadLetterSink": "dead"}, "url": {"deadLetterSink": DEAD}, "": {}}[setup.sink]
        return {
            "subscriberUri": SUBSCRIBER,
            "delivery": {"retry": setup.retry, "backoffDelay": "100ms", "timeout": f"{TIMEOUT}s", **sink},
            "ordering": setup.ordering,
            "max_in_flight": setup.window,
            **({"replyUri": REPLIES} if setup.replies else {}),
            **({"batch": {"max_events": setup.batch, "max_delay": "20ms"}} if setup.batch else {}),
            **({"mode": "structured"} if setup.structured and not setup.batch else {}),
        }

    def handed(self, process: str, batch: Batch) -> None:
        """A batch is delivered to a dispatcher."""
        names = {record.offset: _id_of(record.value) for record in batch.records}
        self._claims.update({(process, name): batch.claim for name in names.values()})
        tp = TopicPartition(batch.topic, batch.partition)
        claim, held = self._held.get(tp, (None, {}))
        self._held[tp] = batch.claim, (held if claim == batch.claim else {}) | names

    def send(self, records: Sequence[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]]) -> None:
        """Take what a dispatcher publishes to the dead-letter topic."""
        self.stage.check_dead_letters()
        for _, value, headers in records:
            said = {name.removeprefix("ce_"): raw.decode() for name, raw in headers}
            self.dead_letter(_id_of(value or b""), said)

    def open_topic(self, topic: str) -> Receivers:
        """Return what publishes dead letters."""
        return self

    def _stamp(self, tp: TopicPartition, record: PlainRecord) -> PlainRecord:
        """Make each record an event; some are undecodable if a sink exists."""
        name = f"{tp}#{record.offset}@{len(self._events)}"  # its id, and its data
        number = crc32(name.encode())
        decodable = not self._setup.sink or number % UNDECODABLE != 0
        key = b"k%d" % (number % KEYS) if number % 7 else None
        lanes: dict[str, Lane | None] = {
            "partition": (tp, None),
            "key": (tp, key) if key is not None else None,
            "none": None,
        }
        self._events[name] = PostedEvent(tp, record.offset, len(self._events), lanes[self._setup.ordering], decodable)
        headers = [
            ("ce_specversion", b"1.0"), ("ce_id", name.encode()), ("ce_source", b"/simulated"), ("ce_type", b"order"),
        ]  # fmt: skip
        return PlainRecord(record.offset, record.timestamp, key, name.encode(), headers if decodable else ())

    # -- requests ----------------------------------------------------------------------------------------------------------

    def posted(
        self, by: SimulatedTransport, url: str, headers: Mapping[str, str], body: bytes, done: Done
    ) -> PostRequest:
        """A process sends a request: it arrives a little later, or never."""
        ids, said = _read(headers, body)
        request = PostRequest(by, url, ids, done, self._claims.get((by.host().name, ids[0])), said)
        if url == SUBSCRIBER:
            self._judge_sending(request)
        self._under_way = [one for one in self._under_way if not one.over]
        self._under_way.append(request)
        self._after(LATENCY, lambda: self._arrives(request))
        return request

    def told(self, request: PostRequest, answer: Answer) -> None:
        """A process learns the answer to a request."""
        now = self.stage.world.clock.now()
        for one in request.ids:
            if request.url == SUBSCRIBER:
                sent = self._sent[request.claim, request.by, one]
                sent.answer, sent.not_before = answer, now + (answer.retry_after or 0.0)

    def _arrives(self, request: PostRequest) -> None:
        trouble = next((one for one in self.troubles if one.meets(request.url, request.ids)), None)
        what = trouble.what if trouble is not None else ""
        if what == "dead" or (what == "cuts" and self._rng.random() < 0.5):  # before it has arrived
            problem = "no connection" if what == "dead" else "the connection broke"
            request.by.came_back(request, Answer(0, problem=problem))
            return
        if request.url == SUBSCRIBER:
            self._judge_arrival(request)
        if what == "hangs":
            return
        takes = trouble.seconds if trouble is not None and what == "late" else self._rng.random() * TAKES
        self._after(takes, lambda: self._answers(request, what, trouble.seconds if trouble is not None else 0.0))

    def _answers(self, request: PostRequest, what: str, seconds: float) -> None:
        refused = (
            request.url == SUBSCRIBER
            and self._setup.sink
            and any(crc32(one.encode()) % POISONED == 0 for one in request.ids)
        )
        if what == "refuses" or refused:
            answer = Answer(self._rng.choice(REFUSALS))
        elif what == "fails" or (request.url == DEAD and self.stage.dead_letters_fail):
            answer = Answer(self._rng.choice((500, 404, 409)))
        elif what == "busy":
            answer = Answer(self._rng.choice((429, 503)), retry_after=min(seconds, LONGEST_REST))
        else:
            answer = self._takes(request)
        if what == "cuts":
            answer = answer._replace(problem="the connection broke", body=b"")
        self._after(LATENCY, lambda: request.by.came_back(request, answer))

    def _takes(self, request: PostRequest) -> Answer:
        if request.url == DEAD:
            (one,) = request.ids
            self.dead_letter(one, request.said)
        elif request.url == REPLIES:
            self._replied(request.ids)
        else:
            for one in request.ids:
                self._events[one].taken = True
        if request.url != SUBSCRIBER or not self._setup.replies:
            return Answer(202)
        name = "re:" + "|".join(request.ids)
        headers = [
            (b"ce-specversion", b"1.0"), (b"ce-id", name.encode()), (b"ce-source", b"/subscriber"), (b"ce-type", b"reply"),
        ]  # fmt: skip
        return Answer(200, headers, name.encode())

    def _replied(self, ids: Sequence[str]) -> None:
        for name in ids:
            if not name.startswith("re:"):
                self.stage.judge.violated(f"{name!r} is posted as a reply, and is none")
                return
            for one in name.removeprefix("re:").split("|"):
                self._events[one].replied = True

    def dead_letter(self, one: str, said: Mapping[str, str]) -> None:
        """A dispatcher gives up an event or a reply."""
        self.stage.judge.say(f"dead letter {one}: {said.get('knativeerrorcode')}")
        if one.startswith("re:"):
            self._replied([one])
        else:
            self._judge_dead_letter(one, said)
            self._events[one].dead = True

    def _after(self, longest: float, happen: Callable[[], None]) -> None:
        scheduler = self.stage.scheduler
        scheduler.at_next(longest if longest > LATENCY else self._rng.random() * longest, happen)

    # -- what must hold ----------------------------------------------------------------------------------------------------

    def _is_finished(self, one: str) -> bool:
        event = self._events[one]
        return event.dead or (event.taken and (event.replied or not self._setup.replies))

    def _judge_sending(self, request: PostRequest) -> None:
        judge, now, setup = self.stage.judge, self.stage.world.clock.now(), self._setup
        who = request.by.host().name
        judge.say(f"{who} posts {', '.join(request.ids)}")
        ours = [
            o
            for o in self._under_way
            if not o.over and (o.by, o.claim, o.url) == (request.by, request.claim, SUBSCRIBER)
        ]
        lanes = {self._events[one].lane for other in ours for one in other.ids}
        for one in request.ids:
            event = self._events[one]
            sent, posted = (
                self._sent[request.claim, request.by, one],
                self._posted[request.claim, request.by, event.tp],
            )
            sent.posts += 1
            posted.add(event.offset)
            if event.lane is not None and event.lane in lanes:
                judge.violated(f"{who} posts {one} while another one, which it must not overtake, is on its way")
            if now < sent.not_before:
                judge.violated(
                    f"{who} posts {one} again {sent.not_before - now:.3f} s sooner than the subscriber has asked for"
                )
            if setup.sink and not setup.batch and sent.posts > setup.retry + 1:
                judge.violated(f"{who} posts {one} {sent.posts} times, with retry {setup.retry}")
            commit = judge.commit_of(event.tp) or 0
            behind = sum(offset >= commit for offset in posted)
            if behind > setup.window:
                judge.violated(
                    f"{who} has {behind} events of {event.tp} posted and not committed, of {setup.window} at most"
                )

    def _judge_arrival(self, request: PostRequest) -> None:
        """Judge that a new event arrives after its lane's earlier ones."""
        judge = self.stage.judge
        for number, one in enumerate(request.ids):
            event = self._events[one]
            if event.arrived or event.lane is None:
                event.arrived = True
                continue
            event.arrived = True
            before = request.ids[:number]
            commit = judge.commit_of(event.tp) or 0
            names = [_id_of(r.value) for r in self.stage.kafka.records(event.tp) if commit <= r.offset < event.offset]
            earlier = [n for n in names if self._events[n].number < event.number and n not in before]
            open_ = [n for n in earlier if self._events[n].lane == event.lane and not self._is_finished(n)]
            if open_:
                judge.violated(f"{one} arrives before {', '.join(open_)}, which it must not overtake")

    def _judge_dead_letter(self, one: str, said: Mapping[str, str]) -> None:
        judge, event = self.stage.judge, self._events[one]
        if "knativeerrordest" not in said or said["knativeerrordest"] != SUBSCRIBER:
            judge.violated(f"dead letter {one} says {dict(said)}, and not who has not taken it")
        if not event.decodable:
            return
        claims = [sent for (_, _, other), sent in self._sent.items() if other == one]
        answers = [sent.answer for sent in claims if sent.answer is not None]
        refused = any(answer.problem is None and answer.status in REFUSALS for answer in answers)
        enough = any(sent.posts > self._setup.retry for sent in claims) or (self._setup.batch and claims)
        if not refused and not enough:
            judge.violated(f"{one} is given up after {[sent.posts for sent in claims]} requests, none refused for good")

    def _committed(self, commit: Commit) -> None:
        """Judge that the subscriber or a sink took every committed event."""
        stage = self.stage
        for tp, new in changed_offsets(commit, stage.paths):
            old, self._commits[tp] = self._commits.get(tp, new), new
            claim, held = self._held.get(tp, (None, {}))
            names = {record.offset: _id_of(record.value) for record in stage.kafka.records(tp)} | held
            missing = [one for offset, one in names.items() if old <= offset < new and not self._is_finished(one)]
            if new <= old:  # later deliveries no longer count: the log may have been cut there
                self._held[tp] = claim, {offset: one for offset, one in held.items() if offset < new}
            if missing and commit.session:
                stage.judge.violated(
                    f"{tp} is committed to {new}, and neither subscriber nor dead letter sink has taken {', '.join(missing)}"
                )


def _id_of(value: object) -> str:
    """Return the id of the event with this record value."""
    assert isinstance(value, bytes)
    return value.decode()


def _read(headers: Mapping[str, str], body: bytes) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return a request's event ids in order, and a single event's attributes."""
    if "ce-id" in headers:
        return (_id_of(body),), {name.removeprefix("ce-"): text for name, text in headers.items()}
    found = json.loads(body)
    return (tuple(event["id"] for event in found), {}) if isinstance(found, list) else ((found["id"],), found)

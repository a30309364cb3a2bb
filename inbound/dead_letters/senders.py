"""Sends redriven letters: to topics, or to a subscriber."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kafka
import kafka.errors

from inbound.dead_letters.redrive import Done, Parcel, RedriveOutcome
from inbound.errors import BrokerRefusedError, BrokerUnavailableError
from inbound.kafka.python.client import is_refused, why
from inbound.kafka.python.connections import described
from inbound.kafka.python.producer import LARGEST, SEND_TIMEOUT, UNAFFECTED, advice, client_settings, end
from inbound.processors.cloudevents_bridge import HttpParts, Refused, http_to_records, is_event, record_to_binary
from inbound.processors.dispatch.attempts import AnswerVerdict, is_refusal, judge, wait_before
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.processors.dispatch.encoding import Encoding, as_record, batch_of
from inbound.processors.dispatch.limits import Bucket
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.processor import transport_of
from inbound.processors.dispatch.transport import Answer, Target, Targets, Transport, targets_of

#: The most letters that are sent and not noted, so that a crash sends them again.
WINDOW = 500
_MILLISECONDS = int(SEND_TIMEOUT * 1000)
#: Errors by which the brokers refuse one record for good.
_REFUSALS = (
    kafka.errors.MessageSizeTooLargeError,
    kafka.errors.RecordListTooLargeError,
    kafka.errors.InvalidRecordError,
    kafka.errors.InvalidTimestampError,
    kafka.errors.PolicyViolationError,
    kafka.errors.TopicAuthorizationFailedError,
    kafka.errors.InvalidTopicError,
)


class TopicSender:
    """A producer for any topic. One thread; `close` it."""

    def __init__(self, properties: Mapping[str, Any], make: Callable[..., Any] = kafka.KafkaProducer) -> None:
        """`properties` are Kafka's own. Connects to nothing yet."""
        self._settings = client_settings(properties)
        self._make = make
        self._producer: Any = None

    def send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
        """See `inbound.dead_letters.redrive.LetterSender`. In order: those of one partition keep theirs."""
        waiting: deque[tuple[Parcel, Any]] = deque()
        try:
            for parcel in parcels:
                while waiting and (len(waiting) >= WINDOW or waiting[0][1].is_done):
                    self._settle(*waiting.popleft(), done)
                waiting.append((parcel, self._begin(parcel)))
        finally:  # also where the reading fails: what was sent is noted
            self._settle_all(waiting, done)

    def close(self) -> None:
        """Close the producer, if there is one; bounded."""
        if self._producer is not None:
            end(self._producer, 3.0)

    def _begin(self, parcel: Parcel) -> Any:
        key, value, headers = parcel.parts
        try:
            if self._producer is None:
                self._producer = self._make(
                    **{
                        **self._settings, **UNAFFECTED, "client_id": "inbound-dead-letters", "max_request_size": LARGEST,
                        "max_block_ms": _MILLISECONDS, "request_timeout_ms": _MILLISECONDS - 1000, "linger_ms": 5,
                        "delivery_timeout_ms": _MILLISECONDS,  # what has failed is over: it is not written later
                    }
                )  # fmt: skip
            return self._producer.send(
                parcel.topic,
                # The producer takes no null key with a null value: it is sent empty.
                key=b"" if key is None and value is None else key,
                value=value,
                headers=list(headers),
                partition=parcel.to_partition,
            )
        except kafka.errors.KafkaError as error:
            raise self._away(parcel, error) from None

    def _settle_all(self, waiting: deque[tuple[Parcel, Any]], done: Done) -> None:
        """Note all acknowledged parcels, and raise the first error."""
        problem = None
        while waiting:
            try:
                self._settle(*waiting.popleft(), done)
            except BrokerUnavailableError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def _settle(self, parcel: Parcel, sent: Any, done: Done) -> None:
        try:
            written = sent.get(timeout=SEND_TIMEOUT)
        except _REFUSALS as error:
            done(parcel, RedriveOutcome(False, f"topic {parcel.topic}", f"{described(error)}; {advice(error)}"))
            return
        except kafka.errors.KafkaError as error:
            raise self._away(parcel, error) from None
        done(parcel, RedriveOutcome(True, f"{parcel.topic}/{written.partition}/{written.offset}"))

    def _away(self, parcel: Parcel, error: kafka.errors.KafkaError) -> BrokerUnavailableError:
        if is_refused(self._settings):
            return BrokerRefusedError(f"topic {parcel.topic}: {why(self._settings, error)}")
        return BrokerUnavailableError(
            f"topic {parcel.topic}: letter {parcel.partition}/{parcel.offset} was not acknowledged ({described(error)}); "
            f"{advice(error)}"
        )


#: Seconds between two checks of a wait for its stop.
_LOOK = 0.1


class SubscriberSender:
    """Posts letters to one subscriber, with its headers, TLS, delivery and limits.

    One thread. The limits are for its own posts; the requests of the subscription's members come on top. A letter that is refused
    for good, or after all retries of `delivery.retry`, stays in its topic: it is not dead-lettered a second time.
    """

    def __init__(
        self, options: DispatchOptions, parallel: int,
        make: Callable[[asyncio.AbstractEventLoop], Transport] | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:  # fmt: skip
        """Raises ConfigError if a file of the options is unusable."""
        self._options = options
        self._targets = targets_of(options)
        self._parallel = min(parallel, options.limits.in_flight or parallel)
        self._make = make or transport_of(options)
        self._loop_factory = loop_factory

    @property
    def shown(self) -> str:
        """The subscriber's URL, as messages show it."""
        return self._targets.subscriber.shown

    def send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
        """See `inbound.dead_letters.redrive.LetterSender`. Those of one key go one after the other."""
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._send(parcels, done, stop))

    def close(self) -> None:
        """Nothing is open between two calls of `send`."""

    async def _send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
        transport = self._make(asyncio.get_running_loop())
        post = _Posting(self._options, self._targets, transport, stop)
        pending: set[asyncio.Task[None]] = set()
        last: dict[bytes, asyncio.Task[None]] = {}  # by key

        async def one(parcel: Parcel, before: asyncio.Task[None] | None) -> None:
            if before is not None:
                await asyncio.wait({before})
            outcome = None if stop.is_set() else await post.deliver(parcel)
            if outcome is not None:
                done(parcel, outcome)

        def ended(task: asyncio.Task[None]) -> None:
            for key in [key for key, other in last.items() if other is task]:
                del last[key]

        try:
            for parcel in parcels:  # blocks while it reads Kafka: what is answered then is looked at afterwards
                key = parcel.parts.key
                task = asyncio.ensure_future(one(parcel, last.get(key) if key is not None else None))
                pending.add(task)
                if key is not None:
                    last[key] = task
                    task.add_done_callback(ended)
                await asyncio.sleep(0)  # it is sent now, whenever the next one has been read
                while len(pending) >= self._parallel:
                    pending = await _next_of(pending)
            while pending:
                pending = await _next_of(pending)
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
            transport.close()


async def _next_of(pending: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    ended, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        task.result()  # the ledger cannot be written: nothing more is sent
    return pending


class _Posting:
    """Delivers single letters to a subscriber, in an event loop's thread."""

    def __init__(
        self, options: DispatchOptions, targets: Targets, transport: Transport, stop: threading.Event
    ) -> None:  # fmt: skip
        self._options = options
        self._encoding = Encoding(options, targets.subscriber.headers, DispatchCounters())
        self._subscriber, self._reply = targets.subscriber, targets.reply
        self._bucket = Bucket(options.limits.rate) if options.limits.rate is not None else None
        self._transport = transport
        self._stop = stop

    async def deliver(self, parcel: Parcel) -> RedriveOutcome | None:
        """Post one letter; None if stopped before its outcome."""
        record = as_record(parcel.parts)
        to_reply = parcel.reply and self._reply is not None
        target = self._reply if parcel.reply and self._reply is not None else self._subscriber
        try:
            parts = record_to_binary(record) if to_reply else self._encoded(parcel)
        except Refused as refused:
            return RedriveOutcome(False, target.shown, f"it is no CloudEvent that could be posted: {refused}")
        answer = await self._post_until(target, parts)
        if answer is None:
            return None
        if judge(answer, 1) is not AnswerVerdict.TAKEN:
            return RedriveOutcome(False, target.shown, answer.shown)
        if to_reply or self._reply is None or not is_event(answer.headers):
            return RedriveOutcome(True, target.shown)
        return await self._deliver_replies(self._reply, answer)

    def _encoded(self, parcel: Parcel) -> HttpParts:
        record = as_record(parcel.parts)
        if self._options.batch is not None:  # the subscriber has asked for batches
            return batch_of([self._encoding.in_batch(record)])
        return self._encoding.for_subscriber(record)

    async def _deliver_replies(self, target: Target, answer: Answer) -> RedriveOutcome | None:
        """Post the subscriber's reply if it is an event, like the dispatcher."""
        try:
            if answer.cut:
                raise Refused("it is longer than what is read of an answer")
            replies = [record_to_binary(as_record(parts)) for parts in http_to_records(answer.headers, answer.body)]
        except Refused:
            return RedriveOutcome(True, self._subscriber.shown)
        for parts in replies:
            said = await self._post_until(target, parts)
            if said is None:
                return None
            if judge(said, 1) is not AnswerVerdict.TAKEN:
                return RedriveOutcome(
                    False,
                    self._subscriber.shown,
                    f"it was taken, but {target.shown} did not take its reply: {said.shown}",
                )
        return RedriveOutcome(True, self._subscriber.shown)

    async def _post_until(self, target: Target, parts: HttpParts) -> Answer | None:
        """Post with retries until an outcome; None if stopped before."""
        delivery, failures = self._options.delivery, 0
        while True:
            if target is self._subscriber and not await self._turn():
                return None
            answer = await self._post(target, parts)
            if judge(answer, 1) is AnswerVerdict.TAKEN:
                return answer
            failures += 1
            if is_refusal(answer) or failures > delivery.retry:
                return answer
            if await self._rest(wait_before(failures, delivery, answer, endless=False)):
                return None

    async def _turn(self) -> bool:
        """Wait for the rate limit. Returns False if stopped."""
        now = asyncio.get_running_loop().time
        while self._bucket is not None and (seconds := self._bucket.wait(now())) > 0:
            if await self._rest(seconds):
                return False
        if self._bucket is not None:
            self._bucket.take(now())
        return True

    async def _post(self, target: Target, parts: HttpParts) -> Answer:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._transport.post(target, parts.lines, parts.body, done)
        return await answered

    async def _rest(self, seconds: float) -> bool:
        """Wait. Returns whether it is stopped."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not self._stop.is_set() and (left := until - loop.time()) > 0:
            await asyncio.sleep(min(_LOOK, left))
        return self._stop.is_set()

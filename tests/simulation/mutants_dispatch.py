"""Mutants of the dispatcher: what its subscriber, its dead letter sink and who takes its replies would notice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from inbound.processors.batch import BatchResponse
from inbound.processors.dispatch import dead_letters, delivery
from inbound.processors.dispatch.attempts import AnswerVerdict, Attempts, judge
from inbound.processors.dispatch.dead_letters import DeadLetters
from inbound.processors.dispatch.delivery import Replies, Reply, SubscriberDelivery
from inbound.processors.dispatch.jobs import Job
from inbound.processors.dispatch.options import DeliverySpec
from inbound.processors.dispatch.processor import DispatchProcessor
from inbound.processors.dispatch.transport import Answer
from inbound.processors.dispatch.window import Lane, OpenEvent, RequestPart, SendWindow
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import Plant, mutant_of, storm_has

Original = Callable[..., Any]


def _front_over_what_is_open(plant: Plant) -> None:
    def finish(original: Original, self: SendWindow, entry: OpenEvent) -> None:
        original(self, entry)
        while self._open and any(e.finished for e in self._open):
            plant.bite()
            self._open.popleft()
            self.passed += 1

    plant.around(SendWindow, "finish", finish)


def _half_an_answer_is_one(plant: Plant) -> None:
    def judged(answer: Answer, events: int) -> AnswerVerdict:
        if answer.problem is not None and 200 <= answer.status < 300:
            plant.bite()
            return AnswerVerdict.TAKEN
        return judge(answer, events)

    for module in (delivery, dead_letters):
        plant.put(module, "judge", judged)


def _refused_is_finished(plant: Plant) -> None:
    def dead_letter(original: Original, self: DeadLetters, job: Job, answer: Answer) -> None:
        plant.bite()
        self.attempts.counters.dead_lettered += 1
        self.attempts.finish(job)

    plant.around(DeadLetters, "event", dead_letter)


def _sink_not_waited_for(plant: Plant) -> None:
    def begin(original: Original, self: DeadLetters, job: Job, *more: Any) -> None:
        *parts, then = more
        once = [then]

        def done(job: Job) -> None:
            if once:
                once.pop()(job)

        original(self, job, *parts, done)
        if once and not job.claim.closing:
            plant.bite()
            done(job)

    plant.around(DeadLetters, "begin", begin)


def _order_only_until_it_fails(plant: Plant) -> None:
    def again(original: Original, self: Attempts, job: Job, *more: Any, **named: Any) -> None:
        original(self, job, *more, **named)
        window = job.claim.window
        for entry in job.entries:
            lane = entry.lane
            if lane is not None and lane.waiting and not job.claim.closing:
                plant.bite()
                window._ready.append(lane.waiting.popleft())
                lane.out += 1
        self._finished(job.claim)

    plant.around(Attempts, "again", again)


def _retry_after_unread(plant: Plant) -> None:
    def answered(original: Original, self: SubscriberDelivery, job: Job, answer: Answer) -> None:
        if answer.retry_after:
            plant.bite()
        original(self, job, answer._replace(retry_after=None))

    plant.around(SubscriberDelivery, "answered", answered)


def _halves_at_once(plant: Plant) -> None:
    def asked_for(original: Original, answer: Answer, spec: DeliverySpec) -> float:
        if answer.retry_after:
            plant.bite()
        return 0.0

    plant.around(delivery, "asked_for", asked_for)


def _window_from_the_first_open_event(plant: Plant) -> None:
    def room(original: Original, self: SendWindow, committed: int) -> int:
        front = self.front
        if front > committed:
            plant.bite()
        return int(original(self, max(front, committed)))

    plant.around(SendWindow, "room", room)


def _replies_not_waited_for(plant: Plant) -> None:
    def reply(original: Original, self: Replies, job: Job, answer: Answer) -> None:
        plant.bite()
        self.attempts.finish(job)

    plant.around(Replies, "begin", reply)


def _replies_sent_once(plant: Plant) -> None:
    def answered(original: Original, self: Reply, job: Job, answer: Answer) -> None:
        if not 200 <= answer.status < 300:
            plant.bite()
        original(self, job, Answer(202))

    plant.around(Reply, "answered", answered)


def _gives_up_with_everything(plant: Plant) -> None:
    async def terminate(
        original: Original, self: DispatchProcessor, partition: TopicPartition, next_offset: int
    ) -> BatchResponse | None:
        claim = self._claims.get(partition)
        answer: BatchResponse | None = await original(self, partition, next_offset)
        if claim is not None and claim.window.front < next_offset:
            plant.bite()
            return BatchResponse.advance(next_offset)
        return answer

    plant.around(DispatchProcessor, "on_stream_termination", terminate)


def _waits_for_the_first_part(plant: Plant) -> None:
    def in_turn(original: Original, parts: list[RequestPart]) -> list[list[RequestPart]]:
        chains: list[list[RequestPart]] = [[parts[0]]]
        taken: set[Lane] = set()
        for number, part in enumerate(parts):
            lanes = {entry.lane for entry in part[0] if entry.lane is not None}
            if number:
                if taken & lanes:
                    chains[0].append(part)
                else:
                    chains.append([part])
            taken |= lanes
        if chains != original(parts):
            plant.bite()
        return chains

    plant.around(delivery, "in_turn", in_turn)


def _gives_up_early(plant: Plant) -> None:
    def answered(original: Original, self: SubscriberDelivery, job: Job, answer: Answer) -> None:
        retry = self._attempts.options.delivery.retry
        if retry and job.attempt == retry - 1:
            plant.bite()
            job.attempt += 1
        original(self, job, answer)

    plant.around(SubscriberDelivery, "answered", answered)


def _busy_is_refused(plant: Plant) -> None:
    def came_back(original: Original, self: Attempts, job: Job, answer: Answer) -> None:
        if answer.status in (503, 429) and answer.problem is None:
            plant.bite()
            answer = answer._replace(status=410)
        original(self, job, answer)

    plant.around(Attempts, "_came_back", came_back)


_dispatch = partial(mutant_of, "dispatch")

DISPATCH = (
    _dispatch("front-over-what-is-open", "an event that is still open is committed past", _front_over_what_is_open),
    _dispatch(
        "half-an-answer-is-one",
        "an answer that broke off counts as a reply that is none",
        _half_an_answer_is_one,
        storm_has("subscriber cuts", "replies cuts"),
    ),
    _dispatch("refused-is-finished", "an event that is given up is in no dead letter sink", _refused_is_finished),
    _dispatch("sink-not-waited-for", "a dead letter counts before the sink has it", _sink_not_waited_for),
    _dispatch("order-until-it-fails", "others overtake an event that is sent again", _order_only_until_it_fails),
    _dispatch("retry-after-unread", "a busy subscriber gets it all again at once", _retry_after_unread),
    _dispatch("halves-at-once", "a busy subscriber gets the halves of a batch at once", _halves_at_once),
    _dispatch("window-from-the-first-open", "a crash repeats more than the window", _window_from_the_first_open_event),
    _dispatch("replies-not-waited-for", "an event counts before its reply is posted", _replies_not_waited_for),
    _dispatch("replies-sent-once", "a reply that was not taken is not sent again", _replies_sent_once),
    _dispatch(
        "gives-up-with-everything", "a release commits what was sent and not answered", _gives_up_with_everything
    ),
    _dispatch(
        "waits-for-the-first-part",
        "what a batch is taken apart into waits for another part",
        _waits_for_the_first_part,
    ),
    _dispatch("gives-up-early", "an event is dead-lettered before its last attempt", _gives_up_early),
    _dispatch("busy-is-refused", "an event is dead-lettered because the subscriber was busy", _busy_is_refused),
)

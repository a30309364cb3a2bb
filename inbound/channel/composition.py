"""Puts the working parts of one channel together: each is given what it uses."""

from __future__ import annotations

from collections.abc import Callable

from inbound.channel.callbacks import Callbacks
from inbound.channel.delivery import Delivery
from inbound.channel.failure_policy import DeadLetters, FailurePolicy
from inbound.channel.out_of_range import OutOfRange
from inbound.channel.outcome import Outcomes
from inbound.channel.parts import Parts
from inbound.channel.reader import Reader
from inbound.channel.turn import Turns
from inbound.kafka.base import LogClient


def reader_of(p: Parts, connect: Callable[[], LogClient], on_topics: Callable[[], None]) -> Reader:
    """Return the channel's reader; `on_topics` is called when the brokers say something else of its topics."""
    return Reader(
        settings=p.settings, clock=p.clock, journal=p.journal, books=p.books, service=p.service, schedule=p.schedule,
        committer=p.committer, commits=p.commits, connect=connect, on_topics=on_topics,
    )  # fmt: skip


def turns_of(p: Parts, reader: Reader, dead_letters: DeadLetters | None) -> Turns:
    """Return what serves the channel's partitions."""
    failures = FailurePolicy(
        settings=p.settings,
        clock=p.clock,
        service=p.service,
        books=p.books,
        journal=p.journal,
        dead_letters=dead_letters,
    )
    callbacks = Callbacks(clock=p.clock, journal=p.journal, meters=p.meters, service=p.service)
    outcomes = Outcomes(
        settings=p.settings, clock=p.clock, journal=p.journal, meters=p.meters, books=p.books, schedule=p.schedule,
        committer=p.committer, commits=p.commits, reader=reader,
    )  # fmt: skip
    delivery = Delivery(
        settings=p.settings, clock=p.clock, zk=p.zk, journal=p.journal, meters=p.meters, books=p.books, service=p.service,
        schedule=p.schedule, pausing=p.pausing, consumed=p.consumed, reader=reader, failures=failures,
        callbacks=callbacks, outcomes=outcomes,
    )  # fmt: skip
    out_of_range = OutOfRange(
        settings=p.settings, journal=p.journal, meters=p.meters, books=p.books, schedule=p.schedule,
        committer=p.committer, commits=p.commits, reader=reader, failures=failures,
    )  # fmt: skip
    return Turns(
        settings=p.settings, clock=p.clock, zk=p.zk, meters=p.meters, books=p.books, service=p.service,
        schedule=p.schedule, pausing=p.pausing, evaluate=p.evaluate, reader=reader, failures=failures,
        callbacks=callbacks, outcomes=outcomes, delivery=delivery, out_of_range=out_of_range,
    )  # fmt: skip

"""Sends what a redrive has planned, and notes what became of each letter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.dead_letters.redrive_plan import NAMED, Parcel


class Outcome(NamedTuple):
    """What became of one letter."""

    sent: bool
    where: str  # `orders/3/991`, or the subscriber's URL as messages show it
    why: str = ""  # where it was refused


Done = Callable[[Parcel, Outcome], None]


class Sender(Protocol):
    """Sends parcels: `to_topics.TopicSender` or `to_subscriber.SubscriberSender`."""

    def send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
        """Send all, and call `done` with each as soon as its outcome is known, on this thread.

        Once `stop` is set nothing more is begun, and it returns when all that was sent is answered. What is still to be
        tried again then has no outcome.

        Raises:
            BrokerUnavailableError: the brokers do not answer. What was not acknowledged has no outcome.
        """


@dataclass
class Account:
    """What a redrive has done so far."""

    planned: int
    sent: int = 0
    refused: int = 0
    named: list[str] = field(default_factory=list)  # the first refused, each with why

    @property
    def left(self) -> int:
        """How many have no outcome: retention has deleted them, or it ended before."""
        return self.planned - self.sent - self.refused


def redrive(
    parcels: Iterable[Parcel], sender: Sender, ledger: RedriveLedger, account: Account, *, stop: threading.Event,
    progress: Callable[[Account], None] = lambda account: None,
) -> None:  # fmt: skip
    """Send all parcels, and note each in the ledger when its outcome is known; `account` is kept up to date.

    Raises:
        BrokerUnavailableError: the brokers do not answer any more. What is done is noted.
        LedgerError: it cannot be written. Nothing more is sent.
    """

    def done(parcel: Parcel, outcome: Outcome) -> None:
        ledger.note(parcel.place, "sent" if outcome.sent else "refused", parcel.where, outcome.why or outcome.where)
        if outcome.sent:
            account.sent += 1
        else:
            account.refused += 1
            if len(account.named) < NAMED:
                account.named.append(f"{parcel.partition}/{parcel.offset}: {outcome.where}: {outcome.why}")
        progress(account)

    try:
        sender.send(_until(stop, parcels), done, stop)
    finally:
        ledger.sync()


def _until(stop: threading.Event, parcels: Iterable[Parcel]) -> Iterator[Parcel]:
    for parcel in parcels:
        if stop.is_set():
            return
        yield parcel

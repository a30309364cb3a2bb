"""Whether Kafka answers with new settings, tried beside what runs with the old ones."""

from __future__ import annotations

from collections.abc import Callable

from inbound.clock import Clock
from inbound.errors import BrokerUnavailableError, InboundError

#: How long the brokers may take to answer with new settings, and how soon they are asked again, in seconds.
KAFKA_SECONDS, ASK_AGAIN = 10.0, 0.5


def answers_in_time(ask: Callable[[], object], who: str, clock: Clock, ends_within: Callable[[float], bool]) -> None:
    """Call `ask` until it does not raise BrokerUnavailableError.

    `who` is told in the error; `ends_within` waits so many seconds, and returns whether the process is to end.

    Raises:
        InboundError: the brokers do not answer in time, or do not let us in.
    """
    deadline = clock.now() + KAFKA_SECONDS
    while True:
        try:
            ask()
            return
        except BrokerUnavailableError as error:
            if clock.now() >= deadline or ends_within(ASK_AGAIN):
                raise InboundError(f"Kafka does not answer with the new settings, {who}: {error}") from None

"""Questions for the list of topics and leaders through kafka-python: a broker that is slow holds up nobody, and its answer counts.

Not by kafka-python's own refresh, which is one at a time and waits for whom it has asked; and whose loop ends for ever at the
error of a request that somebody else has sent (3.0.12): what is asked by `request_update` is never answered then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import kafka.errors
from kafka.future import Future

log = logging.getLogger(__name__)

#: How long one broker may take to answer before another one is asked, too. Seconds.
ASK_ANOTHER_AFTER = 1.0
#: How often it is looked in that time for one that can be asked, while all are in their back-off.
TRIES = 20
#: How long the first connection may take.
BOOTSTRAP_MS = 10_000


class Metadata:
    """Asks for all topics. `ask` is for any thread; all else happens on kafka-python's own."""

    def __init__(self, consumer: Any, best: Callable[[], int | None]) -> None:
        self._manager = consumer._manager
        self._cluster = consumer._manager.cluster
        self._best = best  # which broker will most likely answer soon; None: none can be asked now
        self._sent = 0  # questions so far,
        self._taken = 0  # and the last one whose answer was taken in
        self._looking: Any = None

    def ask(self) -> Any:
        """Ask for all topics. The future ends when they are known as of now or later, or with why they are not."""
        return self._manager.call_soon(self._ask)

    def look(self) -> None:
        """Have what is known of leaders renewed, by one question at a time. By the one thread that uses the client."""
        if self._looking is None or self._looking.is_done:
            self._looking = self.ask()
            self._looking.add_errback(lambda error: log.debug("kafka: no answer for metadata: %s", error))

    async def _ask(self) -> None:
        """One broker after the other is asked, until one answers or all that were asked cannot.

        None of them with a shorter timeout of the request, since that closes the connection, also one on which a large
        answer is on its way.
        """
        if not self._manager.bootstrapped:  # else its first connection is used by two, and closed by one
            await self._manager.bootstrap_async(BOOTSTRAP_MS)
        asked: dict[int, Any] = {}
        tries = 0
        while True:
            node = self._best()
            if node is not None and node not in asked:
                asked[node] = self._send(node)
            if any(answer.succeeded() for answer in asked.values()):
                return
            left = [answer for answer in asked.values() if not answer.is_done]
            tries += not asked
            if not left and (asked or tries == TRIES):
                raise next(
                    (a.exception for a in asked.values()), kafka.errors.NodeNotReadyError("no broker can be asked")
                )
            try:
                await self._manager.wait_for(_any(left), ASK_ANOTHER_AFTER * 1000 / (1 if left else TRIES))
            except kafka.errors.KafkaTimeoutError:
                pass  # another one is asked, too

    def _send(self, node: int) -> Any:
        """Return what ends when the answer is taken in, however late that is."""
        self._sent += 1
        taken = Future()
        answer = self._manager.send(self._cluster.metadata_request(), node)
        answer.add_callback(self._take, self._sent, taken)
        answer.add_errback(taken.failure)
        return taken

    def _take(self, number: int, taken: Any, answer: Any) -> None:
        """An answer to an older question than the last one that was answered is none: a topic may be another by now."""
        try:
            if not answer.brokers:  # it has just started
                raise kafka.errors.MetadataEmptyBrokerList("it knows of no brokers yet")
            if number > self._taken:
                self._taken = number
                self._cluster.update_metadata(answer)
        except Exception as error:
            taken.failure(error)
        else:
            taken.success(None)


def _any(futures: Iterable[Any]) -> Any:
    """Return a future that ends when one of these does."""
    ended = Future()

    def end(_: object) -> None:
        if not ended.is_done:
            ended.success(None)

    for future in futures:
        future.add_both(end)
    return ended

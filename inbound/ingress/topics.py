"""Watches Kafka's topics and its availability on a thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from inbound.errors import InboundError
from inbound.ingress.producer import IngressProducer

log = logging.getLogger(__name__)

#: Seconds between two looks, and between two while Kafka is unavailable or a topic is missing.
EVERY, SOON = 30.0, 0.5


class TopicWatch:
    """Asks Kafka from `start` to `close`; any thread may read its attributes."""

    def __init__(
        self,
        producer: IngressProducer,
        changed: Callable[[], None],
        create_partitions: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._changed = changed  # called by the thread after each look
        self._partitions = create_partitions
        self._wake = threading.Event()
        self._over = threading.Event()
        self._missed: set[str] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="ingress-topics", daemon=True)
        #: Topics that exist, as last read.
        self.existing: frozenset[str] = frozenset()
        #: Why Kafka takes no events; None: it answers.
        self.away: str | None = "not asked yet"
        #: The time of the last reading, on the monotonic clock.
        self.read_at = float("-inf")
        self.alive_at = time.monotonic()
        #: Topics with an event that was not acknowledged in time: why, and when. The event loop's thread alone changes it.
        self.doubted: dict[str, tuple[str, float]] = {}

    def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Ask once before `start`, so that the first events are accepted.

        May wait for seconds.
        """
        self._look()

    def close(self) -> None:
        self._over.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def miss(self, topic: str) -> None:
        """Look again for a missing topic; create it if that is configured."""
        with self._lock:
            self._missed.add(topic)
        self._wake.set()

    def doubt(self, topic: str, why: str) -> None:
        """Doubt a topic: an event of it was not acknowledged in time.

        The next look asks whether Kafka is unavailable, or this topic alone.
        """
        if topic not in self.doubted:
            log.warning(
                "ingress: topic %s: Kafka does not acknowledge (%s): its events are refused until it takes one",
                topic,
                why,
            )
        self.doubted[topic] = why, self._clock()
        self._wake.set()

    def trust(self, topic: str) -> None:
        """End the doubt: an event was acknowledged."""
        if self.doubted.pop(topic, None) is not None:
            log.info("ingress: topic %s: Kafka acknowledges again", topic)

    def doubts(self) -> dict[str, str]:
        """Return why events are refused, by topic. Any thread.

        One event at a time is tried all the same.
        """
        return {topic: why for topic, (why, _) in sorted(dict(self.doubted).items())}

    def answers_since(self, moment: float) -> bool:
        """Whether Kafka has answered a question asked after `moment`."""
        return self.away is None and self.read_at > moment

    def _run(self) -> None:
        while not self._over.is_set():
            self._wake.clear()
            self._look()
            self.alive_at = time.monotonic()
            self._changed()
            # Many missing topics must not cause many questions.
            self._over.wait(SOON)
            if self.away is None:
                self._wake.wait(EVERY)

    def _look(self) -> None:
        with self._lock:
            missed, self._missed = self._missed, set()
        began = self._clock()
        try:
            existing = self._producer.topics()
            for topic in missed - existing if self._partitions is not None else ():
                self._producer.create(topic, self._partitions or 1)
                log.info("ingress: topic %s was made with %d partitions", topic, self._partitions)
                existing |= {topic}
        except InboundError as error:
            if self.away in (None, "not asked yet"):
                log.warning("ingress: Kafka does not answer: %s; events are refused until it does", error)
            self.away = str(error)
            return
        except Exception:
            log.exception("ingress: the topics could not be read")
            self.away = "the topics could not be read; see the log"
            return
        if self.away is not None:
            log.info("ingress: Kafka answers, %d topics", len(existing))
        self.existing, self.read_at, self.away = existing, began, None

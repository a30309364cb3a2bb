"""A channel's topics as the brokers list them: partitions and ids."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from inbound.coordinators.nodes import same_topic
from inbound.kafka.base import LogClient, TopicMeta
from inbound.partition.journal import Journal
from inbound.partition.partition import Partition
from inbound.partition.service import Settings

#: Seconds between look-ups of the topics' partitions.
METADATA_INTERVAL = 5.0
#: Seconds until the next look-up where no topic was found.
RETRY = 0.5


class Topics:
    """The topics: refreshed by the polling thread, read by any thread."""

    def __init__(
        self, settings: Settings, journal: Journal, look_soon: Callable[[], None], on_change: Callable[[], None],
        ledger_topic: str | None,
    ) -> None:  # fmt: skip
        """Take `look_soon`, which has `refresh` called soon.

        `on_change` is called when an answer differs, or was asked for. `ledger_topic` is never among a pattern's
        topics: each of its records would write others to it.
        """
        self._settings = settings
        self._journal = journal
        self._look_soon = look_soon
        self._on_change = on_change
        self._ledger_topic = ledger_topic
        self._lock = threading.Lock()
        #: The brokers' last answer; empty before it. Replaced as a whole.
        self.found: Mapping[str, TopicMeta] = {}
        self.came_later: frozenset[str] = frozenset()  # topics that did not exist at an earlier look-up
        self.known = False  # whether the brokers ever answered; their answer may name no topic
        self.due = 0.0  # clock time of the next look-up
        self._questions = 0  # the number of the last question
        self._answered = 0  # the number of the last answered question
        self._asking: tuple[int, Callable[[], bool]] | None = None
        self._missing: set[str] = set()

    def ask(self) -> int:
        """Ask the brokers for their topics again. Returns a number for `answered`."""
        with self._lock:
            self._questions += 1
            number = self._questions
        self._look_soon()
        return number

    def answered(self, number: int) -> bool:
        """Whether `found` is the brokers' answer to that call of `ask`."""
        return self._answered >= number

    @property
    def asking(self) -> bool:
        """Whether an answer is outstanding."""
        return self._asking is not None

    def is_another(self, partition: Partition) -> bool:
        """Whether the brokers say that the topic was recreated since the claim."""
        meta, own = self.found.get(partition.tp.topic), partition.topic_id
        told = meta.topic_id if meta is not None else None
        return told is not None and own is not None and same_topic(told, own) is False

    def restart(self) -> None:
        """Forget what the last client was asked."""
        self._asking, self.due = None, 0.0

    def refresh(self, client: LogClient, now: float) -> None:
        """Take in the brokers' answer, if it is due or asked for."""
        if self._asking is None and self._questions > self._answered:
            self._asking = (self._questions, client.ask_topics())
        answer = self._asking
        if answer is not None and answer[1]():
            self._asking = None
        else:
            answer = None
        if now < self.due and answer is None:
            return
        config = self._settings.now
        found = dict(client.topics(config.topics or (), config.topics_pattern))
        if config.topics_pattern is not None and self._ledger_topic is not None:
            found.pop(self._ledger_topic, None)
        self.due = now + (METADATA_INTERVAL if found else RETRY)
        missing = set(config.topics or ()) - set(found)
        if missing - self._missing:
            self._journal.note(
                "topic-missing", f"topic {', '.join(sorted(missing))} does not exist on these brokers; create it, or correct "
                "`topics`; looking again", level=logging.WARNING,
            )  # fmt: skip
        self._missing = missing
        changed = found != self.found or not self.known
        if self.known:
            self.came_later |= set(found) - set(self.found)
        self.found, self.known = found, True
        if answer is not None:
            self._answered = answer[0]
        if changed or answer is not None:
            self._on_change()

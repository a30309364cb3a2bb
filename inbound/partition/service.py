"""The processor that serves a channel, and its abilities."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from inbound.config import ChannelConfig
from inbound.partition.journal import Journal
from inbound.processors.base import BatchEventProcessor, gives_starts, has_room, is_async
from inbound.processors.spans import NO_TRACING, ConsumerName, Tracing
from inbound.processors.stopping import StopEvent
from inbound.runtime.text import describe


class Service:
    """Holds `processor`, which the channel may replace by another of its class."""

    def __init__(
        self,
        processor: BatchEventProcessor,
        consumer: ConsumerName,
        journal: Journal,
        tracing: Tracing = NO_TRACING,
        own_topics: Collection[str] = (),
    ) -> None:
        """Take `tracing`, which makes spans, and `own_topics`, the processor's topics.

        See `BatchEventProcessor.own_topics`.
        """
        self.processor = processor
        self.asynchronous = is_async(type(processor))  # whether its callbacks may be coroutines
        self.gives_starts = gives_starts(type(processor))  # whether on_claim is called
        self.has_room = has_room(type(processor))  # whether room is called
        self.own_topics = frozenset(own_topics)
        self.consumer = consumer  # as spans name it
        self.tracing = NO_TRACING if type(processor).makes_spans else tracing  # its own are of single events
        self.stopping = StopEvent()
        self._journal = journal
        self._said_nothing: set[str] = set()

    @property
    def stops(self) -> bool:
        """Whether its channel ends. Any thread."""
        return self.stopping.is_set()

    def stop(self) -> None:
        """Have the processor's waits return: its channel ends. Any thread."""
        self.stopping.set()

    def said(self, name: str) -> Mapping[Any, Any]:
        """Return the processor's `status` or `waits`. Any thread.

        A failure is logged once, and gives an empty mapping.
        """
        try:
            said: object = getattr(self.processor, name)()
            if isinstance(said, Mapping):
                return said
            why = f"it returned {said!r}"
        except Exception as error:
            why = describe(error)
        if name not in self._said_nothing:
            self._said_nothing.add(name)
            self._journal.note(
                "callback-failed", f"{name} failed: {why}; status and metrics are without it", level=logging.ERROR
            )
        return {}


@dataclass(eq=False, slots=True)
class Settings:
    """The channel's configuration: a hot reload replaces `now`, read each time."""

    now: ChannelConfig

"""The processor that a channel's partitions are delivered to now, and what is known of it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from inbound.channel.failure_policy import describe
from inbound.journal import Journal
from inbound.processors.base import BatchEventProcessor, gives_starts, has_room, is_async
from inbound.processors.spans import NO_TRACING, Consumer, Tracing
from inbound.processors.stopping import StopEvent


class Service:
    """The channel replaces `processor` when another one of the same class takes over; nothing else of it changes."""

    def __init__(
        self,
        processor: BatchEventProcessor,
        consumer: Consumer,
        journal: Journal,
        tracing: Tracing = NO_TRACING,
        own_topics: Collection[str] = (),
    ) -> None:
        """`tracing`: what spans are asked for, if any are made. `own_topics`: see `BatchEventProcessor.own_topics`."""
        self.processor = processor
        self.asynchronous = is_async(type(processor))  # whether its callbacks may be coroutines
        self.gives_starts = gives_starts(type(processor))  # whether it is to be asked where claims begin
        self.has_room = has_room(type(processor))  # whether it is to be asked how much it takes
        self.own_topics = frozenset(own_topics)
        self.consumer = consumer  # who reads, as spans name it
        self.tracing = NO_TRACING if type(processor).makes_spans else tracing  # its own are of single events
        self.stopping = StopEvent()
        self._journal = journal
        self._said_nothing: set[str] = set()

    def said(self, name: str) -> Mapping[Any, Any]:
        """Return what the processor's `status` or `waits` says; nothing where that fails, which is logged once. Any thread."""
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
                "callback-failed", f"{name} failed: {why}; what it says is left out", level=logging.ERROR
            )
        return {}

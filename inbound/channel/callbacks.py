"""Callbacks whose failure changes nothing but must be seen, and the ones that may answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import isawaitable

from inbound.channel.answer import Outcome, decide
from inbound.channel.failure_policy import describe, loop_is_gone
from inbound.channel.partition import Partition
from inbound.channel.service import Service
from inbound.clock import Clock
from inbound.errors import BadResponseError
from inbound.journal import Journal
from inbound.meters import Meters

log = logging.getLogger(__name__)


class Callbacks:
    """Runs a processor's callbacks, other than on_next_batch, for partitions that are running. By whoever has them."""

    def __init__(self, *, clock: Clock, journal: Journal, meters: Meters, service: Service) -> None:
        self._clock = clock
        self._journal = journal
        self._meters = meters
        self._service = service

    async def run_waiting(self, partition: Partition) -> None:
        """Run those that wait for the partition to be in somebody's hands."""
        while partition.callbacks:
            callback = partition.callbacks.popleft()
            function = getattr(callback, "func", callback)  # of a partial
            await self.guard(partition, getattr(function, "__name__", "callback"), callback)

    async def guard(self, partition: Partition, name: str, callback: Callable[[], object]) -> object:
        """Run a callback whose failure changes nothing but must be seen. Returns its answer, None if it failed."""
        partition.totals.other_call = name, self._clock.now()
        try:
            answer = callback()
            if self._service.asynchronous and isawaitable(answer):
                answer = await answer
            return answer
        except BaseException as error:
            if loop_is_gone(error, self._service.asynchronous):
                raise
            self._failed(partition, name, error)
            return None
        finally:
            partition.totals.other_call = None

    async def answer(self, partition: Partition, name: str, callback: Callable[[], object]) -> Outcome | None:
        """Run a callback that may answer with a BatchResponse; None: it gave none, or none that can be used."""
        response = await self.guard(partition, name, callback)
        if response is None:
            return None
        advanced = partition.position.advanced
        floor = advanced if advanced is not None else partition.position.delivered
        try:
            return decide(
                partition.tp, response, committed=advanced, first=min(floor, partition.position.delivered),
                position=partition.position.delivered, callback=name,
            )  # fmt: skip
        except BadResponseError as error:
            self._failed(partition, name, error)
            return None

    def _failed(self, partition: Partition, name: str, error: BaseException) -> None:
        self._meters.failed(error)
        partition.failure.last_error = describe(error)
        self._journal.note(
            "callback-failed", f"{name} failed: {partition.failure.last_error}; the partition goes on", partition.tp,
            offset=partition.position.delivered, epoch=partition.fence.epoch, level=logging.ERROR,
        )  # fmt: skip
        log.debug("%s: where it failed", partition.tp, exc_info=error)

"""The `log` sink: logs one line per record."""

from __future__ import annotations

import logging

from inbound.processors.base import Context
from inbound.processors.batch import Batch
from inbound.processors.sinks.base import BatchEventSink


class LogSink(BatchEventSink):
    """Logs id, type and source of each event, at INFO.

    Each record that is no event is logged at WARNING, with the reason.
    """

    def open(self, context: Context) -> None:
        self._log: logging.Logger = context.log

    def send(self, batch: Batch) -> None:
        for offset, event in zip(batch.event_offsets, batch.events, strict=True):
            self._log.info(
                "%s/%d@%d id=%s type=%s source=%s",
                batch.topic,
                batch.partition,
                offset,
                event.get_id(),
                event.get_type(),
                event.get_source(),
            )
        for record, reason in batch.undecodable:
            self._log.warning("%s/%d@%d is no event: %s", batch.topic, batch.partition, record.offset, reason)

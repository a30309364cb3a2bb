"""Writing the ingress's records with kafka-python."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from inbound.config import IngressConfig
from inbound.errors import BrokerUnavailableError
from inbound.ingress.producer import ASK_SECONDS, CAUSES, OVERHEAD, Delivered, Failure, FailureCause
from inbound.kafka.base import BrokerFigures
from inbound.kafka.python.brokers import figures_of
from inbound.kafka.python.client import why
from inbound.kafka.python.producer import UNAFFECTED, end
from inbound.processors.cloudevents_bridge import RecordParts

log = logging.getLogger(__name__)

#: Seconds that it may block for metadata before it accepts a record.
_BLOCKS = 5.0


class KafkaPythonProducer:
    """kafka-python's producer, fed by a thread of its own: `send` may wait.

    A batch that is too large for its topic it sends again in parts, until only a record that is itself too large fails.
    """

    name = "kafka-python"
    of_batches = frozenset({FailureCause.INVALID, FailureCause.BESIDE})
    partition = staticmethod(attrgetter("partition"))

    def __init__(
        self, config: IngressConfig, properties: Mapping[str, Any], *, library: Any = None, threaded: bool = True
    ) -> None:
        """`library` replaces the module kafka; not `threaded`: the caller calls `step`."""
        import kafka

        from inbound.kafka.python.topics import settings_for

        self._kafka = library or kafka
        self._admin_settings = {
            "client_id": "inbound-ingress",
            **settings_for(properties, kafka.KafkaAdminClient.DEFAULT_CONFIG),
            "bootstrap_timeout_ms": round(ASK_SECONDS * 1000),
        }
        timeout = round(config.delivery_timeout * 1000)
        self._settings = {
            "client_id": "inbound-ingress",
            "batch_size": 262144,
            **settings_for(properties, kafka.KafkaProducer.DEFAULT_CONFIG),
            **UNAFFECTED,
            "linger_ms": round(config.linger * 1000),
            "delivery_timeout_ms": timeout,
            "max_block_ms": min(timeout, round(_BLOCKS * 1000)),
            "bootstrap_timeout_ms": round(_BLOCKS * 1000),
            "max_request_size": max(1_048_576, config.max_event_bytes + OVERHEAD),
            "request_timeout_ms": max(1, min(6000, timeout - round(config.linger * 1000) - 1)),
        }
        #: Made when first needed: with batches, and of which each record is a batch.
        self._producers: dict[bool, Any] = {}
        self._ends_within = config.delivery_timeout + _BLOCKS
        self._waiting: queue.SimpleQueue[tuple[str, RecordParts, Delivered, bool] | None] = queue.SimpleQueue()
        self._done: deque[tuple[Delivered, Any, Any]] = deque()
        self._stepped_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="ingress-producer", daemon=True)
        if threaded:
            self._thread.start()

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        for record, answer in zip(records, delivered, strict=True):
            self._waiting.put((topic, record, answer, alone))
        return len(records), None

    def poll(self) -> None:
        for _ in range(len(self._done)):
            delivered, error, receipt = self._done.popleft()
            delivered(error, receipt)

    def failure(self, error: Any) -> Failure:
        errors = self._kafka.errors
        cause = FailureCause.REFUSED
        if isinstance(error, errors.BrokerResponseError) and error.errno in CAUSES:
            cause = CAUSES[error.errno]
        elif type(error) is errors.KafkaError:  # its error for the other records of a refused one's batch
            cause = FailureCause.BESIDE
        elif isinstance(error, (OSError, errors.KafkaTimeoutError)) or getattr(error, "retriable", False):
            cause = FailureCause.AWAY
        return Failure(cause, why(self._settings, error))

    def topics(self) -> frozenset[str]:
        with self._admin() as admin:
            return frozenset(admin.list_topics())

    def create(self, topic: str, partitions: int) -> None:
        with self._admin(f"topic {topic} cannot be made: ") as admin:
            try:
                admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
            except self._kafka.errors.TopicAlreadyExistsError:
                pass

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        return {self._thread.name: (self._thread.is_alive(), self._stepped_at)}

    def figures(self) -> Sequence[BrokerFigures]:
        producer = self._producers.get(False)  # the other one sends single records again
        return figures_of(producer.metrics(raw=True)) if producer is not None else ()

    def close(self, seconds: float) -> None:
        self._waiting.put(None)
        if self._thread.ident is not None:
            self._thread.join(seconds)

    @contextmanager
    def _admin(self, failed: str = "") -> Iterator[Any]:
        try:
            admin = self._kafka.KafkaAdminClient(**self._admin_settings)
            try:
                yield admin
            finally:
                admin.close()
        except (self._kafka.errors.KafkaError, OSError) as error:
            raise BrokerUnavailableError(f"{failed}{why(self._admin_settings, error)}") from None

    def _run(self) -> None:
        while self.step(1.0):
            pass
        for producer in self._producers.values():
            end(producer, self._ends_within)

    def step(self, seconds: float) -> bool:
        """Give the next record, within `seconds`, to the client.

        Returns False after the last one.
        """
        self._stepped_at = time.monotonic()
        try:
            item = self._waiting.get(timeout=seconds) if seconds else self._waiting.get_nowait()
        except queue.Empty:
            return True
        if item is None:
            return False
        topic, record, delivered, alone = item
        try:
            self._take(topic, record, delivered, alone)
        except (self._kafka.errors.KafkaError, OSError, ValueError) as error:
            self._done.append((delivered, error, None))
        except Exception as error:  # the thread's end would leave every later event without an answer
            log.exception("ingress: topic %s: kafka-python failed on an event, which is answered with 503", topic)
            self._done.append((delivered, error, None))
        return True

    def _take(self, topic: str, record: RecordParts, delivered: Delivered, alone: bool) -> None:
        if alone not in self._producers:
            waiting = self._waiting.qsize()
            settings = {**self._settings, "batch_size": 0, "linger_ms": 0} if alone else self._settings
            try:
                self._producers[alone] = self._kafka.KafkaProducer(**settings)
            except (self._kafka.errors.KafkaError, OSError) as error:
                self._fail(waiting, error)  # they would wait as long, one after the other
                raise
        key, value, headers = record
        # The producer takes no null value without a key; an empty key means the same here.
        key = b"" if key is None and value is None else key
        future = self._producers[alone].send(topic, value=value, key=key, headers=headers)
        future.add_callback(self._succeeded, delivered)
        future.add_errback(self._failed, delivered)

    def _fail(self, count: int, error: Exception) -> None:
        for _ in range(count):
            item = self._waiting.get()
            if item is None:
                self._waiting.put(None)
                return
            self._done.append((item[2], error, None))

    def _succeeded(self, delivered: Delivered, receipt: Any) -> None:
        self._done.append((delivered, None, receipt))

    def _failed(self, delivered: Delivered, error: Any) -> None:
        self._done.append((delivered, error, None))

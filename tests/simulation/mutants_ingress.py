"""Mutants of the ingress: what a client that posts events would notice. The seeds of `ingress` find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inbound.ingress.confluent_producer import ConfluentProducer
from inbound.ingress.kafka_python_producer import KafkaPythonProducer
from inbound.ingress.receiver import Receiver
from tests.simulation.planting import Mutant, Plant

Original = Callable[..., Any]


def _idempotent(plant: Plant) -> None:
    def init(original: Original, self: KafkaPythonProducer, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        plant.bite()
        self._settings["enable_idempotence"] = True

    plant.around(KafkaPythonProducer, "__init__", init)


def _fatal_if_it_says_so(plant: Plant) -> None:
    def look(original: Original, self: ConfluentProducer, producer: Any, error: Any) -> None:
        if error.fatal():
            original(self, producer, error)
        elif error.code() == self._kafka.KafkaError._FATAL:
            plant.bite()

    plant.around(ConfluentProducer, "_look", look)
    plant.around(ConfluentProducer, "_serve", _told_by_nobody)


def _told_by_nobody(original: Original, self: ConfluentProducer, producer: Any) -> None:
    """What `poll` raises is not looked at either."""
    try:
        producer.poll(0)
    except self._kafka.KafkaException:
        pass


def _batch_shares_its_fate(plant: Plant) -> None:
    def sends_alone(original: Original, self: Receiver, writing: Any, number: int, error: Any) -> Any:
        if number not in writing.alone and self._failure(error).cause in self._producer.of_batches:
            plant.bite()
        return error

    plant.around(Receiver, "sends_alone", sends_alone)


INGRESS = tuple(
    Mutant(name, "ingress", breaks, plant, kind="ingress")
    for name, breaks, plant in (
        ("idempotent", "one event that is refused for good is fatal for every later one", _idempotent),
        ("fatal-if-it-says-so", "a producer that is fatal is never replaced", _fatal_if_it_says_so),
        ("batch-shares-its-fate", "good events are refused for one beside them", _batch_shares_its_fate),
    )
)

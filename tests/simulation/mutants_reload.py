"""Mutants of channels that come, change and go while a process runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.reader import Reader
from inbound.channel.turn import Turns
from inbound.controller.kafka_controller import KafkaController
from inbound.group.claims import Claims
from inbound.group.membership import GroupMembership
from inbound.partition.partition import Partition
from inbound.process.channels import Running, RunningChannels
from inbound.process.reload.changes import Do
from inbound.process.reload.reconfiguration import Reconfiguration
from inbound.processors.base import BatchEventProcessor
from tests.simulation.planting import Mutant, Plant

Original = Callable[..., Any]


def _nothing_cleared(plant: Plant) -> None:
    async def leave(original: Original, self: RunningChannels, running: Running) -> None:
        await running.channel.membership.leave_group()
        await running.controller.remove(running.channel.membership)
        plant.bite()

    plant.around(RunningChannels, "_leave", leave)


def _leaves_amid_an_evaluation(plant: Plant) -> None:
    async def remove(original: Original, self: KafkaController, consumer: GroupMembership) -> None:
        if any(c.consumer is consumer and c.running is not None and not c.running.done for c in self._channels):
            plant.bite()
        self._channels = [c for c in self._channels if c.consumer is not consumer]

    def stop_came(original: Original, self: Claims) -> bool:
        return False

    plant.around(KafkaController, "remove", remove)
    plant.around(Claims, "_stop_came", stop_came)


def _name_not_free(plant: Plant) -> None:
    def take(original: Original, self: Reconfiguration, name: str, do: Do) -> None:
        if do is Do.ADD and name not in self._channels.leaving():
            if self._channels.leaving():
                plant.bite()
            self._channels.add(name, self._wanted.channels[name])
        else:
            original(self, name, do)

    plant.around(Reconfiguration, "_take", take)


def _closed_at_once(plant: Plant) -> None:
    def exchange(
        original: Original, self: InboundKafkaChannel, processor: BatchEventProcessor, options: object
    ) -> None:
        original(self, processor, options)
        for former in self._former:
            plant.bite()
            self._close_processor(former)
        self._former.clear()

    plant.around(InboundKafkaChannel, "exchange", exchange)


def _exchanges_in_the_middle(plant: Plant) -> None:
    def begin(original: Original, self: Turns, partition: Partition) -> None:
        position, rest = partition.position.delivered, partition.rest_until
        original(self, partition)
        if position != partition.position.delivered:
            plant.bite()
            partition.position.delivered, partition.rest_until = position, rest
            self._reader.jump(partition)

    plant.around(Turns, "_begin_again", begin)


def _half_taken_back(plant: Plant) -> None:
    def failed(original: Original, self: Reconfiguration, problem: str, now: float) -> bool:
        plant.bite()
        self._problem, self._under_way = problem, False
        return True

    plant.around(Reconfiguration, "_failed", failed)


def _reconnects_at_the_commit(plant: Plant) -> None:
    def reconnect(original: Original, self: Reader, connect: Callable[[], Any]) -> None:
        original(self, connect)
        for partition in self._schedule.held():
            if partition.buffer:
                plant.bite()
                partition.buffer.jump()

    plant.around(Reader, "reconnect", reconnect)


RELOADS = tuple(
    Mutant(name, "hot reload", breaks, plant, kind="reload")
    for name, breaks, plant in (
        ("nothing-cleared", "who removes a channel leaves the owner nodes of its unanswered claims", _nothing_cleared),
        (
            "leaves-amid-an-evaluation",
            "a claim that lands after its channel has left is adopted",
            _leaves_amid_an_evaluation,
        ),
        ("name-not-free", "a group's next channel is made while the one before is leaving", _name_not_free),
        ("closed-at-once", "a processor is closed while it has partitions", _closed_at_once),
        (
            "hands-over-where-it-is",
            "a processor's successor begins behind what was not committed",
            _exchanges_in_the_middle,
        ),
        ("half-taken-back", "what has started stays when something else cannot", _half_taken_back),
        (
            "reconnects-over-what-it-has",
            "a new client begins behind what was dropped",
            _reconnects_at_the_commit,
        ),
    )
)

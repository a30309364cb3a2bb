"""What the controller knows of its channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from inbound.coordinators.base import Plan
from inbound.topic_partition import TopicPartition


class KafkaConsumer(Protocol):
    """A channel as the controller drives it. All methods are called on the controller's thread, one at a time."""

    name: str

    async def zk_reconnected(self) -> None:
        """A connection is there (again): register, and get back what is ours before anything else is claimed.

        Raises:
            TransientError: try again.
            ConsumerIdTakenError: another live process has our id; the process must stop.
        """

    async def coordinate(self) -> None:
        """Hold what we believe against the nodes: they are the truth."""

    async def calc_rebalance(self) -> Plan | None:
        """Return what to take and release; None while that cannot be known."""

    async def take_partitions(self, partitions: Sequence[TopicPartition]) -> bool:
        """Claim these. Returns False if any of them could not be had: look again soon."""

    async def release_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to give these up in good order; does not wait for the end."""

    def suspended(self) -> None:
        """The connection is gone. Batches in flight end; nothing new is handed out."""

    def in_doubt(self) -> None:
        """The session may have expired by now: whatever is being worked on may be another's."""

    def verified(self) -> None:
        """The session is known to live again: what was in doubt may go on."""

    def leaving_in(self, session: int) -> None:
        """We are leaving, and connected anew in `session`: any other one of ours the server has declared over."""

    @property
    def next_look(self) -> float | None:
        """The clock time at which this channel wants to be evaluated again, whatever happens."""

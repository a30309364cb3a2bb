"""What operators do to one member: have it give a partition up, and set how fast it reads. In its own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.operations import BadOperationError, Done, Operation, UnknownTargetError, Verb, waited_for
from inbound.processors.base import paces
from inbound.set_aside import UNTIL_REBALANCE
from inbound.topic_partition import TopicPartition


class MemberOperations:
    """Any thread but the controller's, on which releases begin."""

    def __init__(self, channels: Callable[[], Sequence[InboundKafkaChannel]]) -> None:
        """`channels` returns those that run now."""
        self._channels = channels

    def __call__(self, channel: str, operation: Operation) -> Done:
        """Do it.

        Raises:
            UnknownTargetError: this process has no such channel, is another member, or does not hold the partition.
            BadOperationError: it cannot be done.
            TransientError: the controller did not answer in time.
        """
        found = next((one for one in self._channels() if one.name == channel), None)
        if found is None:
            raise UnknownTargetError(f"no channel {channel!r} in this process")
        mine = found.parts.consumer_id
        if operation.consumer not in (None, mine):
            raise UnknownTargetError(
                f"channel {channel}: this process is member {mine}, not {operation.consumer}; ask that member's process: "
                "its admin URL is in its id node"
            )
        done = self._rate(found, operation) if operation.verb is Verb.RATE else self._release(found, operation)
        changed, text = done
        members = sorted(m.consumer_id for m in found.membership.members)
        message = f"{channel}: {text} (member {mine})"
        return Done(
            channel, found.parts.settings.now.group, operation.verb.value, mine, changed, message, members,
            sorted({pause.holder for pause in found.parts.pausing.pauses}),
        )  # fmt: skip

    def _release(self, channel: InboundKafkaChannel, operation: Operation) -> tuple[bool, str]:
        tp = TopicPartition(operation.topic or "", operation.partition or 0)
        seconds = operation.seconds
        begun = waited_for(
            channel.tasks.spawn(channel.membership.give_up(tp, seconds), f"release of {tp}"), f"release of {tp}"
        )
        if not begun:
            held = ", ".join(str(p.tp) for p in sorted(channel.parts.schedule.held(), key=lambda p: p.tp)[:20])
            raise UnknownTargetError(
                f"channel {channel.name}: member {channel.parts.consumer_id} does not hold {tp}; it holds {held or 'none'}"
            )
        channel.parts.journal.note(
            "released-by-operator", "an operator had it released; the batch in hand ends and is committed first", tp
        )
        left = (
            f"until the next rebalance, for {UNTIL_REBALANCE:g} s at most"
            if seconds is None
            else f"for {seconds:g} s, or until a rebalance is asked for"
        )
        return True, (
            f"releases {tp} when the batch in hand is committed, and leaves it to other members {left}; if none has room for "
            "it nobody reads it meanwhile, and `rebalance` ends that"
        )

    def _rate(self, channel: InboundKafkaChannel, operation: Operation) -> tuple[bool, str]:
        processor, rate = channel.parts.service.processor, operation.per_second
        if not paces(type(processor)):
            raise BadOperationError(
                f"channel {channel.name}: a {type(processor).__name__} has no read rate that could be set; "
                "of the processors that inbound has, `simple` has one"
            )
        before = processor.max_read_rate
        processor.set_max_read_rate(rate)
        told = "as fast as it goes" if rate is None else f"at most {rate:g} records per second"
        channel.parts.journal.note("rate-set", f"an operator set the read rate: {told}", per_second=rate)
        return before != rate, f"reads {told}, until its options are changed or the process ends"

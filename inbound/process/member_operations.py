"""Operations on one member: release a partition, set the read rate."""

from __future__ import annotations

from collections.abc import Sequence

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.group.operations import (
    BadOperationError,
    Operation,
    OperationKind,
    OperationResult,
    UnknownTargetError,
    waited_for,
)
from inbound.group.partition_backoff import UNTIL_REBALANCE
from inbound.processors.base import paces
from inbound.topic_partition import TopicPartition


def operate_member(channels: Sequence[InboundKafkaChannel], channel: str, operation: Operation) -> OperationResult:
    """Do an operation on one member. Any thread but the controller's.

    Raises:
        UnknownTargetError: this process has no such channel, is another member, or does not hold the partition.
        BadOperationError: the processor cannot do it.
        TransientError: the controller, on whose thread releases begin, did not answer in time.
    """
    found = next((one for one in channels if one.name == channel), None)
    if found is None:
        raise UnknownTargetError(f"no channel {channel!r} in this process")
    mine = found.parts.consumer_id
    if operation.consumer not in (None, mine):
        raise UnknownTargetError(
            f"channel {channel}: this process is member {mine}, not {operation.consumer}; ask that member's process: "
            "its admin URL is in its id node"
        )
    changed, text = _rate(found, operation) if operation.verb is OperationKind.RATE else _release(found, operation)
    members = sorted(m.consumer_id for m in found.membership.members)
    return OperationResult(
        channel, found.parts.settings.now.group, operation.verb.value, mine, changed,
        f"{channel}: {text} (member {mine})", members, sorted({pause.holder for pause in found.parts.pause_state.pauses}),
    )  # fmt: skip


def _release(channel: InboundKafkaChannel, operation: Operation) -> tuple[bool, str]:
    tp = TopicPartition(operation.topic or "", operation.partition or 0)
    seconds = operation.seconds
    begun = waited_for(channel.give_up(tp, seconds), f"release of {tp}")
    if not begun:
        held = ", ".join(str(p.tp) for p in sorted(channel.held(), key=lambda p: p.tp)[:20])
        raise UnknownTargetError(
            f"channel {channel.name}: member {channel.parts.consumer_id} does not hold {tp}; it holds {held or 'none'}"
        )
    channel.note(
        "released-by-operator", "an operator had it released; the batch in hand ends and is committed first", tp
    )
    left = (
        f"until the next rebalance, for {UNTIL_REBALANCE:g} s at most"
        if seconds is None
        else f"for {seconds:g} s, or until a rebalance is asked for"
    )
    return True, (
        f"releases {tp} when the batch in hand is committed, and leaves it to other members {left}; if none has room for "
        "it, it has no reader until `rebalance` ends that"
    )


def _rate(channel: InboundKafkaChannel, operation: Operation) -> tuple[bool, str]:
    processor, rate = channel.parts.service.processor, operation.per_second
    if not paces(type(processor)):
        raise BadOperationError(
            f"channel {channel.name}: a {type(processor).__name__} has no read rate that could be set; "
            "of the processors that inbound has, `simple` has one"
        )
    before = processor.max_read_rate
    processor.set_max_read_rate(rate)
    told = "as fast as it goes" if rate is None else f"at most {rate:g} records per second"
    channel.note("rate-set", f"an operator set the read rate: {told}", per_second=rate)
    return before != rate, f"reads {told}, until its options are changed or the process ends"

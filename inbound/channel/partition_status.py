"""What status shows of one held partition."""

from __future__ import annotations

from inbound.channel.partition import Fate, Partition
from inbound.channel.parts import Parts
from inbound.status import PartitionStatus, stalled


def partition_status(partition: Partition, parts: Parts) -> PartitionStatus:
    """Return a snapshot. Any thread."""
    return PartitionStatus(
        topic=partition.tp.topic,
        partition=partition.tp.partition,
        place=partition.place.value,
        leaving=partition.fate is not Fate.KEEP,
        epoch=partition.fence.epoch,
        position=partition.position.delivered,
        committed=partition.committed,
        high_watermark=partition.position.high_watermark,
        lag=partition.lag,
        buffered_bytes=partition.buffer.size,
        records_total=partition.totals.records,
        batches_total=partition.totals.batches,
        commits_total=partition.totals.commits,
        attempts=partition.failure.attempts,
        held=partition.failure.held,
        last_error=partition.failure.last_error,
        last_batch_at=partition.totals.last_batch_at,
        in_doubt=not parts.zk.certain(partition.fence.session),
        paused=parts.schedule.paused,
        cause=partition.stall.cause,
        cause_since=partition.stall.cause_since,
        stalled=stalled(partition.stall.cause, partition.stall.since),
    )

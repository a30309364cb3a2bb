"""A channel's status, as `/status` and `inbound status` show it."""

from __future__ import annotations

from inbound.channel.parts import Parts
from inbound.channel.reader import Reader
from inbound.group.membership import GroupMembership
from inbound.observe.status.status import ChannelStatus, PartitionStatus, stalled
from inbound.partition.partition import Fate, Partition
from inbound.processors.base import paces


def partition_status(partition: Partition, parts: Parts) -> PartitionStatus:
    """Return a partition's status. Any thread."""
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


def channel_status(
    parts: Parts, membership: GroupMembership, reader: Reader, *, coordinator: str, not_sent: int | None, removed: bool
) -> ChannelStatus:
    """Return a channel's status. Any thread.

    `not_sent` is None until its processor is open.
    """
    held = sorted(parts.schedule.held(), key=lambda p: p.tp)
    totals = dict(parts.consumed)
    return ChannelStatus(
        name=parts.name,
        group=parts.settings.now.group,
        consumer_id=parts.consumer_id,
        coordinator=coordinator,
        registered=membership.registered,
        topics={name: meta.partitions for name, meta in reader.topics.found.items()},
        members=sorted(m.consumer_id for m in membership.members),
        share=membership.plan.share,
        notices=list(membership.plan.notices),
        bad_nodes=membership.backoff.problems(),
        partitions=[partition_status(p, parts) for p in held],
        abandoned=sorted(str(p.tp) for p in parts.schedule.abandoned()),
        records_total=sum(t.records for t in totals.values()),
        batches_total=sum(t.batches for t in totals.values()),
        commits_total=parts.commits_landed,
        commits_waiting=parts.committer.waiting(parts),
        commits_fenced_total=parts.commits_fenced,
        not_sent_total=not_sent or 0,
        processor=dict(parts.service.said("status")) if not_sent is not None else {},
        max_read_rate=parts.service.processor.max_read_rate if not_sent is not None else None,
        paced=paces(type(parts.service.processor)),
        left_to_others=[str(tp) for tp in membership.release_cooldown.partitions()],
        zk_transactions_total=parts.transactions,
        consumed={str(tp): t.records for tp, t in sorted(totals.items())},
        kafka_problem=reader.problem,
        ledger_problem=parts.ledger_notes.problem,
        provable=not parts.ledger_notes.not_provable,
        paused=list(parts.pause_state.pauses),
        resets=membership.resets.status(),
        subscriber=membership.report.status(),
        removed=removed,
        buffer_limit_bytes=parts.settings.now.reader.prefetch_bytes,
        meters=parts.meters.status(),
        ledger=parts.ledger_notes.status(),
        mirror=parts.mirror.status(),
        brokers=reader.brokers(),
    )

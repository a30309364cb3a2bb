"""Metrics of channels, of their ledgers and of their dispatchers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from inbound.ledger.base import LedgerStatus
from inbound.mirror.plan import FAILURES, MirrorStatus
from inbound.observe.metrics.definition import Metric, MetricGroup, of_channels
from inbound.observe.status.status import ChannelStatus
from inbound.partition.meters import CHANGES, HOLDS, PASSED_OVER, REVERTS, TRIGGERS
from inbound.processors.dispatch.counters import STATUSES
from inbound.runtime.instruments import KINDS, LONG_SECONDS, SECONDS, HistogramStatus, histogram_status

LABELS = ("channel", "group")
#: The status of a dispatcher, by its own word.
Said = Mapping[str, Any]

CHANNELS: MetricGroup[ChannelStatus] = MetricGroup(
    "Channels",
    "For each channel.",
    LABELS,
    of_channels(lambda channel: channel),
    (
        Metric("inbound_batches_total", "Batches delivered to the processor", lambda c: c.batches_total),
        Metric(
            "inbound_batch_duration_seconds",
            "Time inside on_next_batch",
            lambda c: c.meters.batch_seconds,
            bounds=SECONDS,
        ),
        Metric(
            "inbound_record_age_seconds",
            "Age of the first record of a batch, by its timestamp, when the batch is delivered to the processor",
            lambda c: c.meters.record_age_seconds,
            bounds=LONG_SECONDS,
        ),
        Metric("inbound_commits_total", "Commits that landed in ZooKeeper", lambda c: c.commits_total),
        Metric("inbound_commits_waiting", "Commits in flight to ZooKeeper", lambda c: c.commits_waiting),
        Metric(
            "inbound_commit_duration_seconds",
            "Time from the answer that asks for a commit until ZooKeeper has it, the ledger's fsync included",
            lambda c: c.meters.commit_seconds,
            bounds=SECONDS,
        ),
        Metric(
            "inbound_commits_fenced_total",
            "Commits refused because another consumer owned the partition by then: the epoch had moved on",
            lambda c: c.commits_fenced_total,
        ),
        Metric(
            "inbound_zookeeper_transactions_total",
            "Transactions that wrote commits; several commits share one",
            lambda c: c.zk_transactions_total,
        ),
        Metric(
            "inbound_exceptions_total",
            f"Exceptions that the processor's callbacks raised, by class: the first {KINDS}, and other",
            lambda c: c.meters.exceptions,
            "exception",
            KINDS + 1,
        ),
        Metric(
            "inbound_reverts_total",
            "Reverts of a partition: the processor asked for it, it failed (error), or the log was "
            "cut before the position (truncation)",
            lambda c: c.meters.reverts,
            "reason",
            len(REVERTS),
        ),
        Metric(
            "inbound_holds_total",
            "Times that a partition was held until an operator acts: a record fails for good, on_claim does, the log was cut below "
            "the position (truncation), the topic's id cannot be compared with the group's (topic), or a batch of records is "
            "broken, or becomes too large (unreadable)",
            lambda c: c.meters.holds,
            "reason",
            len(HOLDS),
        ),
        Metric(
            "inbound_passed_over_offsets_total",
            "Offsets that were gone past: the processor asked for it, a record failed for good and on_error.then says skip or "
            "dead-letter, or the log was cut and on_truncation is latest (truncation)",
            lambda c: c.meters.passed_over,
            "reason",
            len(PASSED_OVER),
        ),
        Metric(
            "inbound_retention_lost_offsets_total",
            "Offsets that Kafka had deleted before they were read",
            lambda c: c.meters.retention_lost,
        ),
        Metric(
            "inbound_not_sent_total",
            "Records that were committed and then not taken by a sink (no_duplication); of two sinks each counts",
            lambda c: c.not_sent_total,
        ),
        Metric(
            "inbound_rebalances_total",
            "Times that partitions began to move to or from this member, by what set it off: its start, a join, a leave, "
            "its session's expiry, topics, an operator, owner nodes that came or went otherwise, or the interval's end",
            lambda c: c.meters.rebalances,
            "trigger",
            len(TRIGGERS),
        ),
        Metric(
            "inbound_rebalance_duration_seconds",
            "Time from what set a rebalance off until the last partition of this member had moved",
            lambda c: c.meters.rebalance_seconds,
            bounds=SECONDS,
        ),
        Metric(
            "inbound_ownership_changes_total",
            "Partitions claimed, released gracefully, and lost to another consumer",
            lambda c: c.meters.ownership,
            "change",
            len(CHANGES),
        ),
        Metric("inbound_group_members", "Members of the group, as last read", lambda c: len(c.members)),
        Metric("inbound_group_share", "Partitions that this member should own", lambda c: c.share),
        Metric("inbound_channel_registered", "1 while this process is a member of the group", lambda c: c.registered),
        Metric(
            "inbound_channel_paused",
            "1 while this member is paused: it keeps its partitions and reads nothing",
            lambda c: bool(c.paused),
        ),
        Metric(
            "inbound_channel_abandoned_partitions",
            "Released partitions whose callback still runs; they are not claimed again before it ends",
            lambda c: len(c.abandoned),
        ),
        Metric(
            "inbound_channel_kafka_available",
            "0 while Kafka does not answer this channel",
            lambda c: c.kafka_problem is None,
        ),
        Metric(
            "inbound_channel_buffered_bytes",
            "Bytes of records read ahead, over all partitions",
            lambda c: sum(p.buffered_bytes for p in c.partitions),
        ),
        Metric(
            "inbound_channel_buffer_limit_bytes",
            "Bytes of records that may be read ahead (prefetch_bytes)",
            lambda c: c.buffer_limit_bytes,
        ),
        Metric("inbound_ledger_available", "0 while the ledger cannot be written", lambda c: c.ledger_problem is None),
        Metric(
            "inbound_ledger_provable",
            "1 while everything so far is in the ledger; 0 for good once something is not",
            lambda c: c.provable,
        ),
        Metric(
            "inbound_subscription_ready",
            "1 if the subscription that the channel serves is ready, as Knative's condition has it",
            lambda c: c.subscriber.ready == "True" if c.subscriber is not None else None,
        ),
    ),
)

LEDGERS: MetricGroup[LedgerStatus] = MetricGroup(
    "Ledgers",
    "For each channel with a ledger, in files or in a topic.",
    LABELS,
    of_channels(lambda channel: channel.ledger),
    (
        Metric("inbound_ledger_entries_total", "Entries written", lambda ledger: ledger.entries_total),
        Metric("inbound_ledger_written_bytes_total", "Bytes written", lambda ledger: ledger.bytes_total),
        Metric(
            "inbound_ledger_failures_total",
            "Entries that could not be written at a try",
            lambda ledger: ledger.failures_total,
        ),
        Metric(
            "inbound_ledger_sync_duration_seconds",
            "Time until entries survive a power cut: of an fsync, or until the topic's replicas have acknowledged",
            lambda ledger: ledger.sync_seconds,
            bounds=SECONDS,
        ),
    ),
)


MIRRORS: MetricGroup[MirrorStatus] = MetricGroup(
    "Mirrors",
    "For each channel with `offsets: {mirror: kafka}`.",
    LABELS,
    of_channels(lambda channel: channel.mirror),
    (
        Metric(
            "inbound_mirror_offsets_total", "Offsets that the Kafka group took", lambda mirror: mirror.offsets_total
        ),
        Metric(
            "inbound_mirror_failures_total",
            "Requests that failed, in whole or in part, by why: the group has members (live-group), an ACL (denied), its "
            "coordinator is being elected or loads, no broker answers or lets us in (unreachable), no-topic, other",
            lambda mirror: mirror.failures,
            "kind",
            len(FAILURES),
        ),
        Metric(
            "inbound_mirror_waiting_partitions",
            "Partitions with an offset that the Kafka group does not have yet",
            lambda mirror: mirror.waiting,
        ),
        Metric(
            "inbound_mirror_last_success_age_seconds",
            "Time since the Kafka group took offsets last; without commits nothing is sent",
            lambda mirror: mirror.last_success_age,
        ),
        Metric(
            "inbound_mirror_refused",
            "1 while nothing is mirrored because the Kafka group has members of its own",
            lambda mirror: mirror.state == "refused",
        ),
    ),
)


def _said(name: str) -> Callable[[Said], Any]:
    return lambda said: said.get(name, 0)


def _seconds(name: str) -> Callable[[Said], HistogramStatus | None]:
    return lambda said: histogram_status(said.get(name))


def _dispatch_counter(name: str, text: str) -> Any:
    return Metric(f"inbound_dispatch_{name}_total", text, _said(f"{name}_total"))


DISPATCHERS: MetricGroup[Said] = MetricGroup(
    "Dispatchers",
    "For each channel whose processor is `dispatch`.",
    LABELS,
    of_channels(lambda channel: channel.processor if "subscriber" in channel.processor else None),
    (
        _dispatch_counter("delivered", "Events that the subscriber took"),
        Metric(
            "inbound_dispatch_answers_total",
            f"Requests to the subscriber by the status of the answer; 0: there was no whole answer. The first {STATUSES} "
            "statuses, and other",
            lambda said: said.get("answers", {}),
            "code",
            STATUSES + 1,
        ),
        Metric(
            "inbound_dispatch_request_duration_seconds",
            "Time from a request to the subscriber until its answer, or until it is given up",
            _seconds("request_seconds"),
            bounds=SECONDS,
        ),
        Metric(
            "inbound_dispatch_event_duration_seconds",
            "Time from an event's record, by its timestamp, until the subscriber has taken the event: retries, and what the "
            "channel was behind, included",
            _seconds("event_seconds"),
            bounds=LONG_SECONDS,
        ),
        _dispatch_counter("retries", "Requests that were sent again"),
        _dispatch_counter("dead_lettered", "Events that the dead letter sink took"),
        _dispatch_counter("dead_letter_failures", "Dead letters that their sink did not take at a try"),
        Metric(
            "inbound_dispatch_waiting_dead_letters",
            "Events that the dead letter sink does not take: their partitions do not advance",
            _said("waiting_dead_letters"),
        ),
        _dispatch_counter("delayed", "Events that a retry topic took, where they wait to be sent again"),
        _dispatch_counter("passed_over", "Records in retry topics that wait there for other subscriptions"),
        _dispatch_counter("filtered", "Events that the subscription's filters left out"),
        Metric(
            "inbound_dispatch_waiting_for_limits",
            "Requests that wait for the subscription's limits in this process",
            _said("waiting_for_limits"),
        ),
        _dispatch_counter("undecodable", "Records that are no CloudEvents, skipped or not"),
        _dispatch_counter("skipped", "Records passed over because they are no CloudEvents (on_undecodable: skip)"),
        _dispatch_counter("replied", "Events of the subscriber's answers that the reply's receiver took"),
        _dispatch_counter(
            "headers_left_out", "Headers of records that could not go with a request: too many, too large, or no HTTP"
        ),
        Metric("inbound_dispatch_in_flight", "Requests in flight", _said("in_flight")),
        Metric(
            "inbound_dispatch_open",
            "Events delivered that are not finished, or wait behind one that is not",
            _said("open"),
        ),
        Metric(
            "inbound_dispatch_standing_partitions",
            "Partitions that wait for an event that is not taken; /status says why",
            lambda said: len(said.get("partitions", {})),
        ),
        Metric(
            "inbound_dispatch_subscriber_failing",
            "1 from a failed request until the subscriber takes an event",
            lambda said: said.get("subscriber_problem") is not None,
        ),
    ),
)

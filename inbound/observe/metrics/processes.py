"""Metrics of processes: session, threads, configuration, ledger shipping, ingress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from inbound.controller.kafka_controller import SessionState
from inbound.observe.metrics.definition import Metric, MetricGroup, of_process
from inbound.observe.status.status import (
    IngressStatus,
    ProcessStatus,
    ResetsStatus,
    SessionStatus,
    ShippingStatus,
    ThreadStatus,
    TracingStatus,
)
from inbound.runtime.instruments import SECONDS

#: Statuses of the ingress's answers at most.
INGRESS_STATUSES = 30


def _threads(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterator[tuple[tuple[str, ...], ThreadStatus]]:
    return (((thread.name,), thread) for thread in process.threads)


def _reloads(process: ProcessStatus) -> Mapping[str, float] | None:
    found = process.reload
    if found is None:
        return None
    return {"applied": found.applied_total, "refused": found.refused_total, "rolled_back": found.rolled_back_total}


PROCESSES: MetricGroup[ProcessStatus] = MetricGroup(
    "Process",
    "For each process. Those of Python (`process_...`, `python_gc_...`) are there too; with `--processes N` they are the "
    "parent's.",
    (),
    of_process(lambda process: process),
    (
        Metric(
            "inbound_build_info",
            "Always 1; the label says which version of inbound runs",
            lambda p: {p.version: 1},
            "version",
            1,
        ),
        Metric("inbound_ready", "1 while the process is ready, as /readyz says", lambda p: not p.ready()),
        Metric(
            "inbound_stuck_threads",
            "Internal threads that are dead, or have been stuck for 60 s: what /healthz fails for",
            lambda p: len(p.stuck()),
        ),
        Metric(
            "inbound_config_reloads_total",
            "Changes of the configuration by outcome: applied; refused as a whole; rolled_back "
            "because it did not start",
            _reloads,
            "outcome",
            3,
        ),
        Metric(
            "inbound_config_in_force",
            "1 while the configuration's files are what runs; 0 while they cannot be used",
            lambda p: p.config_problem is None and (p.reload is None or p.reload.problem is None),
        ),
        Metric(
            "inbound_config_last_reload_timestamp_seconds",
            "Unix time of the last change of the configuration, applied or not",
            lambda p: p.reload.last_at if p.reload is not None else None,
        ),
    ),
)


def _refused(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterator[tuple[tuple[str, ...], int]]:
    return iter(Counter((one.file, one.namespace or "", one.name or "") for one in process.refused_manifests).items())


MANIFESTS: MetricGroup[int] = MetricGroup(
    "Manifests",
    "For each [manifest](subscriptions.md#a-manifest-that-cannot-be-used) that cannot be used, in whole or in part; there is none "
    "while all can. Namespace and name are empty where a file cannot be read.",
    ("file", "namespace", "name"),
    _refused,
    (
        Metric(
            "inbound_manifests_refused",
            "How much of the manifest cannot be used: 1 for the whole, or its subscribers that cannot",
            lambda number: number,
        ),
    ),
)

RESETS: MetricGroup[ResetsStatus] = MetricGroup(
    "Resets of offsets",
    "For each process that carries resets out.",
    (),
    of_process(lambda process: process.resets),
    (
        Metric(
            "inbound_resets_unfinished",
            "Resets of offsets that have not ended, of any group; every process counts them",
            lambda r: r.unfinished,
        ),
        Metric(
            "inbound_resets_total",
            "Resets of offsets that this process has led to their end, by result: succeeded, refused, cancelled",
            lambda r: r.ended_total,
            "result",
            3,
        ),
        Metric(
            "inbound_reset_last_duration_seconds",
            "Time from submission to end of the last reset that this process has led to its end, by result",
            lambda r: r.last_seconds,
            "result",
            3,
        ),
    ),
)

TRACING: MetricGroup[TracingStatus] = MetricGroup(
    "Tracing",
    "For each process that [traces](tracing.md), since its settings for that count.",
    (),
    of_process(lambda process: process.tracing),
    (
        Metric("inbound_tracing_spans_sent_total", "Spans that the collector has taken", lambda t: t.sent_total),
        Metric(
            "inbound_tracing_spans_dropped_total",
            "Spans that were dropped: too many waited, or the collector refused them",
            lambda t: t.dropped_total,
        ),
        Metric("inbound_tracing_spans_waiting", "Spans that have ended and are not sent yet", lambda t: t.waiting),
        Metric(
            "inbound_tracing_collector_available",
            "0 while no spans can be sent to the collector",
            lambda t: t.problem is None,
        ),
    ),
)

SESSIONS: MetricGroup[SessionStatus] = MetricGroup(
    "ZooKeeper session",
    "For each process that takes part in a group.",
    (),
    of_process(lambda process: process.session),
    (
        Metric(
            "inbound_zookeeper_session_state",
            "1 for the state that the ZooKeeper session is in, 0 for the others",
            lambda s: {state.value: s.state == state.value for state in SessionState},
            "state",
            len(SessionState),
        ),
        Metric(
            "inbound_zookeeper_session_certain_seconds",
            "Seconds for which the ZooKeeper session surely lives on without another answer; 0: its partitions are in doubt",
            lambda s: s.certain_for,
        ),
        Metric(
            "inbound_zookeeper_sessions_total",
            "ZooKeeper sessions that this process has had; more than 1: one expired",
            lambda s: s.sessions_total,
        ),
        Metric(
            "inbound_zookeeper_suspensions_total",
            "Times that the connection to ZooKeeper was lost",
            lambda s: s.suspensions_total,
        ),
        Metric(
            "inbound_evaluations_total",
            "Evaluations: times that the controller compared owners and shares",
            lambda s: s.evaluations_total,
        ),
    ),
)

THREADS = MetricGroup(
    "Internal threads",
    "For each of them; their number follows from the configuration.",
    ("thread",),
    _threads,
    (
        Metric("inbound_thread_alive", "1 while the internal thread runs; 0 is a defect", lambda t: t.alive),
        Metric(
            "inbound_thread_last_step_age_seconds",
            "Time since the internal thread's last step; a worker's grows while it is inside a callback",
            lambda t: t.last_step_age,
        ),
        Metric(
            "inbound_thread_failures_total",
            "Steps of the internal thread that raised; any is a defect",
            lambda t: t.failures,
        ),
    ),
)

SHIPPING: MetricGroup[ShippingStatus] = MetricGroup(
    "A ledger behind a URI",
    "For each process whose `ledger.path` is a URI.",
    (),
    of_process(lambda process: process.ledger_shipping),
    (
        Metric(
            "inbound_ledger_shipping_available",
            "0 while files of the ledger cannot be shipped: they wait in the spool",
            lambda s: s.problem is None,
        ),
        Metric(
            "inbound_ledger_spool_files",
            "Files of the ledger that are ended and not shipped",
            lambda s: s.files_waiting,
        ),
        Metric(
            "inbound_ledger_spool_bytes",
            "Bytes of the files of the ledger that are ended and not shipped",
            lambda s: s.bytes_waiting,
        ),
        Metric("inbound_ledger_shipped_files_total", "Files of the ledger that were shipped", lambda s: s.files_total),
        Metric(
            "inbound_ledger_shipping_failures_total",
            "Files of the ledger that could not be shipped at a try",
            lambda s: s.failures_total,
        ),
    ),
)

INGRESS: MetricGroup[IngressStatus] = MetricGroup(
    "Ingress",
    "For each process that has an [ingress](ingress.md).",
    (),
    of_process(lambda process: process.ingress),
    (
        Metric(
            "inbound_ingress_requests_total",
            "Requests by the status of their answer",
            lambda i: i.answers,
            "status",
            INGRESS_STATUSES,
        ),
        Metric(
            "inbound_ingress_accepted_events_total",
            "Events that Kafka has, and whose request was answered with 202",
            lambda i: i.accepted_events_total,
        ),
        Metric(
            "inbound_ingress_written_events_total",
            "Events that Kafka has acknowledged",
            lambda i: i.written_events_total,
        ),
        Metric(
            "inbound_ingress_failed_events_total",
            "Events that Kafka did not acknowledge",
            lambda i: i.failed_events_total,
        ),
        Metric("inbound_ingress_received_bytes_total", "Bytes of requests' bodies", lambda i: i.received_bytes_total),
        Metric(
            "inbound_ingress_refused_connections_total",
            "Connections closed because there were too many",
            lambda i: i.connections_refused_total,
        ),
        Metric(
            "inbound_ingress_kafka_available", "0 while Kafka does not answer the ingress", lambda i: i.away is None
        ),
        Metric("inbound_ingress_connections", "Clients that are connected", lambda i: i.connections),
        Metric(
            "inbound_ingress_in_flight_bytes", "Bytes of bodies that are not answered yet", lambda i: i.in_flight_bytes
        ),
        Metric("inbound_ingress_in_flight_events", "Events in flight to Kafka", lambda i: i.in_flight_events),
        Metric(
            "inbound_ingress_in_flight_requests",
            "Complete requests that are not answered yet",
            lambda i: i.in_flight_requests,
        ),
        Metric(
            "inbound_ingress_request_duration_seconds",
            "Time from the last byte of a request to its answer; requests refused before that are not in it",
            lambda i: i.request_seconds,
            bounds=SECONDS,
        ),
        Metric(
            "inbound_ingress_headers_left_out_total",
            "Headers of requests that did not go into records: too many, or too large",
            lambda i: i.headers_left_out_total,
        ),
    ),
)


def _produced(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterator[tuple[tuple[str, ...], int]]:
    for place, count in sorted(process.ingress.produced.items() if process.ingress is not None else ()):
        topic, _, partition = place.rpartition("/")
        yield (partition, f"inbound-ingress#producer-{process.pid}", topic), count


PRODUCED = MetricGroup(
    "For dashboards of Knative's eventing-kafka: its receiver",
    "The gauge of its receiver, under its name and labels, for each partition that the ingress has written to. There `producer` "
    "was the name of the Kafka client (`rdkafka#producer-1`); here it ends in the pid, such as `inbound-ingress#producer-4711`. "
    "It has no label `pid`.",
    ("partition", "producer", "topic"),
    _produced,
    (Metric("eventing_kafka_produced_msg_count", "Produced Message Count", lambda count: count),),
    has_pid=False,
)

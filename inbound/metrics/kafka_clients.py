"""What the Kafka clients measure of their own requests, by broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inbound.kafka.broker_figures import FAILURES, STATISTICS, BrokerFigures
from inbound.metrics.definition import Section, counter, gauge
from inbound.status import ProcessStatus

LABELS = ("client", "channel", "group", "broker")
#: The ancestor's word for each statistic that it and librdkafka have.
_PERCENTILES = {"mean": "mean", "p50": "50%", "p75": "75%", "p95": "95%", "p99": "99%", "max": "max"}


def _brokers(
    process: ProcessStatus, others: Sequence[ProcessStatus]
) -> Iterator[tuple[tuple[str, ...], BrokerFigures]]:
    for channel in process.channels:
        for one in channel.brokers:
            yield ("consumer", channel.name, channel.group, str(one.broker)), one
    for one in process.brokers:
        yield ("consumer", "", "", str(one.broker)), one
    for one in process.ingress.brokers if process.ingress is not None else ():
        yield ("producer", "", "", str(one.broker)), one


BROKERS: Section[BrokerFigures] = Section(
    "Brokers, as Kafka clients see them",
    "For each broker that a channel's consumer (`client` is `consumer`), or the ingress's producer (`producer`, without "
    "channel and group), sends requests to: what the client library measures, over the last 15 s with confluent-kafka and "
    "over 30 to 60 s with kafka-python. kafka-python has of times only `mean` and `max`, and neither requests in flight nor "
    "failures. Consumers by which the subscriptions of a process read together have no channel and group; several of them "
    "are told as one, with the largest of their percentiles.",
    LABELS,
    _brokers,
    (
        gauge("inbound_kafka_requests_per_second", "Requests to the broker", lambda b: b.requests_per_second),
        gauge("inbound_kafka_sent_bytes_per_second", "Bytes sent to the broker", lambda b: b.sent_bytes_per_second),
        gauge(
            "inbound_kafka_received_bytes_per_second",
            "Bytes received from the broker, compressed as they are",
            lambda b: b.received_bytes_per_second,
        ),
        gauge(
            "inbound_kafka_request_duration_seconds",
            "Time from a request to its answer: mean, p50, p75, p95, p99, max. While nothing comes, a fetch waits at the broker "
            "for fetch.max.wait.ms, and with kafka-python for 2 s",
            lambda b: b.request_seconds,
            "statistic",
            len(STATISTICS),
        ),
        gauge(
            "inbound_kafka_throttle_duration_seconds",
            "Time by which a quota of the broker delayed answers: mean, p50, p75, p95, p99, max",
            lambda b: b.throttle_seconds,
            "statistic",
            len(STATISTICS),
        ),
        gauge("inbound_kafka_requests_in_flight", "Requests that wait for the broker's answer", lambda b: b.in_flight),
        counter(
            "inbound_kafka_failures_total",
            "Connections that ended (disconnect), also those that were idle; requests that could not be sent (send), had no answer "
            "in time (timeout), or one that could not be read (receive)",
            lambda b: b.failures,
            "kind",
            len(FAILURES),
        ),
    ),
)

ANCESTOR_LATENCY: Section[BrokerFigures] = Section(
    "For alerts of Knative's eventing-kafka",
    "The gauge of its Kafka clients' latency, under its name and with its `percentile`. There it was of all brokers together; here "
    "it is of each, with our labels. kafka-python knows `mean` and `max` only.",
    LABELS,
    _brokers,
    (
        gauge(
            "eventing_kafka_request_latency_in_ms",
            "Distribution of the request latency in ms",
            lambda b: {_PERCENTILES[name]: 1000 * seconds for name, seconds in b.request_seconds.items()},
            "percentile",
            len(_PERCENTILES),
        ),
    ),
)

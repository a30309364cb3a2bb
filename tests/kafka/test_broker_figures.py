"""What both Kafka clients tell of their requests, by broker; over the libraries themselves, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kafka.metrics import Metrics
from kafka.net.metrics import KafkaConnectionMetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from inbound.config import IngressConfig
from inbound.ingress.confluent_producer import ConfluentProducer
from inbound.kafka.base import FAILURES, STATISTICS, BrokerFigures, combined_figures
from inbound.kafka.confluent import figures as confluent_figures
from inbound.kafka.confluent.figures import OVERDUE, Statistics
from inbound.kafka.confluent.figures import figures_of as of_confluent
from inbound.kafka.python.brokers import figures_of as of_kafka_python
from inbound.observe.metrics import Exposition
from inbound.processors.cloudevents_bridge import RecordParts
from tests.kafka.librdkafka_broker import librdkafka_broker
from tests.observe.status.made_status import channel, process
from tests.waiting import until

EMPTY = {"cnt": 0, "avg": 0, "max": 0} | dict.fromkeys(("p50", "p75", "p95", "p99"), 0)


def broker(node: int, source: str = "learned", **changes: Any) -> dict[str, Any]:
    """Return a broker as librdkafka tells of it, with what is read of it."""
    quiet = dict.fromkeys(
        ("tx", "txbytes", "rxbytes", "waitresp_cnt", "disconnects", "txerrs", "rxerrs", "req_timeouts"), 0
    )
    return {"nodeid": node, "source": source, **quiet, "rtt": EMPTY, "throttle": EMPTY, "toppars": {}, **changes}


def statistics_text(seconds: float, *brokers: dict[str, Any], client: str = "inbound-orders") -> str:
    """Return librdkafka's statistics so long after its beginning, spaced and ordered as its own."""
    head = f'{{ "name": "{client}#consumer-1", "client_id": "{client}", "type": "consumer", "ts":{int((7 + seconds) * 1e6)}, '
    named = {f"host:{9092 + n}/{one['nodeid']}": one for n, one in enumerate(brokers)}
    return f'{head}"age":{int(seconds * 1e6)}, "brokers":{json.dumps(named)}, "topics":{{ "o": [not read'


def test_rates_are_of_the_time_between_two() -> None:
    """The first is compared with the client's beginning, a broker that was not there before with nothing."""
    first, sample = of_confluent(statistics_text(10, broker(1, tx=20, txbytes=1000, rxbytes=50_000)), None)

    second, _ = of_confluent(
        statistics_text(25, broker(2, tx=3), broker(1, tx=50, txbytes=1300, rxbytes=80_000), broker(-1, tx=9)), sample
    )

    def rates(figures: Sequence[BrokerFigures]) -> list[tuple[int, float, float, float]]:
        return [
            (one.broker, one.requests_per_second, one.sent_bytes_per_second, one.received_bytes_per_second)
            for one in figures
        ]

    assert rates(first) == [(1, 2.0, 100.0, 5000.0)]
    assert rates(second)[1:] == [(1, 2.0, 20.0, 2000.0), (2, pytest.approx(0.2), 0.0, 0.0)]


def test_addresses_of_the_settings_and_roles_are_no_brokers() -> None:
    """Their connections are told of twice, or not used any more."""
    text = statistics_text(1, broker(-1, "configured"), broker(1), broker(1, "logical", tx=9))

    assert [one.broker for one in of_confluent(text, None)[0]] == [1]


def test_times_are_in_seconds_and_there_only_if_something_was_measured() -> None:
    """librdkafka has microseconds for one and milliseconds for the other."""
    rtt = {"cnt": 4, "avg": 2000, "p50": 1000, "p75": 2000, "p95": 3000, "p99": 4000, "max": 5000}
    told = broker(1, rtt=rtt, waitresp_cnt=2, disconnects=3, txerrs=4, rxerrs=5, req_timeouts=6)

    (one,), _ = of_confluent(statistics_text(1, told), None)

    assert one.request_seconds == {"mean": 0.002, "p50": 0.001, "p75": 0.002, "p95": 0.003, "p99": 0.004, "max": 0.005}
    assert (one.throttle_seconds, one.in_flight) == ({}, 2)
    assert one.failures == {"disconnect": 3, "send": 4, "receive": 5, "timeout": 6}


def test_what_cannot_be_read_is_reported_once_and_costs_the_figures_alone(caplog: pytest.LogCaptureFixture) -> None:
    """An exception would come out of the client's poll: the channel would be stalled."""
    statistics = Statistics()
    statistics.take(statistics_text(1, broker(1)))
    for text in (
        "",
        "{}",
        statistics_text(2, broker(1), client='a"b'),
        statistics_text(2, {"nodeid": 1, "source": "learned"}),
    ):
        statistics.take(text)

    assert (statistics.brokers, len(caplog.records)) == ((), 1)
    assert "client.id" in caplog.messages[0]


def test_it_is_known_when_none_was_taken_for_long() -> None:
    """They pile up in the client then."""
    now = [0.0]
    statistics = Statistics(lambda: now[0])

    seen = []
    for at in (OVERDUE, OVERDUE + 1):
        now[0] = at
        seen.append(statistics.overdue)
    statistics.take(statistics_text(1, broker(1)))

    assert (seen, statistics.overdue) == ([False, True], False)


def kafka_python() -> Sequence[BrokerFigures]:
    """Return the figures of kafka-python's own registry: an answer of broker 1, and an address of the settings."""
    metrics = Metrics()
    for node in ("bootstrap-0", 1):
        sensors = KafkaConnectionMetrics(metrics, "consumer", node)
        sensors.bytes_sent.record(3000)
        sensors.bytes_received.record(60_000)
        sensors.request_time.record(20)
        sensors.request_time.record(40)
        sensors.throttle_time.record(0)
    KafkaConnectionMetrics(metrics, "consumer", 2)
    return of_kafka_python(metrics.metrics)


def confluent() -> Sequence[BrokerFigures]:
    """Return the figures of librdkafka after a request of broker 1."""
    measured = EMPTY | {"cnt": 1, "avg": 1000, "max": 1000}
    text = statistics_text(1, broker(1, tx=1, txbytes=3000, rxbytes=60_000, rtt=measured, throttle=measured))
    return of_confluent(text, None)[0]


def test_kafka_python_tells_of_brokers_by_their_ids() -> None:
    """Of one that was asked nothing there are rates of 0 and no times."""
    one, two = kafka_python()

    assert (one.broker, one.request_seconds) == (1, {"mean": pytest.approx(0.03), "max": 0.04})
    rates = [one.requests_per_second, one.sent_bytes_per_second, one.received_bytes_per_second]
    assert rates == pytest.approx([1 / 30, 100, 2000], rel=0.1)
    assert two == BrokerFigures(
        broker=2, requests_per_second=0.0, sent_bytes_per_second=0.0, received_bytes_per_second=0.0
    )
    assert of_kafka_python(None) == []


def test_clients_that_read_together_are_as_one() -> None:
    """Their counts are added. Their means weigh by requests; percentiles cannot be combined, so the largest counts."""
    few, many, other = (
        BrokerFigures(
            broker=broker, requests_per_second=rate, sent_bytes_per_second=10 * rate, received_bytes_per_second=100 * rate,
            request_seconds={"mean": seconds, "p99": 2 * seconds}, in_flight=in_flight, failures={"send": 1},
        )
        for broker, rate, seconds, in_flight in ((1, 1.0, 0.5, None), (1, 3.0, 0.25, 2), (2, 0.0, 0.1, 1))
    )  # fmt: skip

    one, two = combined_figures([other, few, many])

    assert two == other
    assert one == BrokerFigures(
        broker=1, requests_per_second=4.0, sent_bytes_per_second=40.0, received_bytes_per_second=400.0,
        request_seconds={"mean": 0.3125, "p99": 1.0}, in_flight=2, failures={"send": 2},
    )  # fmt: skip


def series(figures: Callable[[], Sequence[BrokerFigures]]) -> dict[str, set[tuple[str, ...]]]:
    """Return the metrics that a channel has of its client, and the values of what they are told apart by besides."""
    one = channel(brokers=[figure for figure in figures() if figure.broker == 1])
    body = Exposition(lambda: process(channels=[one])).render()[0].decode()
    found: dict[str, set[tuple[str, ...]]] = {}
    for family in prometheus(body):
        if family.name.startswith(("inbound_kafka_", "eventing_kafka_request")):
            own = {"client": "consumer", "channel": "orders", "group": "orders-svc", "broker": "1"}
            assert all(own.items() <= sample.labels.items() for sample in family.samples)
            found[family.name] = {tuple(v for k, v in s.labels.items() if k not in own) for s in family.samples}
    return found


def test_both_clients_serve_the_same_names() -> None:
    """Of times kafka-python has the mean and the largest; what goes wrong, and what is in flight, it does not tell."""
    fast, pure = series(confluent), series(kafka_python)

    assert fast.keys() - pure.keys() == {"inbound_kafka_requests_in_flight", "inbound_kafka_failures"}
    assert pure.keys() <= fast.keys()
    assert fast["inbound_kafka_request_duration_seconds"] == {(name,) for name in STATISTICS}
    assert pure["inbound_kafka_request_duration_seconds"] == {("mean",), ("max",)}
    assert fast["inbound_kafka_failures"] == {(kind,) for kind in FAILURES}
    assert ("95%",) in fast["eventing_kafka_request_latency_in_ms"]
    assert pure["eventing_kafka_request_latency_in_ms"] == {("mean",), ("max",)}


@pytest.mark.slow
def test_the_ingress_producer_tells_of_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka's statistics are read as they come; more often than usual, so that the test need not wait."""
    monkeypatch.setattr(confluent_figures, "INTERVAL", 0.02)
    with librdkafka_broker() as mock:
        mock.create("orders")
        producer = ConfluentProducer(IngressConfig(), {"bootstrap.servers": mock.address})
        producer.send("orders", [RecordParts(b"k", b"v" * 5000, [])], [lambda error, _: None])

        def sent() -> bool:
            producer.poll()
            return any(one.sent_bytes_per_second and one.request_seconds for one in producer.figures())

        until(sent, 20, "the broker's figures are there", look=0.002)
        seen = producer.figures()
        producer.close(5.0)
    assert [one.broker for one in seen] == [1]

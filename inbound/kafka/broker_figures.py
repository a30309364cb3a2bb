"""What a Kafka client measures of its own requests, by broker: the same figures of both clients, as far as each has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Of a time that is measured again and again; kafka-python has the first and the last.
STATISTICS = ("mean", "p50", "p75", "p95", "p99", "max")
#: What goes wrong with requests, as librdkafka counts it. A broker that closes an idle connection is a disconnect, too.
FAILURES = ("disconnect", "send", "receive", "timeout")


@dataclass(frozen=True, kw_only=True)
class BrokerFigures:
    """One client's requests to one broker, over its last window: 15 s with confluent-kafka, 30 to 60 with kafka-python."""

    broker: int  # its node id
    requests_per_second: float
    sent_bytes_per_second: float
    received_bytes_per_second: float
    #: Seconds from a request to its answer, by statistic; empty if there was none. A fetch waits at the broker for records.
    request_seconds: dict[str, float] = field(default_factory=dict)
    throttle_seconds: dict[str, float] = field(default_factory=dict)  # by which a quota delayed answers, by statistic
    in_flight: int | None = None  # requests that wait for an answer; None: the client does not tell
    failures: dict[str, int] = field(default_factory=dict)  # since the client began, by kind; empty: it does not tell


def together(figures: Iterable[BrokerFigures]) -> list[BrokerFigures]:
    """Return the figures of several clients as those of one, by broker.

    Rates and counts are added, a mean is that of all requests; of the other statistics, which cannot be put together, the
    largest is given.
    """
    by_broker: dict[int, list[BrokerFigures]] = {}
    for one in figures:
        by_broker.setdefault(one.broker, []).append(one)
    return [_of_one_broker(same) if len(same) > 1 else same[0] for _, same in sorted(by_broker.items())]


def _of_one_broker(same: list[BrokerFigures]) -> BrokerFigures:
    told = [one.in_flight for one in same if one.in_flight is not None]
    kinds = dict.fromkeys(kind for one in same for kind in one.failures)
    return BrokerFigures(
        broker=same[0].broker,
        requests_per_second=sum(one.requests_per_second for one in same),
        sent_bytes_per_second=sum(one.sent_bytes_per_second for one in same),
        received_bytes_per_second=sum(one.received_bytes_per_second for one in same),
        request_seconds=_times([(one.requests_per_second, one.request_seconds) for one in same]),
        throttle_seconds=_times([(one.requests_per_second, one.throttle_seconds) for one in same]),
        in_flight=sum(told) if told else None,
        failures={kind: sum(one.failures.get(kind, 0) for one in same) for kind in kinds},
    )


def _times(weighted: list[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    measured = [(weight, times) for weight, times in weighted if times]
    names = dict.fromkeys(name for _, times in measured for name in times)
    found = {name: max(times[name] for _, times in measured if name in times) for name in names}
    all_of_them = sum(weight for weight, _ in measured)
    if "mean" in found and all_of_them:
        found["mean"] = sum(weight * times["mean"] for weight, times in measured) / all_of_them
    return found

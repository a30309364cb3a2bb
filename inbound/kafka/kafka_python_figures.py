"""What kafka-python measures of its requests, from what the public `metrics` of its clients returns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import isfinite
from typing import Any

from inbound.kafka.broker_figures import BrokerFigures

#: The groups of its metrics of one broker end in this and the broker's id; `bootstrap-0` is an address of the settings.
_NODE = "-node-metrics.node-"


def figures_of(metrics: Mapping[Any, Any] | None) -> list[BrokerFigures]:
    """Return the figures of the brokers in `metrics(raw=True)` of a consumer or producer, which is None without any.

    Any thread: a value that the client's own thread adds at the same moment may be missing.
    """
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for name, metric in (metrics or {}).items():
        node = name.group.partition(_NODE)[2]
        if node.isdecimal():
            found[int(node)][name.name] = metric.value()
    return [
        BrokerFigures(
            broker=broker,
            requests_per_second=of.get("request-rate", 0.0),
            sent_bytes_per_second=of.get("outgoing-byte-rate", 0.0),
            received_bytes_per_second=of.get("incoming-byte-rate", 0.0),
            request_seconds=_seconds(of, "request-latency"),
            throttle_seconds=_seconds(of, "throttle-time"),
        )
        for broker, of in sorted(found.items())
    ]


def _seconds(of: Mapping[str, float], name: str) -> dict[str, float]:
    """Return a time's mean and maximum; nothing where none was measured: then the maximum is minus infinity."""
    largest = of.get(f"{name}-max", float("-inf"))
    return {"mean": of[f"{name}-avg"] / 1000, "max": largest / 1000} if isfinite(largest) else {}

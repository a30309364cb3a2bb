"""What a Kafka client has measured of its brokers, for people: one line."""

from __future__ import annotations

from collections.abc import Sequence

from inbound.cli.table import count, number
from inbound.config.units import format_duration
from inbound.kafka.broker_figures import BrokerFigures


def brokers_line(brokers: Sequence[BrokerFigures], whose: str = "Kafka") -> str | None:
    """Return the line, which begins with `whose`; None where nothing is known yet."""
    if not brokers:
        return None
    requests = sum(one.requests_per_second for one in brokers)
    received = sum(one.received_bytes_per_second for one in brokers) / 2**20
    sent = sum(one.sent_bytes_per_second for one in brokers) / 2**20
    line = (
        f"{whose}: {count(len(brokers), 'broker')}, {number(requests)} requests/s, {number(received)} MiB/s received, "
        f"{number(sent)} MiB/s sent"
    )
    failed = sum(n for one in brokers for kind, n in one.failures.items() if kind != "disconnect")
    if failed:
        line += f", {count(failed, 'failed request')}"
    throttled = [f"broker {one.broker} by {_mean(one)}" for one in brokers if one.throttle_seconds.get("mean")]
    return line + (f"; answers are throttled: {', '.join(throttled)}" if throttled else "")


def _mean(one: BrokerFigures) -> str:
    return format_duration(round(one.throttle_seconds["mean"], 3) or 0.001)

"""Measurements of a client's requests, from librdkafka's statistics."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from inbound.kafka.base import STATISTICS, BrokerFigures

log = logging.getLogger(__name__)

#: librdkafka emits statistics at this interval. Seconds. With 1,000 partitions a call takes 2 ms of CPU time, nearly all of it
#: librdkafka's own.
INTERVAL = 15.0
#: Without polls statistics fill the client's unbounded queue: 12 KB each, and 0.7 KB more per partition.
OVERDUE = 4 * INTERVAL

_DECODER = json.JSONDecoder()
#: The only part that is decoded, in 0.3 ms. With 1,000 partitions topics are 0.7 of 0.76 MB, and would take 11 ms.
_BROKERS = '"brokers":'
#: Units per second of the text's times: microseconds and milliseconds.
_RTT, _THROTTLE = 1e6, 1e3


class StatisticsSample(NamedTuple):
    """The totals of one statistics call, for the rates of the next."""

    at: float  # seconds, on librdkafka's own clock
    totals: Mapping[int, tuple[int, int, int]]  # by broker: requests, bytes sent, bytes received


class Statistics:
    """Reads the statistics of one client, on the thread that polls it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._taken_at = clock()
        self._before: StatisticsSample | None = None
        self._unreadable = False
        #: As of the last statistics call. Replaced as a whole: any thread may read it.
        self.brokers: Sequence[BrokerFigures] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the client whose statistics these are."""
        return {"statistics.interval.ms": round(INTERVAL * 1000), "stats_cb": self.take}

    @property
    def overdue(self) -> bool:
        """Whether a poll is overdue, without which statistics pile up."""
        return self._clock() > self._taken_at + OVERDUE

    def take(self, text: str) -> None:
        """Read one statistics text; never raises, or the client's `poll` would."""
        self._taken_at = self._clock()
        try:
            self.brokers, self._before = figures_of(text, self._before)
        except (ValueError, LookupError, TypeError) as error:
            self.brokers = ()
            if not self._unreadable:
                self._unreadable = True
                log.warning(
                    "kafka: librdkafka's statistics cannot be read, so this client has no figures of its brokers; look whether "
                    "client.id has quotation marks: %s: %s", type(error).__name__, error,
                )  # fmt: skip


def figures_of(text: str, before: StatisticsSample | None) -> tuple[list[BrokerFigures], StatisticsSample]:
    """Return the brokers' figures in a statistics text, and their totals.

    `before` has the totals of the text before.

    Raises:
        ValueError, LookupError, TypeError: it is not librdkafka's format.
    """
    start = text.index(_BROKERS)
    head = json.loads(text[:start].rstrip(", ") + "}")
    brokers, _ = _DECODER.raw_decode(text, text.index("{", start))
    at = head["ts"] / 1e6
    # The first text is compared with the start of the client.
    since, known = (before.at, before.totals) if before is not None else (at - head["age"] / 1e6, {})
    seconds = max(at - since, 1e-3)
    figures, totals = [], {}
    for broker in sorted(brokers.values(), key=lambda one: int(one["nodeid"])):
        if broker["source"] != "learned":  # an address in the settings, or a role, like the group's coordinator
            continue
        node = broker["nodeid"]
        totals[node] = now = (broker["tx"], broker["txbytes"], broker["rxbytes"])
        requests, sent, received = (
            max(0, new - old) / seconds for new, old in zip(now, known.get(node, (0, 0, 0)), strict=True)
        )
        figures.append(
            BrokerFigures(
                broker=node,
                requests_per_second=requests,
                sent_bytes_per_second=sent,
                received_bytes_per_second=received,
                request_seconds=_seconds(broker["rtt"], _RTT),
                throttle_seconds=_seconds(broker["throttle"], _THROTTLE),
                in_flight=broker["waitresp_cnt"],
                failures={
                    "disconnect": broker["disconnects"],
                    "send": broker["txerrs"],
                    "receive": broker["rxerrs"],
                    "timeout": broker["req_timeouts"],
                },
            )
        )
    return figures, StatisticsSample(at, totals)


def _seconds(window: Mapping[str, float], unit: float) -> dict[str, float]:
    measured = STATISTICS if window["cnt"] else ()
    return {name: window["avg" if name == "mean" else name] / unit for name in measured}

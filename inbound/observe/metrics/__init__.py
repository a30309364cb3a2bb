"""Metrics for Prometheus, read from the status snapshot at each scrape.

Begin with `definition.py`. `SECTIONS` is the table of all metrics: docs/metrics.md is generated from it, and beans
(`observe/jmx`) take descriptions and values from it. Names carry base units; counters end in `_total` and begin at 0 with the
process, never with a partition that leaves and returns. The room knows the status only: never a channel, a process or a server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from inbound.observe.metrics.channels import CHANNELS, DISPATCHERS, LEDGERS, MIRRORS
from inbound.observe.metrics.definition import AnySection, lines_of
from inbound.observe.metrics.partitions import (
    ANCESTOR,
    ANCESTOR_LATENCY,
    BROKERS,
    EXPORTERS,
    GROUPS,
    OFFSETS,
    PARTITIONS,
    RECORDS,
)
from inbound.observe.metrics.processes import (
    INGRESS,
    MANIFESTS,
    PROCESSES,
    PRODUCED,
    RESETS,
    SESSIONS,
    SHIPPING,
    THREADS,
    TRACING,
)
from inbound.observe.status.status import ProcessStatus

#: Called once per request: the status of this process, or a list if one port serves several (`run --processes`).
Snapshot = Callable[[], ProcessStatus | Sequence[ProcessStatus]]

SECTIONS: tuple[AnySection, ...] = (
    PARTITIONS, OFFSETS, RECORDS, CHANNELS, LEDGERS, MIRRORS, DISPATCHERS, SESSIONS, RESETS, PROCESSES, MANIFESTS, THREADS,
    SHIPPING, INGRESS, BROKERS, GROUPS, EXPORTERS, TRACING, ANCESTOR, PRODUCED, ANCESTOR_LATENCY,
)  # fmt: skip
_OPENMETRICS = "application/openmetrics-text"


class Exposition:
    """Answers `/metrics`: our metrics and the Python process's. Any thread.

    If one port serves several processes, every series but the ancestor's gauges has the further label `pid`: a restarted
    process begins its counters at 0, and a sum over processes would go back.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._python = CollectorRegistry()
        ProcessCollector(registry=self._python)
        GCCollector(registry=self._python)

    def render(self, accept: str | None = None) -> tuple[bytes, str]:
        """Return all metrics and their content type.

        They are OpenMetrics if `accept` asks for it, else Prometheus text. Raises the errors of the snapshot.
        """
        try:
            encode, content_type = choose_encoder(accept or "")
        except (TypeError, ValueError):  # it compares versions that are no numbers
            encode, content_type = choose_encoder("")
        found = self._snapshot()
        processes = [found] if isinstance(found, ProcessStatus) else found
        strict = content_type.startswith(_OPENMETRICS)
        lines = lines_of(SECTIONS, processes, strict=strict, pid=not isinstance(found, ProcessStatus))
        lines.append(encode(self._python).decode())  # last: in OpenMetrics it ends with the mark of the end
        return "\n".join(lines).encode(), content_type

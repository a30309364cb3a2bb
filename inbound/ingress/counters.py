"""What the ingress counts while it works."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from inbound.instruments import Histogram


@dataclass
class Counters:
    """Written by the event loop alone; read by any thread."""

    answers: Counter[int] = field(default_factory=Counter)  # by status
    written_events: int = 0  # acknowledged by Kafka, whatever the request was answered
    accepted_events: int = 0  # answered with 202
    failed_events: int = 0  # given to the producer, and not acknowledged
    received_bytes: int = 0  # of bodies
    in_flight_bytes: int = 0
    in_flight_events: int = 0
    in_flight_requests: int = 0  # complete, and not answered
    request_seconds: Histogram = field(default_factory=Histogram)  # from the last byte of a request to its answer
    #: Events that Kafka has acknowledged, by topic and partition.
    produced: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

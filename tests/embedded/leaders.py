"""Who leads the partitions of a topic: asked of an embedded broker without a client."""

from __future__ import annotations

import struct

from inbound.embedded.kafka import ask_for_metadata, read_brokers


def partition_leaders(port: int, topic: str, timeout: float) -> dict[int, int]:
    """Ask the broker on `port` who leads each partition of a topic: node ids, -1 for none.

    Empty if it cannot be reached, gives no answer within `timeout` seconds, or does not know the topic.
    """
    try:
        return parse_leaders(ask_for_metadata(port, timeout, topic), topic)
    except OSError:
        return {}


def parse_leaders(answer: bytes, topic: str) -> dict[int, int]:
    """Return each partition's leader in the answer to a Metadata v1 request: after the brokers, controller and topics."""
    at = read_brokers(answer)[1] + 4  # the controller's node id
    (topics,) = struct.unpack_from(">i", answer, at)
    at += 4
    leaders = {}
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, at + 2)  # after the error code
        name = answer[at + 4 : at + 4 + length].decode()
        at += 4 + length + 1  # whether it is internal
        (partitions,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(partitions):
            _, number, leader, replicas = struct.unpack_from(">hiii", answer, at)
            at += 14 + 4 * replicas
            (in_sync,) = struct.unpack_from(">i", answer, at)
            at += 4 + 4 * in_sync
            if name == topic:
                leaders[number] = leader
    return leaders

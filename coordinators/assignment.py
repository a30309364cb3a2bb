"""Shares of partitions, as pure functions of the nodes."""

from __future__ import annotations

from collections.abc import Collection

from inbound.topic_partition import TopicPartition


def share(rank: int, members: int, partitions: int) -> int:
    """Return how many of `partitions` the member of `rank` should own.

    Rank 0 is the longest-serving member. ceil((P - i) / n): counts differ by at most one, and the remainder goes to the
    longest-serving members, so that a joiner moves as little as possible.
    """
    return -((rank - partitions) // members) if partitions > rank else 0


def dealt(rank: int, members: int, first: int, count: int) -> int:
    """Return a member's part of `count` partitions that are dealt in turn.

    `first` partitions were dealt before these. The members' parts of each pile differ by at most one, and so do their sums.
    """
    return share(rank, members, first + count) - share(rank, members, first)


def surplus(mine: Collection[TopicPartition], keep: int) -> list[TopicPartition]:
    """Return the surplus above `keep`: highest partitions of the fullest topics first."""
    per_topic: dict[str, list[TopicPartition]] = {}
    for tp in sorted(mine):
        per_topic.setdefault(tp.topic, []).append(tp)
    released = []
    for _ in range(len(mine) - keep):
        fullest = max(per_topic, key=lambda topic: (len(per_topic[topic]), topic))
        released.append(per_topic[fullest].pop())
    return released


def choose(
    free: Collection[TopicPartition], count: int, rank: int, members: int, partitions: int | None = None
) -> list[TopicPartition]:
    """Return `count` of the ownerless partitions for one member to claim.

    Each member begins at its own place of the ring, so that members that look at the same time want different partitions.
    `partitions` is the number to be shared in all. With it, the place comes after what members of a lower rank need: exactly
    so where the other partitions are owned in even shares, as after a member has left. Two members may still want the same
    partition; the first claim wins and the other member looks again.
    """
    ring = sorted(free)
    if partitions is None or not members:
        start = rank * len(ring) // members if members else 0
    else:
        owned = max(partitions - len(ring), 0)
        start = sum(share(other, members, partitions) - share(other, members, owned) for other in range(rank))
    return [ring[(start + step) % len(ring)] for step in range(min(max(count, 0), len(ring)))]


def classes(topics: dict[str, frozenset[str]]) -> list[tuple[frozenset[str], list[str]]]:
    """Group topics by the members that list them.

    Shares are counted over all topics of one such class together. `topics` maps a topic to the ids of its members. Returns
    (members, topics) pairs in a fixed order.
    """
    together: dict[frozenset[str], list[str]] = {}
    for topic in sorted(topics):
        together.setdefault(topics[topic], []).append(topic)
    return sorted(together.items(), key=lambda pair: pair[1])

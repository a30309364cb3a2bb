"""Who should own how much: pure functions of the nodes."""

from __future__ import annotations

from collections.abc import Collection

from inbound.topic_partition import TopicPartition


def share(rank: int, members: int, partitions: int) -> int:
    """Return how many of `partitions` the member of `rank` (0 is the longest-serving) should own.

    ceil((P - i) / n): counts differ by at most one, and the remainder goes to those who were there first, so that a
    joiner moves as little as possible.
    """
    return -((rank - partitions) // members) if partitions > rank else 0


def dealt(rank: int, members: int, first: int, count: int) -> int:
    """Return how many of `count` partitions `rank` gets when they are dealt out in turn, `first` having gone before.

    Over consecutive piles everybody's piles differ by at most one, and so do everybody's sums.
    """
    return share(rank, members, first + count) - share(rank, members, first)


def surplus(mine: Collection[TopicPartition], keep: int) -> list[TopicPartition]:
    """Return what to release of `mine` so that `keep` stay: from the topics of which most is held, highest first."""
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
    """Return `count` of the ownerless partitions for the member of `rank` to claim.

    Each member begins at its own place of the ring, so that members who look at the same time want different ones. With
    `partitions`, the number to be shared in all, that place comes after what those of a lower rank need: exactly so where
    the others are owned in even shares, as after a member has left. Two may still want the same; the first claim wins and
    the other looks again.
    """
    ring = sorted(free)
    if partitions is None or not members:
        start = rank * len(ring) // members if members else 0
    else:
        owned = max(partitions - len(ring), 0)
        start = sum(share(other, members, partitions) - share(other, members, owned) for other in range(rank))
    return [ring[(start + step) % len(ring)] for step in range(min(max(count, 0), len(ring)))]


def classes(topics: dict[str, frozenset[str]]) -> list[tuple[frozenset[str], list[str]]]:
    """Group topics by the members that list them: shares are counted over all topics of one such class together.

    `topics` maps a topic to the ids of its members. Returns (members, topics) pairs in a fixed order.
    """
    together: dict[frozenset[str], list[str]] = {}
    for topic in sorted(topics):
        together.setdefault(topics[topic], []).append(topic)
    return sorted(together.items(), key=lambda pair: pair[1])

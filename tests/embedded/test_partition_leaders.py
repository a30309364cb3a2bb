"""Who leads what, read from a broker's answer by hand."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.embedded.leaders import parse_leaders

PARTITIONS = st.dictionaries(
    st.integers(0, 1000), st.tuples(st.integers(-1, 9), st.lists(st.integers(1, 9), max_size=3)), max_size=5
)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def array(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


@given(st.dictionaries(st.text(max_size=9), PARTITIONS, max_size=4), st.text(max_size=9), st.integers(0, 3))
def test_the_leaders_of_one_topic_are_read_from_a_metadata_answer(
    topics: dict[str, dict[int, tuple[int, list[int]]]], wanted: str, brokers: int
) -> None:
    """Other topics, any number of replicas and brokers, and partitions without a leader are all read past."""
    nodes = [struct.pack(">i", n) + text("host") + struct.pack(">ih", 9092, -1) for n in range(brokers)]
    listed = [
        struct.pack(">h", 0) + text(name) + b"\0" + array([
            struct.pack(">hii", 0, number, leader) + 2 * array([struct.pack(">i", n) for n in replicas])
            for number, (leader, replicas) in partitions.items()
        ])
        for name, partitions in topics.items()
    ]  # fmt: skip
    answer = struct.pack(">i", 1) + array(nodes) + struct.pack(">i", 1) + array(listed)

    assert parse_leaders(answer, wanted) == {p: leader for p, (leader, _) in topics.get(wanted, {}).items()}

"""Batches of some KiB that become hundreds of MiB, on a real broker that lets them through, and its readers."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from inbound.admin.client import fetch_status
from inbound.kafka.python.client import ASIDE, KafkaPythonClient
from inbound.topic_partition import TopicPartition
from integration.harness import Scene, Scenes
from integration.kafka.bombs import MESSAGE_TOO_LARGE, MIB, NONE, bomb, publish
from tests.waiting import until

#: Each of less than 1 MiB, which a broker takes by default.
BOMBS = {0: ("gzip", 600), 1: ("zstd", 600), 2: ("zstd-sized", 600), 3: ("lz4", 240)}
#: What a process may have in memory at the most, in MiB: Python and its modules, the bound, and a copy of what is within it.
MOST = 400


def held(scene: Scene, process: subprocess.Popen[bytes]) -> dict[int, str]:
    """Return why partitions are held, as status says."""
    status: Any = fetch_status(scene.admin_url(process))
    partitions = status["channels"][0]["partitions"]
    return {one["partition"]: one["held"] for one in partitions if one["held"] is not None}


def peak(process: subprocess.Popen[bytes]) -> int:
    """Return how many MiB a process had in memory at the most."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def bombed(scene: Scene, codecs: dict[int, tuple[str, int]]) -> dict[int, int]:
    """Put a batch between records of these partitions. Returns the brokers' answers."""
    scene.publish(3)
    answers = {n: publish(scene.bootstrap_servers, scene.topic, n, bomb(*one)) for n, one in codecs.items()}
    scene.publish(2)
    return answers


@pytest.mark.parametrize(
    ("client", "codecs", "said"),
    [
        (
            "kafka-python",
            BOMBS,
            "bytes become more than 67108864 (reader.max_decompressed_bytes) when they are decompressed",
        ),
        ("confluent-kafka", {1: BOMBS[1], 2: BOMBS[2]}, "receive.message.max.bytes"),
    ],
)
def test_a_bomb_holds_its_partition_and_costs_no_memory(
    scenes: Scenes, client: str, codecs: dict[int, tuple[str, int]], said: str
) -> None:
    """The broker takes each, for it counts compressed bytes. What is before it is read, and everything of the others."""
    s = scenes(client=client)
    answers = bombed(s, codecs)
    process = s.start()
    until(lambda: held(s, process).keys() == codecs.keys(), 90, lambda: f"they are held: {s.log(process)}")
    until(
        lambda: [s.offset(n) for n in range(6)] == [3 if n in codecs else 5 for n in range(6)], 60, "all else is read"
    )

    assert (set(answers.values()), [why for why in held(s, process).values() if said not in why]) == ({NONE}, [])
    assert s.log(process).count("held: the batch of records at offset 3 cannot be read") == len(codecs)
    assert peak(process) < (MOST if client == "kafka-python" else 2 * MOST)
    assert s.stop(process) == 0


def test_a_broker_refuses_what_is_large_on_the_wire_and_what_lies(scenes: Scenes) -> None:
    """Snappy makes a twentieth of it at best: 600 MiB do not fit. And a length that is not true is found out."""
    s = scenes()

    assert publish(s.bootstrap_servers, s.topic, 0, bomb("snappy", 40)) == MESSAGE_TOO_LARGE
    assert publish(s.bootstrap_servers, s.topic, 0, bomb("snappy-lie", 1)) != NONE


def test_partitions_that_wait_in_the_midst_of_a_batch_are_bounded_together_and_read_to_the_end(scenes: Scenes) -> None:
    """A hundred of them would else keep a hundred times what a batch may become."""
    s = scenes(partitions=8)
    producer = KafkaProducer(
        bootstrap_servers=s.bootstrap_servers, compression_type="gzip", batch_size=8 * MIB, linger_ms=60_000
    )
    for n in range(8 * 2_000):
        producer.send(s.topic, b"\0" * 1024, partition=n % 8)
    producer.close()
    tps = [TopicPartition(s.topic, n) for n in range(8)]
    client = KafkaPythonClient(
        {"bootstrap.servers": s.bootstrap_servers}, client_id="test", max_poll_records=100,
        max_decompressed_bytes=3 * MIB,
    )  # fmt: skip
    offsets: dict[TopicPartition, list[int]] = {tp: [] for tp in tps}
    waiting: list[int] = []

    def poll() -> None:
        for tp, fetched in client.poll(0.1).fetched.items():
            offsets[tp] += [record.offset for record in fetched.records]
            client.pause([tp])
        aside = client._fetcher._paused_partition_records
        waiting.append(sum(part.bounded.made for part in aside.values()))

    with closing(client):
        client.read(dict.fromkeys(tps, 0))
        for _ in range(2_000):
            poll()
            unread = [tp for tp in tps if len(offsets[tp]) < 2_000]
            if not unread:
                break
            if all(tp in client._paused for tp in unread):  # each waits in the midst of its batch
                client.resume(unread)

    assert offsets == {tp: list(range(2_000)) for tp in tps}
    assert 8 * MIB < max(waiting) <= ASIDE * 3 * MIB


#: Reads a topic with librdkafka, within so many bytes of memory.
READS = """
import resource, sys, confluent_kafka as ck
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if int(sys.argv[3]):
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]), int(sys.argv[3])))
consumer = ck.Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g", "receive.message.max.bytes": 20_000_000,
                        "fetch.max.bytes": 1_000_000, "message.max.bytes": 1_000_000})
consumer.incremental_assign([ck.TopicPartition(sys.argv[2], 0, 3)])
message = None
while message is None:
    message = consumer.poll(1.0)
print(len(message.value()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.thorough("says whether what SECURITY.md says of librdkafka is so still; the product's own part is above")
@pytest.mark.parametrize("codec", ["gzip", "lz4"])
def test_librdkafka_has_no_bound_for_gzip_and_lz4(scenes: Scenes, codec: str) -> None:
    """It takes all that it becomes, twice; where that is not there, the process ends. None of its settings changes that."""
    s = scenes()
    mib = 600 if codec == "gzip" else 240
    bombed(s, {0: (codec, mib)})
    command = [sys.executable, "-c", READS, s.bootstrap_servers, s.topic]
    free, bounded = (
        subprocess.run([*command, str(limit * MIB)], capture_output=True, text=True, timeout=240, check=False)
        for limit in (0, mib + 300)
    )

    size, most = map(int, free.stdout.split())
    assert (size, most > 2 * mib, bounded.returncode != 0) == (mib * MIB, True, True), bounded

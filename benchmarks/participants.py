"""Who takes part in `benchmarks.drain`: how each is started, and how many records it reads."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.environments import go_program, java_classes, python_environment
from inbound.embedded.jars import fetch_jars

TOPIC, ONE_PARTITION, SECOND = "drain", "drain-one-partition", "drain-second"
#: The topics, and how many partitions each has.
TOPICS = {TOPIC: 8, ONE_PARTITION: 1, SECOND: 8}
SERVERS = """\
zookeeper: {{hosts: "{zookeeper}"}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: "{ledger}"}}
controller: {{join_delay: 500ms}}
channels:
"""
CHANNEL = """\
  {topic}:
    topics: [{topic}]
    group: {group}-{topic}
    reader: {{client: {client}}}
    processor: {{type: "{processor}", options: {options}}}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a benchmark happens."""

    bootstrap: str
    zookeeper: str
    #: Of this benchmark alone; removed at its end.
    work: Path
    #: The embedded servers' jars, and what the peers run in: these stay.
    jars: Path
    cache: Path


@dataclass(frozen=True, slots=True)
class Participant(ABC):
    """One consumer of `topics`. `records`, of all topics together, is for a run of 2 to 6 s."""

    name: str
    label: str
    records: int
    topics: tuple[str, ...] = field(default=(TOPIC,), kw_only=True)

    def prepare(self, place: Place) -> None:
        """Make what it runs in, where that is missing. Raises NotInstalledError: it cannot be had here."""

    @abstractmethod
    def command(self, place: Place, group: str, records: int) -> list[str]:
        """Return the command of one run, which prints the JSON line of `benchmarks.meter` last."""


@dataclass(frozen=True, slots=True)
class Loop(Participant):
    """A plain loop for each topic, in our own environment."""

    module: str

    def command(self, place: Place, group: str, records: int) -> list[str]:
        return [sys.executable, "-m", self.module, place.bootstrap, ",".join(self.topics), str(records), group]


@dataclass(frozen=True, slots=True)
class Channel(Participant):
    """A channel for each topic, in one process, with all defaults on, reading with `client`."""

    client: str
    processor: str = "Touching"

    def command(self, place: Place, group: str, records: int) -> list[str]:
        config = _config(place, group, self.topics, self.client, f"benchmarks.channel_loop:{self.processor}")
        return [sys.executable, "-m", "benchmarks.channel_loop", str(config), str(records)]


@dataclass(frozen=True, slots=True)
class Processes(Participant):
    """`inbound run --processes N`."""

    client: str
    processes: int

    def command(self, place: Place, group: str, records: int) -> list[str]:
        folder = place.work / group
        folder.mkdir()
        processor = "benchmarks.processes_loop:Tallying"
        config = _config(place, group, self.topics, self.client, processor, f'{{folder: "{folder}"}}')
        arguments = [str(config), str(records), str(self.processes), str(folder)]
        return [sys.executable, "-m", "benchmarks.processes_loop", *arguments]


@dataclass(frozen=True, slots=True)
class PythonPeer(Participant):
    """A framework in an environment of its own: benchmarks/peers/`folder`."""

    folder: str

    def prepare(self, place: Place) -> None:
        python_environment(place.cache, self.folder)

    def command(self, place: Place, group: str, records: int) -> list[str]:
        python = python_environment(place.cache, self.folder)
        module = f"benchmarks.peers.{self.folder}.loop"
        return [str(python), "-m", module, place.bootstrap, TOPIC, str(records), group]


@dataclass(frozen=True, slots=True)
class JavaPeer(Participant):
    """The loop of the Java client, of the embedded broker's version."""

    def prepare(self, place: Place) -> None:
        java_classes(place.cache, fetch_jars(place.jars).kafka)

    def command(self, place: Place, group: str, records: int) -> list[str]:
        classes = java_classes(place.cache, fetch_jars(place.jars).kafka)
        return ["java", "-Xmx1g", "-cp", classes, "Drain", place.bootstrap, TOPIC, str(records), group]


@dataclass(frozen=True, slots=True)
class GoPeer(Participant):
    """The loop of franz-go."""

    def prepare(self, place: Place) -> None:
        go_program(place.cache, "franz-go")

    def command(self, place: Place, group: str, records: int) -> list[str]:
        return [str(go_program(place.cache, "franz-go")), place.bootstrap, TOPIC, str(records), group]


def _config(
    place: Place, group: str, topics: tuple[str, ...], client: str, processor: str, options: str = "{}"
) -> Path:
    """Write the configuration of one run."""
    path = place.work / f"{group}.yaml"
    servers = SERVERS.format(zookeeper=place.zookeeper, bootstrap=place.bootstrap, ledger=place.work / "ledger")
    channels = [
        CHANNEL.format(topic=topic, group=group, client=client, processor=processor, options=options)
        for topic in topics
    ]
    path.write_text(servers + "".join(channels))
    return path


@dataclass(frozen=True, slots=True)
class Comparison:
    """A ratio of two participants' records per second; `only` is what the command line calls it."""

    only: str
    figure: str
    over: str
    under: str


PARTICIPANTS = (
    Channel("channel_kafka_python", "channel, kafka-python", 300_000, "kafka-python"),
    Loop("plain_kafka_python", "plain kafka-python", 300_000, "benchmarks.plain_loop"),
    Channel("channel_confluent", "channel, confluent-kafka", 1_300_000, "confluent-kafka"),
    Loop("plain_confluent", "plain confluent-kafka", 1_300_000, "benchmarks.confluent_loop"),
    Channel(
        "channel_told", "channel, confluent-kafka, told of its commits", 1_300_000, "confluent-kafka", processor="Told"
    ),
    Channel("one_partition_channel", "channel, one partition", 1_300_000, "confluent-kafka", topics=(ONE_PARTITION,)),
    Loop(
        "one_partition_plain",
        "plain confluent-kafka, one partition",
        1_300_000,
        "benchmarks.confluent_loop",
        topics=(ONE_PARTITION,),
    ),
    Channel("two_channels", "two channels in a process", 1_300_000, "confluent-kafka", topics=(TOPIC, SECOND)),
    Loop(
        "two_plain",
        "two plain confluent-kafka loops in a process",
        1_300_000,
        "benchmarks.confluent_loop",
        topics=(TOPIC, SECOND),
    ),
    PythonPeer("quixstreams", "quixstreams", 250_000, "quixstreams"),
    PythonPeer("faust", "faust-streaming", 30_000, "faust"),
    PythonPeer("bytewax", "bytewax", 500_000, "bytewax"),
    PythonPeer("aiokafka", "aiokafka", 400_000, "aiokafka"),
    JavaPeer("java", "Java KafkaConsumer", 1_000_000),
    GoPeer("franz_go", "franz-go (Go)", 1_300_000),
    Processes("one_process", "inbound run, 1 process", 250_000, "kafka-python", 1),
    Processes("two_processes", "inbound run, 2 processes", 400_000, "kafka-python", 2),
)
COMPARISONS = (
    Comparison("kafka-python", "kafka_python_ratio", "channel_kafka_python", "plain_kafka_python"),
    Comparison("confluent", "confluent_ratio", "channel_confluent", "plain_confluent"),
    Comparison("told", "told_ratio", "channel_told", "plain_confluent"),
    Comparison("one-partition", "one_partition_ratio", "one_partition_channel", "one_partition_plain"),
    Comparison("two-channels", "two_channels_ratio", "two_channels", "two_plain"),
    Comparison("quix", "quix_ratio", "channel_confluent", "quixstreams"),
    Comparison("faust", "faust_ratio", "channel_confluent", "faust"),
    Comparison("bytewax", "bytewax_ratio", "channel_confluent", "bytewax"),
    Comparison("aiokafka", "aiokafka_ratio", "channel_confluent", "aiokafka"),
    Comparison("java", "java_ratio", "channel_confluent", "java"),
    Comparison("franz-go", "franz_go_ratio", "channel_confluent", "franz_go"),
    Comparison("processes", "two_process_scaling", "two_processes", "one_process"),
)

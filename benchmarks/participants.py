"""Who takes part in `benchmarks.drain`: how each is started, and how many records it reads."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.environments import go_program, java_classes, python_environment
from inbound.embedded.jars import fetch_jars

TOPIC = "drain"
CONFIG = """\
zookeeper: {{hosts: "{zookeeper}"}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: "{ledger}"}}
controller: {{join_delay: 500ms}}
channels:
  drain:
    topics: [{topic}]
    group: {group}
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
    """One consumer of the topic. `records` is for a run of 2 to 6 s."""

    name: str
    label: str
    records: int

    def prepare(self, place: Place) -> None:
        """Make what it runs in, where that is missing. Raises NotInstalledError: it cannot be had here."""

    @abstractmethod
    def command(self, place: Place, group: str, records: int) -> list[str]:
        """Return the command of one run, which prints the JSON line of `benchmarks.meter` last."""


@dataclass(frozen=True, slots=True)
class Loop(Participant):
    """A plain loop in our own environment."""

    module: str

    def command(self, place: Place, group: str, records: int) -> list[str]:
        return [sys.executable, "-m", self.module, place.bootstrap, TOPIC, str(records), group]


@dataclass(frozen=True, slots=True)
class Channel(Participant):
    """A channel with all defaults on, reading with `client`."""

    client: str

    def command(self, place: Place, group: str, records: int) -> list[str]:
        config = _config(place, group, self.client, "benchmarks.channel_loop:Touching")
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
        config = _config(place, group, self.client, processor, f'{{folder: "{folder}"}}')
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


def _config(place: Place, group: str, client: str, processor: str, options: str = "{}") -> Path:
    """Write the configuration of one run."""
    path = place.work / f"{group}.yaml"
    text = CONFIG.format(
        zookeeper=place.zookeeper,
        bootstrap=place.bootstrap,
        ledger=place.work / "ledger",
        topic=TOPIC,
        group=group,
        client=client,
        processor=processor,
        options=options,
    )
    path.write_text(text)
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
    Channel("channel_confluent", "channel, confluent-kafka", 800_000, "confluent-kafka"),
    Loop("plain_confluent", "plain confluent-kafka", 1_000_000, "benchmarks.confluent_loop"),
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
    Comparison("quix", "quix_ratio", "channel_confluent", "quixstreams"),
    Comparison("faust", "faust_ratio", "channel_confluent", "faust"),
    Comparison("bytewax", "bytewax_ratio", "channel_confluent", "bytewax"),
    Comparison("aiokafka", "aiokafka_ratio", "channel_confluent", "aiokafka"),
    Comparison("java", "java_ratio", "channel_confluent", "java"),
    Comparison("franz-go", "franz_go_ratio", "channel_confluent", "franz_go"),
    Comparison("processes", "two_process_scaling", "two_processes", "one_process"),
)

"""`spark validate --quick` where something is missing or damaged: its words, and its exit code. It needs no Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from inbound.channel.worker import finish
from inbound.cli.main import main
from inbound.cli.spark.validate import Wish, _States
from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Create, SetData
from inbound.ledger.format import seal
from inbound.proof.model import PartitionKey
from inbound.spark.cluster_state import Subject
from inbound.testing import ManualClock
from inbound.testing.kafka import FakeKafka
from inbound.testing.zookeeper import FakeEnsemble
from tests.proof.made_proof import partition, proof
from tests.spark.test_spark_stories import Consumer

PATHS = GroupPaths("g")
CONFIG = """\
ledger: {ledger}
channels:
  {topic}: {{topics: [{topic}], group: {group}, processor: {{type: simple, options: {{sinks: [{{type: log}}]}}}}}}
"""


class Scene:
    """Two consumers, one after the other, have read the 100 records of orders/0 without a fault."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.ledger = folder / "ledger"
        self.output = folder / "proof"
        self._config = folder / "inbound.yaml"
        self._capsys = capsys
        self.kafka = FakeKafka()
        self.publish()
        self._ensemble = FakeEnsemble(ManualClock())
        self._ensemble.auto = True
        self._zk = self._ensemble.client("validate", 10.0)
        self.files = [self.read("a", 0, 6), self.read("b", 60, 4)]
        self.configure()

    def configure(self, ledger: str = "", topic: str = "orders", group: str = "g") -> None:
        self._config.write_text(CONFIG.format(ledger=ledger or f"{{path: {self.ledger}}}", topic=topic, group=group))

    def publish(self) -> None:
        self.kafka.create_topic("orders", 1)
        self.kafka.publish("orders", 0, [b"x"] * 100)

    def read(self, name: str, position: int, batches: int) -> Path:
        """Let a consumer claim the partition, read so many batches of ten, and end; returns its ledger."""
        epoch = self.write(PATHS.epoch("orders", 0), EpochInfo(name, 1, "n", "topic-1", leader_epoch=0).encode())
        consumer = Consumer(self.ledger, name, epoch, position).batches(batches)
        self.write(PATHS.offset("orders", 0), b"%d" % consumer.position)
        file = consumer.file()
        consumer.ledger.close()
        return file

    def write(self, path: str, data: bytes) -> int:
        """Write a node of ZooKeeper, and make it if need be; returns its version."""
        names = path.split("/")
        for depth in range(2, len(names) + 1):
            if self._ensemble.tree.get(node := "/".join(names[:depth])) is None:
                self._zk.transaction([Create(node)]).result()
        (stat,) = self._zk.transaction([SetData(path, data)]).result()
        assert stat is not None
        return stat.version

    def ask(self, settings: object, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return finish(work(self._zk))

    def validate(self, *flags: str) -> tuple[int, dict[str, Any], str]:
        """Run the command; returns exit code, proof, and all messages of missing or wrong things."""
        code = main(["spark", "validate", "-c", str(self._config), "--quick", "--json", *flags])
        out, said = self._capsys.readouterr()
        made: dict[str, Any] = json.loads(out) if out else {"partitions": [], "missing": []}
        missing = [*made["missing"], *(text for part in made["partitions"] for text in part["missing"])]
        return code, made, "\n".join([*missing, said])


@pytest.fixture
def scene(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Servers that are fakes; all that is asked of them is the command's own."""
    one = Scene(tmp_path, capsys)

    monkeypatch.setattr("inbound.spark.cluster_state.KafkaPythonClient", lambda *_, **__: one.kafka.client())
    monkeypatch.setattr("inbound.cli.spark.validate.with_zookeeper", one.ask)
    return one


def damage(scene: Scene) -> None:
    """Change one digit, as a disk does."""
    lines = scene.files[0].read_bytes().split(b"\n")
    lines[5] = lines[5].replace(b'"next":20', b'"next":21')
    scene.files[0].write_bytes(b"\n".join(lines))


def tear(scene: Scene) -> None:
    """Let a consumer die in the middle of a line."""
    scene.files[1].write_bytes(scene.files[1].read_bytes() + b'{"kind":"begun","group"')


def make_newer(scene: Scene) -> None:
    """Let a newer release have written a file."""
    header, rest = scene.files[0].read_bytes().split(b"\n", 1)
    body = header[: header.rindex(b',"crc"')].replace(b'{"v":1,', b'{"v":99,')
    scene.files[0].write_bytes(seal(body) + rest)


def recreate_topic(scene: Scene) -> None:
    """Delete the topic that the group's offset is about, and make another one of that name."""
    scene.kafka.delete_topic("orders")
    scene.publish()


def cut_log(scene: Scene) -> None:
    """Lose the newest records, and take others in their place; no consumer has run since."""
    scene.kafka.truncate("orders", 0, 40)
    scene.kafka.publish("orders", 0, [b"y"] * 80)


def by_hand(text: bytes) -> Callable[[Scene], None]:
    """Return what puts this where the last consumer's `end` stood, under a right seal."""

    def change(scene: Scene) -> None:
        *lines, _, rest = scene.files[1].read_bytes().split(b"\n")
        scene.files[1].write_bytes(b"\n".join([*lines, seal(text)]) + rest)

    return change


HEAD = b'"group":"g","consumer":"b","topic":"orders","partition":0,"epoch":2,"wall":1.0,"seq":14'


def occupy_output(scene: Scene) -> None:
    """Put another proof.json where the proof is to be written."""
    scene.output.mkdir()
    (scene.output / "proof.json").write_text("{}")


@pytest.mark.parametrize(
    ("change", "flags", "code", "said"),
    [
        (lambda s: s.configure("{path: /no/such/folder}"), (), 3, "/no/such/folder: there is no such directory; check ledger.path"),
        (lambda s: shutil.rmtree(s.ledger / "g"), (), 3, "/ledger has no ledger of it"),
        (lambda s: s.configure("{type: none}"), (), 3, "ledger.type is none"),
        (damage, (), 3, "0001.jsonl can't be read: its checksum is wrong"),
        (tear, (), 0, ""),
        (by_hand(b"null"), (), 3, "its checksum is right, but it is no JSON object"),
        (by_hand(b'{"kind":"revert","facts":5,' + HEAD), (), 3, "(revert of orders/0) says what no release writes: {'facts': 5}"),
        (by_hand(b'{"kind":"skip","facts":{"from":7},' + HEAD), (), 3, "says what no release writes: {'from': 7}; restore it"),
        (by_hand(b'{"kind":"claimed","facts":{"position":-1},' + HEAD), (), 3, "what no release writes: {'position': -1}"),
        (by_hand(b'{"kind":"degraded","facts":{"from":1e300,"to":1e300},' + HEAD), (), 3, "what no release writes: {'from'"),
        (make_newer, (), 3, "0001.jsonl: it has format version 99, this inbound reads up to 1; read it with"),
        (lambda s: (s.ledger / "g" / "notes.txt").write_text("milk"), (), 0, "notes.txt: is no file of a ledger, and was not read"),
        (lambda s: s.kafka.delete_topic("orders"), (), 3, "topic orders: Kafka has no such topic"),
        (recreate_topic, (), 3, "the topic was deleted and made again"),
        (cut_log, (), 3, "the log was cut at 40 below the commit 100"),
        (lambda s: None, ("--group", "unknown"), 3, "group unknown: neither the configuration nor ZooKeeper knows it"),
        (lambda s: s.configure(topic="other", group="other"), ("--group", "g"), 0, ""),
        (lambda s: None, ("--partitions", "0,7"), 3, "partitions 7: no topic of group"),
        (occupy_output, ("--output",), 2, "is no folder of a proof, so nothing is written there"),
    ],
)  # fmt: skip
def test_what_is_missing_damaged_or_foreign_is_reported(
    scene: Scene, change: Callable[[Scene], object], flags: tuple[str, ...], code: int, said: str
) -> None:
    """Not provable or bad configuration, with the thing; what does no harm changes nothing."""
    change(scene)

    ended, _, told = scene.validate(*flags, *([str(scene.output)] if flags == ("--output",) else []))

    assert (ended, said in told) == (code, True), told
    assert said or told == ""


def test_a_missing_file_of_a_run(scene: Scene) -> None:
    """The ledger of `a` was deleted: what lies below the beginning of `b` is not claimed to be proven."""
    scene.files[0].unlink()

    _, made, _ = scene.validate()

    assert [(part["start"], part["proven"]) for part in made["partitions"]] == [(60, 100)]


def test_an_empty_topic(scene: Scene) -> None:
    """A consumer has claimed a partition in which nothing ever was."""
    scene.kafka.create_topic("empty", 1)
    scene.configure(topic="empty")
    scene.write(PATHS.offset("empty", 0), b"0")

    code, made, told = scene.validate()

    assert (code, [part["findings"] for part in made["partitions"]], told) == (0, [[]], "")


@pytest.mark.parametrize("node", [PATHS.offset, PATHS.epoch])
def test_a_node_that_cannot_be_used_makes_no_other_partition_unprovable(
    scene: Scene, node: Callable[[str, int], str]
) -> None:
    """It is named; nothing is concluded from what else ZooKeeper says of the partition."""
    scene.kafka.create_topic("empty", 2)
    scene.configure(topic="empty")
    for number in (0, 1):
        scene.write(PATHS.offset("empty", number), b"0")
    path = node("empty", 0)
    scene.write(path, b"nonsense")

    code, made, told = scene.validate()

    assert (code, [part["verdict"] for part in made["partitions"]]) == (3, ["not provable", "proven"])
    assert f"what ZooKeeper knows of it cannot be used: {path}: holds b'nonsense', not " in told


SUBJECTS = [Subject("g", ("orders",))]
PROVEN = proof(partition(0, key=PartitionKey("g", "orders", 0)))


@pytest.mark.parametrize(
    "content",
    ["not JSON", "{}", '{"format": "inbound-proven", "v": 99}', '{"format": "inbound-proven", "v": 1, "group": "x"}'],
)
def test_a_state_that_cannot_be_used_is_reported_and_left_as_it_is(tmp_path: Path, content: str) -> None:
    """Corrupt, foreign, of a newer version, of another group: all is judged from the start."""
    place = tmp_path / "proofs" / "g.json"
    place.parent.mkdir()
    place.write_text(content)
    said: list[str] = []

    states = _States(SUBJECTS, tmp_path, Wish(), said.append)
    states.keep(PROVEN, {})

    assert (states.known, place.read_text(), len(said)) == ({}, content, 1)
    assert said[0].startswith(f"{place}: ")
    assert said[0].endswith("; the file is left as it is, and all is judged from the start")


def test_quick_mode_moves_nothing_on(tmp_path: Path) -> None:
    """It has not read the log, so an exact proof must not begin behind it."""
    for mode in ("quick", "exact"):
        _States(SUBJECTS, tmp_path, Wish(mode=mode), print).keep(PROVEN, {})
        assert (tmp_path / "proofs").exists() is (mode == "exact")

"""`inbound offsets reset` as an operator has it: what is printed, what is moved, what is refused with which exit code."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inbound.cli.main import main
from inbound.cli.offsets import reset as offsets_reset
from inbound.controller.reset_offset import ResetCommand, listing
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.testing.topic_logs import FakeTopicLogs
from inbound.testing.world import GROUP, Recording, World

CONFIG = f"""\
channels:
  orders: {{topics: [orders], group: {GROUP}, processor: {{type: simple, options: {{sinks: [log]}}}}}}
manifests: {{paths: [channels.yaml]}}
"""
CHANNELS = f"""\
apiVersion: messaging.knative.dev/v1
kind: KafkaChannel
metadata: {{name: shop, namespace: eu}}
spec: {{subscribers: [{{uid: a-1, name: search, subscriberUri: "http://search"}}]}}
---
apiVersion: messaging.knative.dev/v1
kind: KafkaChannel
metadata: {{name: orders, namespace: eu}}
spec: {{subscribers: [{{uid: "{GROUP}", name: everything, subscriberUri: "http://everything"}}]}}
"""
MANIFEST = """\
apiVersion: kafka.eventing.knative.dev/v1alpha1
kind: ResetOffset
metadata: {name: rewind, namespace: eu}
spec:
  offset: {time: earliest}
  ref: {apiVersion: messaging.knative.dev/v1, kind: Subscription, name: everything}
"""
#: Those of the records, in milliseconds; there are ten of each in each partition.
TIMES = (1_000, 2_000, 3_000)
THESE = ("--group", GROUP, "--topic", "orders")


class Stage:
    """Two consumers that have read everything, and an operator at a command line."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.world.kafka.create_topic("orders", 3)
        for partition in range(3):
            for at in TIMES:
                self.world.kafka.publish("orders", partition, [b"x"] * 10, timestamp=at)
        self.world.kafka.retain("orders", 2, 5)
        self.processors = {name: Recording() for name in ("a", "b")}
        for name, processor in self.processors.items():
            self.world.join(name, processor)
        self.world.run(5)
        self.folder = folder
        self._capsys = capsys
        self._of_zookeeper = 0
        monkeypatch.setattr(offsets_reset, "with_tasks", self._with_tasks)
        monkeypatch.setattr(
            offsets_reset, "with_zookeeper", lambda s, work: self._with_tasks(s, lambda zk, _: work(zk))
        )
        monkeypatch.setattr(offsets_reset, "KafkaTopicLogs", lambda connect: FakeTopicLogs(self.world.kafka))
        monkeypatch.setattr(offsets_reset, "time", SimpleNamespace(time=self.world.clock.wall))
        self.interrupted_at = float("inf")

    def _with_tasks(self, settings: object, work: Callable[..., Coroutine[Call[Any], None, Any]], **_: Any) -> Any:
        """Do what `inbound.cli.shared.zookeeper` does, in this world; each time on a connection of its own."""
        self._of_zookeeper += 1
        zk = self.world.ensemble.client(f"operator-{self._of_zookeeper}", 10.0)
        tasks = Tasks(self.world.clock, lambda: None)
        call = tasks.spawn(work(zk, tasks), "command")

        def done() -> bool:
            if self.world.clock.now() >= self.interrupted_at:
                raise KeyboardInterrupt
            tasks.step()
            return call.done

        try:
            self.world.run_until(done, within=120)
            return call.result()
        finally:
            tasks.close()
            zk.close()

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Run `offsets reset` with these arguments; return the exit code, the output, and what was said beside it."""
        (self.folder / "inbound.yaml").write_text(CONFIG)
        (self.folder / "channels.yaml").write_text(CHANNELS)
        try:
            code = main(["offsets", "reset", *arguments, "-c", str(self.folder / "inbound.yaml")])
        except SystemExit as error:
            code = int(str(error.code))
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def file(self, text: str, name: str = "file") -> str:
        """Write a file; return its path."""
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def commands(self) -> list[ResetCommand]:
        """Return all resets that there are."""
        found: list[ResetCommand] = self._with_tasks(None, lambda zk, _: listing(zk))
        return found

    def read_again(self, start: int) -> bool:
        """Whether both read everything from an offset on, up to the end, after what they had read before."""
        self.world.run(5)
        seen = [(tp.partition, offset) for p in self.processors.values() for tp, offset in p.seen]
        return all(seen.count((p, o)) == 2 for p in range(2) for o in range(start, 30))


@pytest.fixture
def reset(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, capsys, monkeypatch)


EARLIEST = """\
TOPIC   PARTITION  OLD-OFFSET  NEW-OFFSET  MOVES-BY
orders          0          30           0  -30
orders          1          30           0  -30
orders          2          30           5  -25
"""


def test_a_dry_run_prints_what_would_be_moved_and_moves_nothing(reset: Stage) -> None:
    """It is the default; the table is the output, all else goes to standard error."""
    code, out, err = reset(*THESE, "--to-earliest")

    assert (code, out) == (0, EARLIEST)
    assert err == (
        f"group {GROUP}, topic orders: to the earliest offset\ndry run: nothing was changed; do it with --execute\n"
    )
    assert (reset.world.commits(), reset.commands()) == ({0: 30, 1: 30, 2: 30}, [])


def test_execute_moves_what_the_dry_run_printed_and_prints_it_again(reset: Stage) -> None:
    """A line for each condition as it turns; everything is read again, by both."""
    dry = reset(*THESE, "--to-earliest")
    code, out, err = reset(*THESE, "--to-earliest", "--execute")

    assert (code, out) == (0, dry[1])
    told = [line.split(":")[0].strip() for line in err.splitlines() if line.startswith("  ") and ": True" in line]
    assert told == [
        "RefMapped", "AcquireDataPlaneServices", "ConsumerGroupsStopped", "OffsetsUpdated", "ConsumerGroupsStarted",
        "Succeeded",
    ]  # fmt: skip
    assert "succeeded after" in err
    assert reset.read_again(0)


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--to-latest",), {0: 30, 1: 30, 2: 30}),
        (("--to-datetime", "1970-01-01T00:00:01.500Z"), {0: 10, 1: 10, 2: 10}),
        (("--to-datetime", "1970-01-01T02:00:02+02:00"), {0: 10, 1: 10, 2: 10}),
        (("--shift-by", "-7"), {0: 23, 1: 23, 2: 23}),
        (("--shift-by", "-28"), {0: 2, 1: 2, 2: 5}),
        (("--to-offset", "12"), {0: 12, 1: 12, 2: 12}),
        (("--to-offset", "12", "--partitions", "0,2"), {0: 12, 1: 30, 2: 12}),
        (("--to-earliest", "--partitions", "1-2"), {0: 30, 1: 0, 2: 5}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_place_to_go_to(reset: Stage, options: tuple[str, ...], offsets: dict[int, int]) -> None:
    """As a dry run says, in JSON."""
    code, out, _ = reset(*THESE, *options, "--json")

    moved = {one["partition"]: one["newOffset"] for one in json.loads(out)["partitions"]}
    assert (code, {**reset.world.commits(), **moved}) == (0, offsets)


def test_so_long_ago_is_counted_from_now(reset: Stage) -> None:
    """The records are of 1970: the records of the last hour are behind them."""
    code, out, _ = reset(*THESE, "--by-duration", "PT1H", "--json")

    assert (code, [one["newOffset"] for one in json.loads(out)["partitions"]]) == (0, [30, 30, 30])


@pytest.mark.parametrize("ref", ["channel/orders", "Subscription/eu/everything", "KafkaChannel/eu/orders"])
def test_whose_offsets_can_be_said_by_a_reference(reset: Stage, ref: str) -> None:
    """To what the configuration and its manifests name."""
    if ref == "channel/orders":
        assert reset("--ref", ref, "--to-earliest")[:2] == (0, EARLIEST)
    else:
        code, _, err = reset("--ref", ref, "--to-earliest")
        assert (code, err.splitlines()[-1].startswith(f"error: group kafka.{GROUP}: there is none")) == (2, True)


def test_offsets_come_from_a_file_as_the_kafka_tool_writes_them(reset: Stage) -> None:
    """Those that it names, and no others."""
    path = reset.file("orders,0,3\norders,2,7\n")

    code, out, _ = reset("--group", GROUP, "--from-file", path, "--execute", "--json")

    done = json.loads(out)
    assert (code, done["state"], done["partitions"]) == (
        0,
        "succeeded",
        [
            {"partition": 0, "oldOffset": 30, "newOffset": 3},
            {"partition": 2, "oldOffset": 30, "newOffset": 7},
        ],
    )


FUTURE = "2999-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*THESE, "--to-datetime", FUTURE), f"orders: {FUTURE} lies ahead; it is "),
        (
            (*THESE, "--to-datetime", "2026-01-31 02:40"),
            "need a time with its offset from UTC, such as 2026-01-31T02:40:00Z",
        ),
        ((*THESE, "--to-offset", "31"), "orders/2: offset 31 is outside the log; valid is 5 to 30"),
        ((*THESE, "--to-earliest", "--partitions", "2-4"), "orders has no partitions 3 to 4; it has partitions 0 to 2"),
        ((*THESE, "--to-earliest", "--partitions", "x"), "need numbers of partitions such as 0,3-5, got 'x'"),
        (
            ("--group", "unknown", "--topic", "orders", "--to-earliest"),
            f"group unknown: there is none; ZooKeeper has {GROUP}",
        ),
        (
            ("--group", GROUP, "--topic", "bills", "--to-earliest"),
            "has no offsets of topic bills; it has offsets of orders",
        ),
        (("--ref", "trigger/x", "--to-earliest"), "only a Channel or Subscription of the configuration"),
        (("--ref", "orders", "--to-earliest"), "need a kind and a name, such as channel/orders, got 'orders'"),
        (("--to-earliest",), "whose offsets? give --group and --topic, or --ref, or -f with a manifest"),
        (("--group", GROUP, "--to-earliest"), "--group needs --topic: name the topic whose offsets to move"),
        (THESE, "where to? give one of --to-earliest, --to-latest, "),
        ((*THESE, "--to-earliest", "--to-latest"), "not allowed with argument"),
        (("--status", "nothing"), "reset nothing: there is no such reset (any more); there are: none"),
        (("--cancel", "nothing"), "reset nothing: there is no such reset (any more); there are: none"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_refused_with_exit_code_2(reset: Stage, options: tuple[str, ...], message: str) -> None:
    """With what there is, before anything is stopped."""
    code, out, err = reset(*options, "--execute")

    assert (code, out, message in err) == (2, "", True), err
    assert (reset.commands(), reset.world.commits()) == ([], {0: 30, 1: 30, 2: 30})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders,0,31\n", "orders/0: offset 31 is outside the log; valid is 0 to 30"),
        ("orders,0,1\norders,x,1\n", "file:2: partition 'x' is no number"),
        ("orders,0,1\nbills,0,1\n", "has offsets of bills, orders; choose one with --topic"),
        ("", "holds no offsets"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(reset: Stage, text: str, message: str) -> None:
    """As it is for a single offset."""
    code, _, err = reset("--group", GROUP, "--from-file", reset.file(text), "--execute")

    assert (code, message in err) == (2, True), err


def test_it_works_while_no_replica_is_alive(reset: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """The command leads itself, and says no more for it; who starts later begins at the new offsets."""
    caplog.set_level(logging.INFO)
    for name in ("a", "b"):
        reset.world.leave(name)

    code, out, err = reset(*THESE, "--to-earliest", "--execute")

    assert (code, out, "no replica runs; nothing to stop" in err) == (0, EARLIEST, True)
    assert reset.world.commits() == {0: 0, 1: 0, 2: 5}
    assert [text for text in caplog.messages if text.startswith("reset ")] == []


def test_one_that_was_only_submitted_is_seen_carried_on_and_listed(reset: Stage) -> None:
    """By --status and --list; nothing happens as long as no process leads."""
    code, out, err = reset(*THESE, "--to-earliest", "--execute", "--no-wait")
    name = reset.commands()[0].name
    reset.world.run(5)

    assert (code, out, f"--status {name} --wait" in err) == (1, "", True)
    assert reset.world.commits() == {0: 30, 1: 30, 2: 30}
    before = reset("--status", name)
    assert (before[0], "accepted" in before[1], "RefMapped" in before[1]) == (1, True, True)
    assert reset("--status", name, "--wait")[:2] == (0, EARLIEST)
    after = reset("--status", name)
    assert (after[0], after[1].endswith(EARLIEST)) == (0, True)
    (line,) = reset("--list")[1].splitlines()[1:]
    assert line.split()[:1] == [name]
    assert "succeeded  to the earliest offset" in line


def test_one_that_has_not_moved_anything_can_be_cancelled_and_no_other(reset: Stage) -> None:
    """Nothing is moved then; a second attempt names its state."""
    reset(*THESE, "--to-earliest", "--execute", "--no-wait")
    name = reset.commands()[0].name

    code, _, err = reset("--cancel", name)

    assert (code, f"reset {name}: cancelled; no offset is moved" in err) == (0, True)
    assert reset("--status", name, "--wait")[0] == 1
    reset(*THESE, "--to-earliest", "--execute")
    done = reset.commands()[-1].name
    code, _, err = reset("--cancel", done)
    assert (code, "has ended (succeeded), there is nothing to cancel" in err) == (1, True)


def test_an_interrupted_command_says_that_the_reset_goes_on(reset: Stage) -> None:
    """And how to look at it and to end it; it can be carried on."""
    for name in ("a", "b"):
        reset.world.pause(name)  # they would stop it from ending
    reset.interrupted_at = reset.world.clock.now() + 2.0

    code, _, err = reset(*THESE, "--to-earliest", "--execute")

    reset.interrupted_at = float("inf")
    (command,) = reset.commands()
    assert (code, f"--cancel {command.name}" in err, command.finished) == (1, True, False)
    for name in ("a", "b"):
        reset.world.resume(name)
    assert reset("--status", command.name, "--wait")[0] == 0


# -- manifests ---------------------------------------------------------------------------------------------------------

OWN = "  ref: {kind: Channel, name: orders}\n"


def manifest(*, time: str = "earliest", name: str = "rewind", kind: str = "Channel") -> str:
    """Return a manifest for the configuration's own channel."""
    text = MANIFEST[: MANIFEST.index("  ref:")] + OWN
    return text.replace("earliest", time).replace("rewind", name).replace("Channel", kind)


def test_a_manifest_is_done_once_however_often_it_is_given(reset: Stage) -> None:
    """Another content of it is another reset."""
    path = reset.file(manifest(), "reset.yaml")
    assert reset("-f", path)[:2] == (0, EARLIEST)

    first = reset("-f", path, "--execute")
    reset.world.run(5)
    again = reset("-f", path, "--execute")

    assert (first[:2], again[0], "is not done a second time" in again[2]) == ((0, EARLIEST), 0, True)
    assert reset.world.commits() == {0: 30, 1: 30, 2: 30}
    other = reset.file(manifest(time='"1970-01-01T00:00:02Z"'), "reset.yaml")
    assert (reset("-f", other, "--execute", "--no-wait")[0], len(reset.commands())) == (1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (manifest(time="yesterday"), "reset.yaml:5: spec.offset.time: need a time with its offset from UTC"),
        (manifest(time=f'"{FUTURE}"'), f"orders: {FUTURE} lies ahead"),
        (manifest().replace("offset:", "offsets:"), "reset.yaml:5: spec.offsets: unknown key; did you mean offset?"),
        (manifest(kind="Trigger"), "reset.yaml:3: eu/rewind: Trigger orders: only a Channel or Subscription"),
        ("kind: ConfigMap\napiVersion: v1\n", "holds no ResetOffset of kafka.eventing.knative.dev"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_with_its_line(reset: Stage, text: str, message: str) -> None:
    """And nothing is submitted."""
    code, _, err = reset("-f", reset.file(text, "reset.yaml"), "--execute")

    assert (code, message in err, reset.commands()) == (2, True, []), err


@pytest.mark.parametrize(
    "arguments", [("-f", "nope"), ("--group", "orders-svc", "--topic", "orders", "--from-file", "nope")]
)
def test_a_file_that_is_missing_is_named_with_its_option(reset: Stage, arguments: tuple[str, ...]) -> None:
    """The option shows which of several files it is."""
    code, _, err = reset(*arguments)

    assert (code, err) == (2, f"error: {arguments[-2]}: nope: no such file; name another\n")


def test_a_manifest_says_itself_where_to(reset: Stage) -> None:
    """Options beside it would be two answers to one question."""
    code, _, err = reset("-f", reset.file(manifest(), "reset.yaml"), "--to-latest")

    assert (code, "the manifest says all that" in err) == (2, True)


def test_check_says_which_manifests_do_nothing(reset: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration can be used all the same."""
    (reset.folder / "inbound.yaml").write_text(CONFIG)
    (reset.folder / "channels.yaml").write_text(
        f"{CHANNELS}---\n{manifest(kind='Trigger')}---\n{manifest(name='other', time='noon')}"
    )

    assert main(["check", "-c", str(reset.folder / "inbound.yaml")]) == 0

    first, second = capsys.readouterr().err.splitlines()
    assert "this reset does nothing:" in first
    assert "eu/rewind: Trigger orders: only a Channel or Subscription" in first
    assert "spec.offset.time: need a time with its offset from UTC" in second


def test_of_several_manifests_each_has_a_line_of_json(reset: Stage) -> None:
    """In the order of the file; the second one waits for the first."""
    path = reset.file(f"{manifest()}---\n{manifest(name='forward', time='latest')}", "resets.yaml")

    code, out, _ = reset("-f", path, "--execute", "--json")

    states = [(done["state"], done["partitions"][0]["newOffset"]) for done in map(json.loads, out.splitlines())]
    assert (code, states) == (0, [("succeeded", 0), ("succeeded", 30)])

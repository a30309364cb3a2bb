"""`inbound offsets`: what people and scripts are told, and in which exit codes. On a group of two consumers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.main import main
from inbound.cli.offsets import change as offsets_change
from inbound.cli.offsets import show as offsets_show
from inbound.coordinators.zookeeper import SetData
from inbound.errors import BrokerUnavailableError, InboundError
from inbound.offsets.gather import Way
from inbound.offsets.kafka_group import KafkaGroup
from inbound.testing.world import GROUP
from inbound.topic_partition import TopicPartition
from tests.group.paused_group import PARTITIONS, Group

CONFIG = f"""\
zookeeper: {{session_timeout: 10s}}
channels:
  orders: {{topics: [orders], group: {GROUP}, processor: {{type: simple, options: {{sinks: [log]}}}}}}
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def group() -> Group:
    one = Group()
    one.publish(5)
    one.world.run(5)
    return one


@pytest.fixture
def run(group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command against the group; returns the exit code, the output and standard error."""

    def with_zookeeper(settings: Any, work: Any) -> Any:
        if not group.world.ensemble.is_up:
            raise InboundError("ZooKeeper does not answer")
        return group.operator(work(group.zk))

    for module in (offsets_show, offsets_change):
        monkeypatch.setattr(module, "with_zookeeper", with_zookeeper)
        monkeypatch.setattr(module, "SystemClock", lambda: group.world.clock)
    monkeypatch.setattr(Way, "connect", lambda self, properties: group.world.kafka.client())
    monkeypatch.setattr("inbound.cli.offsets.change.time.sleep", group.world.run)
    monkeypatch.setattr("logging.basicConfig", lambda **options: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbound.yaml").write_text(CONFIG)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["offsets", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def stop(group: Group) -> None:
    """Stop both consumers gracefully."""
    for name in ("a", "b"):
        group.world.leave(name)


def committed(group: Group) -> list[int | None]:
    return [group.world.commits()[p] for p in range(PARTITIONS)]


# -- show and export ---------------------------------------------------------------------------------------------------


def test_show_has_a_line_for_each_partition_and_a_heading(group: Group, run: Run) -> None:
    """What the nodes and the logs say: owner, epoch, lag."""
    group.world.kafka.retain("orders", 1, 2)
    code, out, err = run("show", "--topic", "orders:0,1")
    owners = {p: name for name, some in group.world.owned().items() for p in some}
    heading, columns, *lines = out.splitlines()
    assert (code, err, heading) == (0, "", f"group {GROUP}: 2 members (a, b), 2 partitions, lag 0")
    assert columns.split()[:6] == ["TOPIC", "PARTITION", "COMMITTED", "LOG-START", "LOG-END", "LAG"]
    assert [line.split()[:7] for line in lines] == [
        ["orders", "0", "5", "0", "5", "0", owners[0]],
        ["orders", "1", "5", "2", "5", "0", owners[1]],
    ]


def test_show_works_while_no_consumer_is_alive(group: Group, run: Run) -> None:
    """The lag grows, and no partition has an owner."""
    stop(group)
    group.publish(3)
    code, out, _ = run("show", "--json")
    (found,) = json.loads(out)["groups"]
    assert code == 0
    assert (found["members"], found["total"]) == (
        [],
        {"partitions": PARTITIONS, "uncommitted": 0, "unowned": PARTITIONS, "lag": 3 * PARTITIONS},
    )


def test_show_without_kafka_tells_what_zookeeper_knows_and_fails(group: Group, run: Run) -> None:
    """The lag is a question mark; why stands on stderr."""
    group.world.kafka.down()
    code, out, err = run("show")
    assert (code, err) == (1, "error: Kafka (fake) does not answer: it is down\n")
    assert out.startswith(f"group {GROUP}: 2 members (a, b), 4 partitions, lag ?")
    assert [line.split()[2:6] for line in out.splitlines()[2:]] == [["5", "-", "-", "?"]] * PARTITIONS


def test_show_says_what_cannot_be_read(group: Group, run: Run) -> None:
    """With exit code 1; the other partitions are shown. And it cannot be exported, for a part would look whole."""
    stop(group)
    group.world.ensemble.tree.transaction([SetData(group.world.paths.offset("orders", 1), b"five")], 0)
    code, out, err = run("show")
    assert (code, "holds b'five', not an offset" in err, len(out.splitlines())) == (1, True, 2 + PARTITIONS)
    code, out, err = run("export")
    assert (code, out, "holds b'five'" in err) == (1, "", True)


def test_an_unknown_group_is_refused_with_those_there_are(run: Run) -> None:
    """A slip of the pen must not look like a group without offsets."""
    code, _, err = run("show", "--group", "gruop")
    assert (code, err) == (
        2,
        f"error: no group 'gruop' in ZooKeeper, and none in this configuration; there are: {GROUP}\n",
    )


def test_watching_prints_whole_tables_until_it_is_interrupted(
    group: Group, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also over an outage; Ctrl-C ends it with 0."""

    def back() -> None:
        group.world.ensemble.up()
        group.world.run(5)

    steps = [group.world.ensemble.down, back]

    def pause(seconds: float) -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    monkeypatch.setattr("inbound.cli.shared.output.pause", pause)
    code, out, err = run("show", "--watch", "3", "--json")
    assert (code, [json.loads(line)["format"] for line in out.splitlines()]) == (0, [1, 1])
    assert err == "error: ZooKeeper does not answer\n"


def test_export_writes_what_is_committed(group: Group, run: Run, tmp_path: Path) -> None:
    """To standard output, or to a file."""
    lines = "".join(f"orders,{p},5\n" for p in range(PARTITIONS))
    assert run("export") == (0, lines, "")
    assert run("export", "-o", "out.csv", "--topic", "orders:1") == (0, "", "")
    assert (tmp_path / "out.csv").read_text() == "orders,1,5\n"


# -- import ------------------------------------------------------------------------------------------------------------


def test_import_says_what_it_would_do_and_does_it_with_execute(group: Group, run: Run, tmp_path: Path) -> None:
    """The same table; a consumer that starts then reads from there."""
    stop(group)
    (tmp_path / "in.csv").write_text("orders,0,2\norders,3,5\n")
    table = (
        "GROUP  TOPIC   PARTITION  OLD-OFFSET  NEW-OFFSET\n"
        f"{GROUP}  orders          0           5           2\n"
        f"{GROUP}  orders          3           5           5\n"
    )
    assert run("import", "in.csv") == (0, table, "dry run: nothing was changed; do it with --execute\n")
    assert committed(group) == [5] * 4
    assert run("import", "in.csv", "--execute") == (0, table, "2 offsets set\n")
    assert committed(group) == [2, 5, 5, 5]
    group.join("c")
    group.world.run(10)
    again = [(0, offset) for offset in (2, 3, 4)]
    assert group.seen() == sorted([(p, offset) for p in range(PARTITIONS) for offset in range(5)] + again)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("orders,0,2\norders,1,6\n", 2, "in.csv:2: orders/1: offset 6 is outside the log; valid are 0 to 5"),
        ("orders,9,2\n", 2, "in.csv:1: orders/9: the topic has 4 partitions, 0 to 3"),
        ("bills,0,2\n", 2, "in.csv:1: bills: the brokers have no such topic"),
        ("orders,0\n", 2, "in.csv:1: has 2 columns"),
    ],
)
def test_what_cannot_be_is_refused_whole(
    group: Group, run: Run, tmp_path: Path, text: str, code: int, said: str
) -> None:
    """By file and line; no offset is set."""
    stop(group)
    (tmp_path / "in.csv").write_text(text)
    found, out, err = run("import", "in.csv", "--execute")
    assert (found, out, said in err) == (code, "", True), err
    assert committed(group) == [5] * 4


def test_nothing_is_imported_while_kafka_is_away(group: Group, run: Run, tmp_path: Path) -> None:
    """Without them it is unknown whether the offsets are in the log."""
    stop(group)
    group.world.kafka.down()
    (tmp_path / "in.csv").write_text("orders,0,2\n")
    code, _, err = run("import", "in.csv", "--execute")
    assert (code, "nothing was changed: offsets are checked against the log" in err) == (1, True)


def test_a_kafka_groups_offsets_are_taken_over(group: Group, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the group that is named; those of other topics are left out with --topic."""
    stop(group)
    kept = {TopicPartition("orders", 0): 1, TopicPartition("orders", 2): 4, TopicPartition("bills", 0): 7}
    state = "Empty"

    def read(properties: Any, name: str, clock: Any) -> KafkaGroup:
        return KafkaGroup(group=name, state=state, offsets=kept)

    monkeypatch.setattr(offsets_change, "read_kafka_group", read)
    take = ("import", "--from-kafka-group", "old", "--topic", "orders", "--execute")
    code, _, err = run(*take)
    assert (code, "--group: name the group that takes over" in err) == (2, True)
    assert run(*take, "--group", GROUP)[0] == 0
    assert committed(group) == [1, 5, 4, 5]
    state = "Stable"
    code, _, err = run(*take, "--group", GROUP)
    assert (code, "Kafka's group old: is Stable: it has members" in err) == (2, True)


@pytest.mark.parametrize(
    "arguments", [(), ("in.csv", "--from-kafka-group", "g"), ("in.csv", "--group", "a", "--group", "b")]
)
def test_import_needs_one_source_and_at_most_one_group(run: Run, arguments: tuple[str, ...]) -> None:
    """Exit code 2."""
    assert run("import", *arguments)[0] == 2


# -- delete ------------------------------------------------------------------------------------------------------------


def test_a_stopped_group_is_deleted_after_a_session_of_silence(group: Group, run: Run) -> None:
    """Said before; nothing of it is left then."""
    stop(group)
    code, out, err = run("delete", "--group", GROUP)
    assert (code, err) == (0, "dry run: nothing was changed; do it with --execute\n")
    assert "offsets of 4 partitions: no member, and no partition has an owner" in out
    before = group.world.clock.now()
    code, out, _ = run("delete", "--group", GROUP, "--execute")
    assert (code, "waiting 10 s, as long as a session lives" in out) == (0, True)
    assert group.world.clock.now() - before >= 10
    assert group.world.ensemble.tree.get(group.world.paths.root) is None


def test_a_member_that_comes_in_the_silence_keeps_its_group(
    group: Group, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is refused, and the member reads on where the group was."""
    stop(group)

    def sleep(seconds: float) -> None:
        group.join("c")
        group.world.run(seconds)

    monkeypatch.setattr("inbound.cli.offsets.change.time.sleep", sleep)
    code, _, err = run("delete", "--group", GROUP, "--execute")
    assert (code, "1 live member (c)" in err) == (2, True)
    assert (committed(group), group.of("c")) == ([5] * 4, set(range(4)))


def test_offsets_of_some_partitions_are_withdrawn(group: Group, run: Run) -> None:
    """The nodes stay, their epochs move on, and a consumer that starts begins as if the group were new there."""
    stop(group)
    code, out, err = run("delete", "--group", GROUP, "--topic", "orders:1,2", "--execute")
    assert (code, err) == (0, "2 offsets withdrawn\n")
    assert [line.split()[2:] for line in out.splitlines()[1:]] == [["1", "5", "-"], ["2", "5", "-"]]
    assert committed(group) == [5, None, None, 5]
    group.join("c")
    group.world.run(10)
    assert committed(group) == [5] * 4
    again = [(p, offset) for p in (1, 2) for offset in range(5)]
    assert group.seen() == sorted([(p, offset) for p in range(PARTITIONS) for offset in range(5)] + again)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--group", "nope", "--execute"), "nope: ZooKeeper has no such group"),
        (("--group", GROUP, "--topic", "bills"), "ZooKeeper has no offsets of bills"),
        (("--group", GROUP, "--topic", "orders:7"), "ZooKeeper has no offset of orders/7"),
    ],
)
def test_what_is_not_there_cannot_be_deleted(group: Group, run: Run, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2."""
    stop(group)
    code, _, err = run("delete", *arguments)
    assert (code, said in err) == (2, True), err


@pytest.mark.parametrize(
    "arguments",
    [("import", "in.csv"), ("delete", "--group", GROUP), ("delete", "--group", GROUP, "--topic", "orders")],
    ids=["import", "delete", "delete of a topic"],
)
def test_a_running_group_is_left_alone(group: Group, run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The live members are named, and the command for a running group."""
    (tmp_path / "in.csv").write_text("orders,0,2\n")
    code, out, err = run(*arguments, "--execute")
    assert (code, out, "2 live members (a, b)" in err, "offsets reset" in err) == (2, "", True, True)
    assert committed(group) == [5] * 4


def test_a_group_to_delete_must_be_named(run: Run) -> None:
    """Exit code 2."""
    assert run("delete", "--execute")[0] == 2


def test_brokers_that_refuse_are_told_of() -> None:
    """A client that cannot be made is an answer that is missing, and no crash."""
    from inbound.offsets.gather import ask_logs
    from inbound.testing.clock import ManualClock

    def connect() -> Any:
        raise BrokerUnavailableError("Kafka at x: SASL authentication failed")

    found = ask_logs(connect, ["orders"], ManualClock())
    assert (found.problem, found.silent) == ("Kafka at x: SASL authentication failed", True)

"""What an operator sees: from the commands, in words and exit codes, and by the admin port's side of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.inspect import operate
from inbound.cli.main import main
from inbound.cli.shared.files import admin_token
from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.config import AdminConfig, ChannelConfig, ZooKeeperConfig
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import SetData
from inbound.errors import ConfigError, InboundError, ZkAmbiguousError, ZkUnavailableError
from inbound.group.operations import Operation, OperationKind, Operator, UnknownTargetError
from inbound.testing.clock import ManualClock
from inbound.testing.world import GROUP, World
from inbound.testing.zookeeper import FakeEnsemble
from tests.group.paused_group import Group

CONFIG = f"""\
channels:
  orders: {{topics: [orders], group: {GROUP}, consumer_id: fixed, processor: {{type: simple, options: {{sinks: [log]}}}}}}
"""
SECOND = f"  more: {{topics: [more], group: {GROUP}, processor: {{type: simple, options: {{sinks: [log]}}}}}}\n"
THIRD = "  bills: {topics: [bills], group: billing, processor: {type: simple, options: {sinks: [log]}}}\n"

Run = Callable[..., tuple[int, str]]
BOTH = " (group group, 2 members alive)\n"
PAUSED = "paused; each member ends the batch in hand, keeps its partitions and reads nothing"


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def run(group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command against the group; returns the exit code and what it said."""
    monkeypatch.setattr(operate, "with_zookeeper", lambda settings, work: group.operator(work(group.zk)))
    monkeypatch.setattr("logging.basicConfig", lambda **options: None)

    def command(*arguments: str, config: str = CONFIG) -> tuple[int, str]:
        path = tmp_path / "inbound.yaml"
        path.write_text(config)
        code = main([*arguments, "-c", str(path)])
        said = capsys.readouterr()
        return code, said.out + said.err

    return command


def test_a_group_is_paused_and_resumed_by_command(group: Group, run: Run) -> None:
    """The second time says that it was so already, since when and by whom."""
    assert run("pause", "orders", "--reason", "new  disk") == (0, f"orders: {PAUSED}{BOTH}")
    code, said = run("pause")
    assert code == 0
    assert said.startswith("orders: already paused since 2")
    assert f"(new disk); goes on with `inbound resume orders`{BOTH}" in said
    group.publish()
    group.world.run(5)
    assert group.seen() == []
    assert run("resume") == (0, f"orders: resumed{BOTH}")
    assert run("resume") == (0, f"orders: was not paused by an operator{BOTH}")
    group.world.run(5)
    assert len(group.seen()) == 20


def test_one_member_is_paused_and_resumed_by_command(run: Run) -> None:
    """A resume of one member in a paused group says that it does not read yet."""
    assert run("pause", "--consumer", "a") == (
        0,
        f"orders: member a paused; it ends the batch in hand, keeps its partitions and reads nothing{BOTH}",
    )
    run("pause")
    assert run("resume", "--consumer", "a") == (
        0,
        f"orders: member a resumed; the whole group is paused, so nothing is read before `inbound resume orders`{BOTH}",
    )
    run("pause", "--consumer", "a")
    assert run("resume") == (0, f"orders: resumed, and member a, paused on its own{BOTH}")
    assert run("resume", "--consumer", "b") == (0, f"orders: member b was not paused on its own{BOTH}")


def test_resuming_what_a_reset_holds_says_so(group: Group, run: Run) -> None:
    """The operator's part is done; the reset ends its own."""
    group.pause("reset-monday")
    run("pause")
    assert run("resume") == (0, f"orders: resumed; still paused by reset-monday: goes on when that is done{BOTH}")


def test_what_is_asked_for_while_a_reset_has_closed_a_gate_takes_effect_when_it_opens(group: Group, run: Run) -> None:
    """The answer names the topic and the reset; the group does not move all the same."""
    gate = group.world.paths.gate("orders")
    group.world.ensemble.tree.transaction([SetData(gate, b"/inbound/commands/reset-offset/one")], session=0)
    said = [run("resume", "orders")[1], run("rebalance", "orders")[1]]
    waits = "; for orders (reset one) it takes effect when the gate opens again"
    assert [waits in text for text in said] == [True, True]


def test_a_member_that_nobody_knows_is_refused(run: Run) -> None:
    """Exit code 1, with those that are alive: a slip of the pen must not look like a pause."""
    said = (
        "error: channel orders: group group has no member 'c'; alive: a, b. One that is down can be named where its "
        "consumer_id stands in the configuration\n"
    )
    assert (run("pause", "--consumer", "c"), run("resume", "orders", "--consumer", "c")) == ((1, said), (1, said))


def test_a_member_with_a_fixed_id_can_be_paused_while_it_is_down(group: Group, run: Run) -> None:
    """It reads nothing when it comes. So does a process of `run --processes N`, whose ids end in a number."""
    assert run("pause", "--consumer", "fixed") == (
        0,
        f"orders: member fixed paused; it is not alive just now, and reads nothing when it comes{BOTH}",
    )
    assert run("pause", "--consumer", "fixed-0")[0] == 0
    assert run("pause", "--consumer", "fixed-x")[0] == 1
    c = group.join("fixed")
    group.publish()
    group.world.run(10)
    assert (len(group.of("fixed")), c.seen) == (1, [])


def test_a_member_that_is_gone_for_good_can_be_resumed(group: Group, run: Run) -> None:
    """Its pause must not stay behind forever."""
    run("pause", "--consumer", "b")
    group.world.leave("b")
    assert run("resume", "--consumer", "b") == (0, "orders: member b resumed (group group, 1 member alive)\n")


def test_all_channels_of_a_configuration_are_meant_where_none_is_named(run: Run) -> None:
    """Each group once; one that has never run as well."""
    assert run("pause", config=CONFIG + SECOND + THIRD) == (
        0,
        f"orders: {PAUSED}{BOTH}more: as orders: both are of group group\nbills: {PAUSED} (group billing, 0 members alive)\n",
    )
    # A member's id belongs to the group that knows it.
    assert run("pause", "--consumer", "b", config=CONFIG + THIRD)[1].startswith("orders: member b paused;")


def test_a_channel_that_is_not_configured_is_refused(run: Run) -> None:
    """Exit code 2: the command is wrong, not the world."""
    assert run("pause", "ordres") == (2, "error: no channel 'ordres' in this configuration; there are: orders\n")


def test_a_rebalance_by_command_says_who_gets_it(group: Group, run: Run) -> None:
    """Also when nobody does."""
    assert run("rebalance") == (0, f"orders: every member looks at its share now{BOTH}")
    assert run("rebalance", config="channels:\n" + THIRD) == (
        0,
        "bills: no member is alive to rebalance; members that start claim their shares anyway "
        "(group billing, 0 members alive)\n",
    )


@pytest.mark.timeout(60)
@pytest.mark.slow  # on a quiet machine the refusal comes within milliseconds, on a busy one the message needs longer to have it
def test_a_command_ends_soon_where_no_zookeeper_answers() -> None:
    """With its address, and where that comes from; kazoo on its own would never give up."""
    with pytest.raises(InboundError) as error:
        with_zookeeper(ZooKeeperConfig(hosts="127.0.0.1:1"), lambda zk: pytest.fail("asked"), connect_seconds=1.0)
    assert str(error.value) == (
        "ZooKeeper at 127.0.0.1:1 does not answer within 1 s; is it running? If so, see zookeeper.hosts "
        "(127.0.0.1:1: socket connection error: Connection refused)"
    )


# -- the admin port's side -----------------------------------------------------------------------------------------


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    """Tasks that a thread of their own steps, as the controller's are."""
    work, over = threading.Event(), threading.Event()
    tasks = Tasks(ManualClock(), work.set)

    def step() -> None:
        while not over.is_set():
            tasks.step()
            work.wait(0.05)
            work.clear()

    thread = threading.Thread(target=step)
    thread.start()
    yield tasks
    over.set()
    work.set()
    thread.join()
    tasks.close()


ONE = {"orders": ChannelConfig.model_validate({"topics": ["orders"], "group": GROUP, "processor": {"type": "simple"}})}


def operator(tasks: Tasks, ensemble: FakeEnsemble) -> Operator:
    """Return an operator of one channel."""
    return Operator(tasks, ensemble.client("admin", 10.0), ManualClock(), ONE, "the admin port")


def test_an_operation_runs_on_the_controllers_thread_and_is_waited_for(tasks: Tasks) -> None:
    """The caller gets to know what was done."""
    ensemble = FakeEnsemble(ManualClock())
    ensemble.auto = True
    done = operator(tasks, ensemble)("orders", Operation(OperationKind.PAUSE))
    assert (done.changed, done.held_by, done.members) == (True, ["operator"], [])


@pytest.mark.parametrize(
    ("state", "channel", "error", "said"),
    [
        ("well", "ordres", UnknownTargetError, "^no channel 'ordres'; there are: orders$"),
        ("no ZooKeeper", "orders", ZkUnavailableError, None),  # at once, not after a time-out
        ("stopping", "orders", ZkAmbiguousError, None),  # nobody would ever answer
    ],
)
def test_an_operation_that_cannot_be_done_fails_at_once(
    tasks: Tasks, state: str, channel: str, error: type[Exception], said: str | None
) -> None:
    """As a page that does not exist, without ZooKeeper, and while the process stops."""
    ensemble = FakeEnsemble(ManualClock())
    if state == "no ZooKeeper":
        ensemble.down()
    elif state == "stopping":
        tasks.close()
    with pytest.raises(error, match=said):
        operator(tasks, ensemble)(channel, Operation(OperationKind.RESUME))


# -- the token -----------------------------------------------------------------------------------------------------


def token_of(path: Path | None) -> Any:
    return admin_token(AdminConfig(token_file=path))


def test_the_token_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    """A mounted secret changes while the process runs."""
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    read = token_of(path)
    assert read() == "s3cret"
    path.write_text("n3w")
    assert (read(), token_of(None)) == ("n3w", None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, ": no such file; name another"),
        (b"", " must hold one word: the token"),
        (b" \n", " must hold one word: the token"),
        (b"two words", " must hold one word: the token"),
        (b"\xff", ":1: a byte is not UTF-8; save the file as UTF-8"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_refused_at_the_start(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    """An empty one would let everybody in. What it holds is not repeated."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        token_of(path)
    assert str(error.value) == f"admin.token_file: {path}{said}"


def test_the_controller_does_not_wait_for_its_callers() -> None:
    """A world's members answer while a command is under way: it is a task among others."""
    world = World()
    world.kafka.create_topic("orders", 1)
    consumer = world.join("a")
    world.run(4)
    tasks = consumer.tasks
    ask = Operator(tasks, consumer.zk, world.clock, ONE, "the admin port")
    found = []
    thread = threading.Thread(target=lambda: found.append(ask("orders", Operation(OperationKind.PAUSE)).members))
    thread.start()
    while thread.is_alive():
        world.run(0.05)
        thread.join(0.05)  # the world's time must not run ahead of a thread that waits for a processor
    world.run(1)
    assert (found, consumer.channel.parts.schedule.paused) == ([["a"]], True)

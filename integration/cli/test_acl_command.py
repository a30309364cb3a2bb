"""`inbound acl` on a real server: nodes that were open, or made with another password, become the user's alone."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import pytest

from inbound.cli.main import main
from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.clock import SystemClock
from inbound.config import ZooKeeperConfig
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Create
from inbound.embedded import EmbeddedCluster
from inbound.errors import InboundError, ZkDeniedError
from inbound.process.zookeeper.client import tell, zookeeper_client
from tests.waiting import until

#: Made of a group, from the top.
NODES = ("/consumers", "/consumers/g", *(f"/consumers/g/{part}" for part in ("ids", "offsets", "offsets/orders")))
OFFSET = "/consumers/g/offsets/orders/0"


class Setup:
    """A chroot of its own, a configuration that logs in by digest, and passwords in files."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.hosts = cluster.zookeeper_hosts
        self.chroot = f"/acl-{uuid.uuid4().hex[:8]}"
        self.password = folder / "password"
        self.config = folder / "inbound.yaml"
        self.config.write_text(
            f'zookeeper:\n  hosts: "{self.hosts}"\n  chroot: {self.chroot}\n'
            f"  auth: {{scheme: digest, user: inbound, password_file: {self.password}}}\n"
            "channels: {orders: {topics: [orders], group: g, processor: {type: simple}}}\n"
        )

    def settings(self, *, logs_in: bool = True) -> ZooKeeperConfig:
        auth = {"scheme": "digest", "user": "inbound", "password_file": self.password} if logs_in else None
        return ZooKeeperConfig.model_validate({"hosts": self.hosts, "chroot": self.chroot, "auth": auth})

    def read_offset(self, *, logs_in: bool = True) -> bytes:
        """Return the offset that stands there. Raises ZkDeniedError: it may not be read."""

        async def read(zk: KazooZooKeeper) -> bytes:
            node = await zk.get(OFFSET)
            return node.data if node is not None else b"(none)"

        return with_zookeeper(self.settings(logs_in=logs_in), read)


@pytest.fixture
def setup(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Setup:
    """A group's nodes, made by who did not log in."""
    setup = Setup(embedded_cluster, tmp_path)
    setup.password.write_text("the-first-pw\n")

    async def make(zk: KazooZooKeeper) -> None:
        await zk.transaction([*(Create(path) for path in NODES), Create(OFFSET, b"17")])

    with_zookeeper(setup.settings(logs_in=False), make)
    return setup


def test_open_nodes_are_named_then_closed(
    setup: Setup, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """From the chroot down, by the command and by a process at its start; who does not log in can read nothing afterwards."""
    clock = SystemClock()
    with closing(zookeeper_client(setup.settings(), clock)) as zk:
        zk.start()
        tasks = Tasks(clock, lambda: None)
        # Of a group that has no nodes yet there is nothing to say.
        call = tasks.spawn(tell(zk, tasks, lambda: ["g", "g", "another"]), "look")
        until(lambda: (tasks.step(), call.done)[1], 60, "looked at the nodes")
    assert [record.getMessage() for record in caplog.records if record.name == "inbound.process.zookeeper.client"] == [
        "group g: 4 of 4 folders in ZooKeeper have other access rights than zookeeper.acl asks for, such as /consumers/g: "
        "they were made before it did; `inbound acl --apply` corrects them"
    ]
    assert main(["acl", "-c", str(setup.config)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        *(f"{path}: other access rights" for path in ("/", *NODES, OFFSET)),
        "7 nodes looked at, 7 to correct: inbound acl --apply",
    ]
    assert main(["acl", "--apply", "-c", str(setup.config)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "7 nodes looked at, 7 corrected"
    assert main(["acl", "-c", str(setup.config)]) == 0
    assert capsys.readouterr().out == "7 nodes looked at, all as configured\n"
    assert setup.read_offset() == b"17"
    with pytest.raises(
        InboundError, match=r"a client without a user may not use zookeeper.chroot; its creator had logged in"
    ):
        setup.read_offset(logs_in=False)


@pytest.mark.thorough(
    "waits for refused clients; `make test` closes open nodes, tests/controller/access_conformance.py has other users'"
)
def test_a_new_password_of_digest_takes_the_nodes_over_with_the_former_one(
    setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own it is a stranger's: digest makes the password a part of who one is."""
    assert main(["acl", "--apply", "-c", str(setup.config)]) == 0
    former = tmp_path / "former"
    setup.password.rename(former)
    setup.password.write_text("the-second-pw\n")
    assert main(["acl", "-c", str(setup.config)]) == 1
    assert "user inbound (digest) may not use zookeeper.chroot" in capsys.readouterr().err
    assert main(["acl", "--apply", "--former-password-file", str(former), "-c", str(setup.config)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "7 nodes looked at, 7 corrected"
    assert setup.read_offset() == b"17"
    setup.password.write_text("the-first-pw\n")
    with pytest.raises(InboundError, match="a wrong password shows only here"):
        setup.read_offset()


@pytest.mark.thorough(
    "waits for refused clients; `make test` closes open nodes, tests/controller/access_conformance.py has other users'"
)
def test_nodes_of_another_user_are_named_as_closed(
    setup: Setup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And stay as they are, with every option."""
    strangers = tmp_path / "strangers"
    strangers.write_text("another-pw\n")
    auth = {"scheme": "digest", "user": "stranger", "password_file": strangers}
    settings = setup.settings().model_copy(update={"chroot": setup.chroot})
    settings = ZooKeeperConfig.model_validate({**settings.model_dump(), "auth": auth})

    async def make(zk: KazooZooKeeper) -> None:
        await zk.transaction([Create("/consumers/g/gates"), Create("/consumers/g/gates/orders", b"open")])

    with_zookeeper(settings, make)
    assert main(["acl", "--apply", "-c", str(setup.config)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "/consumers/g/gates: closed to us: another user made it"
    assert lines[-1] == "8 nodes looked at, 7 corrected, 1 closed to us"
    with pytest.raises(ZkDeniedError):
        with_zookeeper(setup.settings(), lambda zk: read(zk, "/consumers/g/gates/orders"))


async def read(zk: KazooZooKeeper, path: str) -> None:
    """Read a node."""
    await zk.get(path)

"""A whole group of consumer processes on a ZooKeeper with TLS and log-ins: its nodes are its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from inbound.admin.client import fetch_status
from inbound.cli.main import main
from integration.controller.secure_zookeeper import PASSWORD, USER, SecureZooKeeper
from integration.harness import Scene, Scenes
from tests.waiting import until

pytestmark = pytest.mark.thorough("a secured ZooKeeper; test_survival.py has a group whose ZooKeeper dies")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SecureZooKeeper]:
    """A ZooKeeper that asks every client to log in; empty."""
    server = SecureZooKeeper(tmp_path / "secure")
    with server.serving(sasl_required=True):
        yield server


@pytest.fixture
def scene(scenes: Scenes, server: SecureZooKeeper) -> Scene:
    """Consumers with TLS and SASL, and a look at their nodes as their user."""
    login = {"mechanism": "DIGEST-MD5", "username": USER, "password": PASSWORD}
    # Without TLS: kazoo's own leaves a socket open whenever a server is away.
    look = KazooClient(server.plain, timeout=30, sasl_options=login)
    section = (
        f'{{hosts: "{server.secure}", session_timeout: 10s, tls: {{ca_file: {server.ca.pem}}}, '
        f"auth: {{scheme: sasl, user: {USER}, password_file: {server.password_file()}}}}}"
    )
    return scenes(partitions=4, zookeeper=section, zk=look)


def test_a_group_lives_on_a_secured_zookeeper_and_every_node_is_its_users_alone(
    scene: Scene, server: SecureZooKeeper, capsys: pytest.CaptureFixture[str]
) -> None:
    """Takes, commits, pauses, releases at a death and at an end, survives the server's restart; nothing lost, all closed."""
    first, second = scene.run_group(2)
    scene.start_load()
    for command in (["pause", "orders"], ["resume", "orders"], ["rebalance", "orders"]):
        assert main([*command, "-c", str(scene.config)]) == 0, capsys.readouterr()
    second.kill()
    until(lambda: scene.all_owned(1), 90, lambda: f"all owned: {scene.owners()}")
    assert server.server is not None
    server.server.stop()
    server.server.start()
    until(lambda: answers(scene.zk), 90, "the server is back")
    scene.settle()
    assert scene.stop_all() == [0]
    assert scene.account().lost == {}
    found = access_of(scene.zk)
    theirs = {path for path in found if path != "/" and not path.startswith("/zookeeper")}
    assert {path for path in theirs if found[path] != [("sasl:inbound", 31)]} == set()
    assert {f"/consumers/{scene.group}/{part}" for part in ("ids", "owners", "offsets", "epochs", "gates")} <= theirs
    assert not any(PASSWORD in scene.log(process) for process in (first, second))


def test_a_process_with_a_wrong_password_says_so_ends_when_told_and_goes_on_with_the_right_one(
    scene: Scene, server: SecureZooKeeper
) -> None:
    """It neither hangs nor ends: status names the file, and its correction is enough."""
    server.password_file("not-the-pw")
    refused, waiting = scene.start(), scene.start()
    for process in (refused, waiting):
        until(lambda p=process: "wrong user or password" in str(problem(scene, p)), 90, "said")  # type: ignore[misc]
    assert scene.stop(refused) == 0
    password = server.password_file()
    until(lambda: scene.all_owned(1), 90, lambda: f"taken: {scene.owners()}")
    assert (problem(scene, waiting), scene.stop(waiting)) == (None, 0)
    log = scene.log(refused) + scene.log(waiting)
    assert f"zookeeper.auth.password_file {password}, which is read at each attempt" in log
    assert not any(secret in log for secret in (PASSWORD, "not-the-pw"))


def problem(scene: Scene, process: subprocess.Popen[bytes]) -> str | None:
    """Return what a process says is wrong with ZooKeeper, as soon as it says anything."""
    said: str | None = fetch_status(scene.admin_url(process), 30)["session"]["problem"]
    return said


def answers(zk: KazooClient) -> bool:
    """Whether the server answers to this client."""
    try:
        return zk.exists("/") is not None
    except Exception:
        return False


def access_of(zk: KazooClient, path: str = "/") -> dict[str, list[tuple[str, int]]]:
    """Return, for every node from `path` down, who may do what: `scheme:id` and permissions."""
    try:
        found = {path: [(f"{acl.id.scheme}:{acl.id.id}", acl.perms) for acl in zk.get_acls(path)[0]]}
        names = zk.get_children(path)
    except NoNodeError:
        return {}  # gone since it was listed
    for name in names:
        found |= access_of(zk, f"{path.rstrip('/')}/{name}")
    return found

"""What is written for the servers: their settings, the directory's layout, the lock; and the metadata answer read."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.embedded.cluster import free_ports, is_free, load_or_choose
from inbound.embedded.kafka import (
    KafkaPorts,
    Listener,
    listener_properties,
    new_uuid,
    read_brokers,
    render_properties,
    server_properties,
)
from inbound.embedded.locks import LockFile, alive, holder
from inbound.embedded.zookeeper import ZooKeeperPorts, ZooKeeperSecurity, simple_logger, zoo_cfg
from inbound.errors import EmbeddedClusterError

THREE_ZOOKEEPERS = [ZooKeeperPorts(22001, 22002, 22003), ZooKeeperPorts(22011, 22012, 22013)]


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, "1", "1"), (3, "3", "2"), (5, "3", "2")])
def test_topics_have_up_to_three_copies_and_survive_one_death(brokers: int, copies: str, in_sync: str) -> None:
    """Internal topics too. A single server can't wait for copies that it will never have."""
    servers = [KafkaPorts(21001 + 10 * n, 21002 + 10 * n) for n in range(brokers)]
    settings = server_properties(brokers - 1, servers, Path("/c/kafka"))

    assert settings["node.id"] == f"{brokers}"
    assert (
        settings["listeners"] == f"PLAINTEXT://127.0.0.1:21{brokers - 1:02}1,CONTROLLER://127.0.0.1:21{brokers - 1:02}2"
    )
    voters = [f"{n + 1}@127.0.0.1:{ports.controller}" for n, ports in enumerate(servers)]
    assert settings["controller.quorum.voters"] == ",".join(voters)
    assert {value for key, value in settings.items() if key.endswith("replication.factor")} == {copies}
    assert {settings["min.insync.replicas"], settings["transaction.state.log.min.isr"]} == {in_sync}
    assert settings["log.dirs"] == "/c/kafka/data"


THREE_ZOOKEEPERS.append(ZooKeeperPorts(22021, 22022, 22023))


def test_further_listeners_are_appended_to_the_plain_one() -> None:
    """Each with its own port, protocol and settings."""
    door = Listener("TLS", "SSL", {"ssl.client.auth": "required"})

    assert listener_properties({door: 21003}) == {
        "listeners": ",TLS://127.0.0.1:21003",
        "advertised.listeners": ",TLS://127.0.0.1:21003",
        "listener.security.protocol.map": ",TLS:SSL",
        "listener.name.tls.ssl.client.auth": "required",
    }


@pytest.mark.parametrize(
    ("servers", "ensemble"),
    [
        (1, []),
        (3, ["server.1=127.0.0.1:22002:22003", "server.2=127.0.0.1:22012:22013", "server.3=127.0.0.1:22022:22023"]),
    ],
)
def test_zookeepers_name_each_other(servers: int, ensemble: list[str]) -> None:
    """A single one runs standalone. Each listens on the loopback address only and has no admin server."""
    lines = zoo_cfg(servers - 1, THREE_ZOOKEEPERS[:servers], Path("/z")).splitlines()

    assert [line for line in lines if line.startswith("server.")] == ensemble
    for line in ("tickTime=500", f"clientPort=220{servers - 1}1", "clientPortAddress=127.0.0.1", "minSessionTimeout=1000",
                 "maxSessionTimeout=60000", "admin.enableServer=false", "maxClientCnxns=0"):  # fmt: skip
        assert line in lines


def test_settings_are_written_as_java_reads_them() -> None:
    """A properties file takes a backslash as an escape; a single logger can be quieter than the rest."""
    assert render_properties({"a": r"x\y", "b": "1"}) == "a=x\\\\y\nb=1\n"
    flags = simple_logger("warn", {"org.noisy": "error"})
    assert "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn" in flags
    assert "-Dorg.slf4j.simpleLogger.log.org.noisy=error" in flags


def test_ids_are_what_kafka_accepts() -> None:
    """22 characters, never like an option on a command line."""
    ids = {new_uuid() for _ in range(200)}

    assert len(ids) == 200
    assert {len(one) for one in ids} == {22}
    assert not [one for one in ids if one.startswith("-")]


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.text(max_size=20), st.none() | st.text(max_size=20))))
def test_brokers_are_read_from_a_metadata_answer(brokers: list[tuple[int, str, str | None]]) -> None:
    """Any host name and any rack, also none; what follows the brokers is not looked at."""
    answer = struct.pack(">ii", 1, len(brokers))
    for node, host, rack in brokers:
        name = host.encode()
        answer += struct.pack(">ih", node, len(name)) + name + struct.pack(">i", 9092)
        answer += struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack.encode())) + rack.encode()
    answer += struct.pack(">ii", 1, 0)

    assert frozenset(read_brokers(answer)[0]) == {node for node, _, _ in brokers}


def test_ports_are_free_different_and_below_those_of_clients() -> None:
    """An outgoing connection can't be given a server's port while the server is down."""
    ports = free_ports(20)

    assert len(set(ports)) == 20
    assert max(ports) < 32768
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not is_free(ports[0])
    assert not set(free_ports(5, avoid=ports)) & set(ports)


def test_a_directory_remembers_its_ports_and_its_id(tmp_path: Path) -> None:
    """All ports are chosen again when one is taken; the cluster id, which the data is bound to, stays. A quorum can't
    change its size by restarting.
    """
    first = load_or_choose(tmp_path, 3, 3)

    assert load_or_choose(tmp_path, 3, 3) == first
    assert len(set(first.ports())) == 15
    with socket.create_server(("127.0.0.1", first.brokers[0].client)):
        second = load_or_choose(tmp_path, 3, 3)
    assert (second.brokers[0].client != first.brokers[0].client, second.cluster_id) == (True, first.cluster_id)
    with pytest.raises(EmbeddedClusterError, match="data of 3 Kafka and 3 ZooKeeper servers, asked for were 1 and 3"):
        load_or_choose(tmp_path, 1, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, r"layout\.json: cannot be read .* Delete the directory")
          for text in ("", "[]", '{"version": 1}', '{"version": 1, "cluster_id": "x", "brokers": [1]}')),
        ('{"version": 2}', "format version 2, this inbound reads 1"),
    ],
)  # fmt: skip
def test_a_layout_that_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    """A damaged one with the way out; one of a later version is not guessed at."""
    (tmp_path / "layout.json").write_text(text)

    with pytest.raises(EmbeddedClusterError, match=said):
        load_or_choose(tmp_path, 1, 1)


def test_a_lock_has_one_holder_who_is_named(tmp_path: Path) -> None:
    """The second one is refused and can say who has it; released, it is free."""
    assert (holder(tmp_path / "lock"), (tmp_path / "lock").exists()) == (None, False)  # looking makes no file
    first, second = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")

    assert first.acquire()
    assert not second.acquire()
    assert holder(tmp_path / "lock") == os.getpid()
    first.release()
    assert holder(tmp_path / "lock") is None
    with second:
        assert second.acquire()


def test_a_lock_handed_to_a_child_is_held_until_the_child_ends(tmp_path: Path) -> None:
    """So a directory stays locked while the servers of a dead owner are still ending."""
    lock = LockFile(tmp_path / "lock")
    assert lock.acquire()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[lock.fileno()]) as child:
        lock.release()
        assert holder(tmp_path / "lock") == os.getpid()
        child.kill()
    assert holder(tmp_path / "lock") is None


def test_the_dead_are_not_alive() -> None:
    """Neither one that was waited for, nor (on Linux) one that has ended and was not."""
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        assert alive(child.pid)
        assert child.stdout is not None
        child.stdout.read()  # returns at its end; it is not waited for yet
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not alive(child.pid)
    assert not alive(child.pid)
    assert not alive(0)


def test_a_zookeeper_with_security_keeps_its_plain_port_and_names_its_files() -> None:
    """TLS on a port of its own, with the wanted certificates; every client must log in."""
    security = ZooKeeperSecurity(
        port=2281,
        key_store=Path("/s/server.pem"),
        trust_store=Path("/s/ca.pem"),
        jars=Path("/j"),
        client_certificates="need",
        users={"inbound": "pw"},
        sasl_required=True,
    )
    plain = zoo_cfg(0, THREE_ZOOKEEPERS[:1], Path("/z")).splitlines()
    lines = zoo_cfg(0, THREE_ZOOKEEPERS[:1], Path("/z"), security).splitlines()
    assert lines[: len(plain)] == plain
    assert lines[len(plain) :] == [
        "secureClientPort=2281",
        "secureClientPortAddress=127.0.0.1",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location=/s/server.pem",
        "ssl.keyStore.type=PEM",
        "ssl.trustStore.location=/s/ca.pem",
        "ssl.trustStore.type=PEM",
        "ssl.clientAuth=need",
        "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "enforce.auth.enabled=true",
        "enforce.auth.schemes=sasl",
    ]
    assert security.jaas().splitlines()[2] == '  user_inbound="pw";'
    assert "pw" not in repr(security)
    with pytest.raises(EmbeddedClusterError, match="user 'inbound' or its password cannot stand in a JAAS file"):
        replace(security, users={"inbound": 'p"w'}).jaas()

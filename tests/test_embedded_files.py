"""What is written for the servers: their settings, the directory's layout, the lock; and the metadata answer read."""

from __future__ import annotations

import json
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

from inbound.embedded.kafka import (
    KafkaPorts,
    Listener,
    listener_properties,
    new_uuid,
    parse_brokers,
    render_properties,
    server_properties,
)
from inbound.embedded.layout import load_or_choose
from inbound.embedded.locks import LockFile, alive, holder
from inbound.embedded.ports import free_ports, is_free
from inbound.embedded.zookeeper import ZooKeeperPorts, ZooKeeperSecurity, simple_logger, zoo_cfg
from inbound.errors import EmbeddedClusterError

THREE_BROKERS = [KafkaPorts(21001, 21002), KafkaPorts(21011, 21012), KafkaPorts(21021, 21022)]
THREE_ZOOKEEPERS = [ZooKeeperPorts(22001, 22002, 22003), ZooKeeperPorts(22011, 22012, 22013)]
THREE_ZOOKEEPERS.append(ZooKeeperPorts(22021, 22022, 22023))


def test_one_broker_keeps_one_copy_of_everything() -> None:
    """A single server can't wait for copies it will never have."""
    settings = server_properties(0, THREE_BROKERS[:1], Path("/c/kafka-0"))

    assert settings["controller.quorum.voters"] == "1@127.0.0.1:21002"
    copies = {value for key, value in settings.items() if key.endswith(("replication.factor", "min.isr"))}
    assert copies == {"1"}
    assert settings["min.insync.replicas"] == "1"


def test_three_brokers_keep_three_copies_and_survive_one_death() -> None:
    """Topics and internal topics have a copy on each; two must be in sync, so one server may be down."""
    settings = server_properties(1, THREE_BROKERS, Path("/c/kafka-1"))

    assert settings["node.id"] == "2"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:21011,CONTROLLER://127.0.0.1:21012"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:21002,2@127.0.0.1:21012,3@127.0.0.1:21022"
    assert {value for key, value in settings.items() if key.endswith("replication.factor")} == {"3"}
    assert {settings["min.insync.replicas"], settings["transaction.state.log.min.isr"]} == {"2"}
    assert settings["log.dirs"] == "/c/kafka-1/data"


def test_further_listeners_are_appended_to_the_plain_one() -> None:
    """Each with its own port, protocol and settings."""
    door = Listener("TLS", "SSL", {"ssl.client.auth": "required"})

    assert listener_properties({door: 21003}) == {
        "listeners": ",TLS://127.0.0.1:21003",
        "advertised.listeners": ",TLS://127.0.0.1:21003",
        "listener.security.protocol.map": ",TLS:SSL",
        "listener.name.tls.ssl.client.auth": "required",
    }


def test_more_brokers_still_keep_three_copies() -> None:
    """Five servers: three copies each."""
    settings = server_properties(0, [*THREE_BROKERS, *THREE_BROKERS[:2]], Path("/c"))

    assert settings["default.replication.factor"] == "3"


def test_a_single_zookeeper_names_no_ensemble() -> None:
    """One server runs standalone; it listens on the loopback address only and has no admin server."""
    lines = zoo_cfg(0, THREE_ZOOKEEPERS[:1], Path("/z")).splitlines()

    assert not [line for line in lines if line.startswith("server.")]
    for line in ("tickTime=500", "clientPort=22001", "clientPortAddress=127.0.0.1", "minSessionTimeout=1000",
                 "maxSessionTimeout=60000", "admin.enableServer=false", "maxClientCnxns=0"):  # fmt: skip
        assert line in lines


def test_three_zookeepers_name_each_other() -> None:
    """Each server's file lists the whole ensemble, and its own client port."""
    lines = zoo_cfg(2, THREE_ZOOKEEPERS, Path("/z")).splitlines()

    assert "clientPort=22021" in lines
    assert [line for line in lines if line.startswith("server.")] == [
        "server.1=127.0.0.1:22002:22003",
        "server.2=127.0.0.1:22012:22013",
        "server.3=127.0.0.1:22022:22023",
    ]


def test_backslashes_in_properties_are_doubled() -> None:
    """A Java properties file takes a backslash as an escape."""
    assert render_properties({"a": r"x\y", "b": "1"}) == "a=x\\\\y\nb=1\n"


def test_single_loggers_can_have_their_own_level() -> None:
    """The noisy ones are told to be quieter than the rest."""
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

    assert parse_brokers(answer) == {node for node, _, _ in brokers}


def test_ports_are_free_different_and_below_those_of_clients() -> None:
    """An outgoing connection can't be given a server's port while the server is down."""
    ports = free_ports(20)

    assert len(set(ports)) == 20
    assert max(ports) < 32768
    with socket.create_server(("127.0.0.1", ports[0])):
        assert not is_free(ports[0])
    assert not set(free_ports(5, avoid=ports)) & set(ports)


def test_a_directory_remembers_its_ports_and_its_id(tmp_path: Path) -> None:
    """The same cluster comes back under the same addresses."""
    first = load_or_choose(tmp_path, 3, 3)

    assert load_or_choose(tmp_path, 3, 3) == first
    assert len(set(first.ports())) == 15


def test_a_port_that_is_taken_meanwhile_is_replaced(tmp_path: Path) -> None:
    """All ports are chosen anew; the cluster id, which the data is bound to, stays."""
    first = load_or_choose(tmp_path, 1, 1)
    with socket.create_server(("127.0.0.1", first.brokers[0].client)):
        second = load_or_choose(tmp_path, 1, 1)

    assert second.brokers[0].client != first.brokers[0].client
    assert second.cluster_id == first.cluster_id


def test_a_directory_refuses_another_number_of_servers(tmp_path: Path) -> None:
    """A quorum can't change its size by restarting: the message says what is there and what was asked."""
    load_or_choose(tmp_path, 1, 1)

    with pytest.raises(EmbeddedClusterError, match="data of 1 Kafka and 1 ZooKeeper servers, asked for were 3 and 1"):
        load_or_choose(tmp_path, 3, 1)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "cluster_id": "x", "brokers": [1]}'])
def test_a_damaged_layout_is_named(tmp_path: Path, text: str) -> None:
    """The file and the way out are in the message."""
    (tmp_path / "layout.json").write_text(text)

    with pytest.raises(EmbeddedClusterError, match=r"layout\.json: cannot be read .* Delete the directory"):
        load_or_choose(tmp_path, 1, 1)


def test_a_layout_of_a_later_version_is_not_guessed_at(tmp_path: Path) -> None:
    """Its version and ours are in the message."""
    (tmp_path / "layout.json").write_text(json.dumps({"version": 2}))

    with pytest.raises(EmbeddedClusterError, match="format version 2, this inbound reads 1"):
        load_or_choose(tmp_path, 1, 1)


def test_a_lock_has_one_holder_who_is_named(tmp_path: Path) -> None:
    """The second one is refused and can say who has it; released, it is free."""
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


def test_nobody_holds_a_lock_that_does_not_exist(tmp_path: Path) -> None:
    """Looking does not create the file."""
    assert holder(tmp_path / "lock") is None
    assert not (tmp_path / "lock").exists()


def test_the_dead_are_not_alive() -> None:
    """Neither one that was waited for, nor (on Linux) one that has ended and was not."""
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        assert alive(child.pid)
        assert child.stdout is not None
        child.stdout.read()  # returns at its end; nobody has waited for it yet
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not alive(child.pid)
    assert not alive(child.pid)
    assert not alive(0)


def test_a_zookeeper_with_security_keeps_its_plain_port_and_names_its_files() -> None:
    """TLS on a port of its own, with the wanted certificates; whoever connects must log in."""
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

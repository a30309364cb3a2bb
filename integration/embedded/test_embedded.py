"""The embedded cluster itself: real servers come up, work, survive what is done to them, and never stay behind."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient

from inbound.cli.shared import files
from inbound.embedded import EmbeddedCluster, detached
from inbound.embedded.locks import alive, holder
from inbound.embedded.zookeeper import four_letter_word
from inbound.errors import EmbeddedClusterError
from tests.waiting import patient, until

ROOT = Path(__file__).resolve().parent.parent.parent
#: On a quiet machine 1 + 1 servers are up in 2 s, 3 + 3 in 6 s.
SLOWEST_START = 30.0


@contextmanager
def up(directory: Path | None = None, *, brokers: int = 1, zookeepers: int = 1) -> Iterator[EmbeddedCluster]:
    """A started cluster; how long the start took is printed."""
    began = time.monotonic()
    cluster = EmbeddedCluster(
        directory, jars=files.jar_cache(), java=files.java_command(), brokers=brokers, zookeepers=zookeepers
    )
    with cluster:
        took = time.monotonic() - began
        print(f"{brokers} Kafka + {zookeepers} ZooKeeper servers up after {took:.1f} s")
        assert took < patient(SLOWEST_START)
        yield cluster


@contextmanager
def zookeeper(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=hosts, timeout=10)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def create_topic(cluster: EmbeddedCluster, topic: str, *, partitions: int = 1, copies: int = 1) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic(topic, partitions, copies)])


def publish(cluster: EmbeddedCluster, topic: str, *values: bytes) -> None:
    with closing(KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")) as producer:
        for value in values:
            producer.send(topic, value, partition=0).get(timeout=60)


def consume(cluster: EmbeddedCluster, topic: str, count: int) -> list[bytes]:
    """Return the values of partition 0 as soon as there are `count`."""
    values: list[bytes] = []
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")

    def enough() -> bool:
        for records in consumer.poll(timeout_ms=500).values():
            values.extend(record.value for record in records)
        return len(values) >= count

    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        until(enough, 60, f"{count} values of {topic}")
    return values


def pids(cluster: EmbeddedCluster) -> list[int]:
    found = [server.pid for server in cluster.servers]
    assert None not in found
    return [pid for pid in found if pid is not None]


def granted_session(port: int, wanted_ms: int) -> int:
    """Ask ZooKeeper for a session by hand, because kazoo hides the timeout it was granted. Milliseconds."""
    asked = struct.pack(">iqiqi16s", 0, 0, wanted_ms, 0, 16, b"")
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(struct.pack(">i", len(asked)) + asked)
        answer = connection.recv(64)  # length, protocol version, timeout, ...
    return int(struct.unpack_from(">iii", answer)[2])


def test_sessions_are_granted_between_one_second_and_sixty(embedded_cluster: EmbeddedCluster) -> None:
    """Tests of expiry need short sessions; ZooKeeper's own bounds would be 2 and 20 ticks."""
    port = embedded_cluster.zookeepers[0].port
    granted = {wanted: granted_session(port, wanted) for wanted in (100, 1500, 60_000, 90_000)}
    assert granted == {100: 1000, 1500: 1500, 60_000: 60_000, 90_000: 60_000}


def test_zookeeper_answers_the_monitoring_words_only(embedded_cluster: EmbeddedCluster) -> None:
    """`ruok`, `srvr` and `mntr` are allowed, others are not."""
    port = embedded_cluster.zookeepers[0].port

    assert four_letter_word(port, "ruok", 5) == "imok"
    assert "Mode: standalone" in four_letter_word(port, "srvr", 5)
    assert "zk_znode_count" in four_letter_word(port, "mntr", 5)
    assert "not in the whitelist" in four_letter_word(port, "conf", 5)


def test_topics_do_not_appear_by_themselves(embedded_cluster: EmbeddedCluster) -> None:
    """Writing to a topic that does not exist is an error, so a typo in a test is found."""
    with closing(KafkaAdminClient(bootstrap_servers=embedded_cluster.bootstrap_servers)) as admin:
        with closing(KafkaConsumer(bootstrap_servers=embedded_cluster.bootstrap_servers)) as consumer:
            assert not consumer.partitions_for_topic("no-such-topic")
        assert "no-such-topic" not in admin.list_topics()


def test_a_paused_server_answers_again_after_resume(embedded_cluster: EmbeddedCluster) -> None:
    """Frozen, it answers no client; resumed, it is the same process and serves."""
    for server in embedded_cluster.servers:
        pid = server.pid
        server.pause()
        try:
            assert not server.ready(0.5)
        finally:
            server.resume()
        server.wait_ready(patient(30))

        assert server.pid == pid


@pytest.mark.thorough("other tests stop and kill the shared servers, which keep address and data")
def test_a_restarted_server_keeps_address_and_data() -> None:
    """Stopped or killed, both servers come back where they were, with what they had."""
    with up() as cluster:
        addresses = (cluster.bootstrap_servers, cluster.zookeeper_hosts)
        create_topic(cluster, "kept")
        publish(cluster, "kept", b"1", b"2")
        with zookeeper(cluster.zookeeper_hosts) as client:
            client.create("/kept", b"3")
        for verb in ("stop", "kill"):
            for server in cluster.servers:
                getattr(server, verb)()
                assert not server.running
            for server in cluster.servers:
                server.start()

            assert (cluster.bootstrap_servers, cluster.zookeeper_hosts) == addresses
            assert consume(cluster, "kept", 2) == [b"1", b"2"]
            with zookeeper(cluster.zookeeper_hosts) as client:
                assert client.get("/kept")[0] == b"3"


@pytest.mark.thorough("six servers; test_brokers.py and test_ensemble.py have three of a kind under load")
def test_three_of_each_survive_the_death_of_one_and_a_whole_ensemble_comes_back() -> None:
    """A quorum and replicated topics: with one of each dead all goes on, and the dead ones catch up."""
    with up(brokers=3, zookeepers=3) as cluster:
        roles = ["follower", "follower", "leader"]
        until(lambda: sorted(str(server.mode()) for server in cluster.zookeepers) == roles, 60, "all have a role")
        create_topic(cluster, "replicated", partitions=3, copies=3)
        publish(cluster, "replicated", b"before")
        with zookeeper(cluster.zookeeper_hosts) as client:
            client.create("/node", b"before")

        broker, living = cluster.brokers[:2]
        leader = next(server for server in cluster.zookeepers if server.mode() == "leader")
        broker.kill()
        leader.kill()
        others = [server for server in cluster.zookeepers if server is not leader]
        until(lambda: any(server.mode() == "leader" for server in others), 60, "a new ZooKeeper leader")
        with zookeeper(cluster.zookeeper_hosts) as client:
            client.set("/node", b"after")
        until(lambda: living.sees() == {2, 3}, 60, "broker 1 is fenced")
        publish(cluster, "replicated", b"after")
        assert consume(cluster, "replicated", 2) == [b"before", b"after"]

        broker.start()
        leader.start()
        until(lambda: living.sees() == {1, 2, 3}, 60, "broker 1 is back")
        with zookeeper(leader.address) as client:
            client.sync("/node")
            assert client.get("/node")[0] == b"after"

        for server in cluster.zookeepers:
            server.kill()
        for server in cluster.zookeepers:
            server.start(wait=False)
        for server in cluster.zookeepers:
            server.wait_ready()
        with zookeeper(cluster.zookeeper_hosts) as client:
            assert client.get("/node")[0] == b"after"


@pytest.mark.thorough("three starts; `make test` starts a cluster in a given folder twice, by command")
def test_a_temporary_directory_is_removed_and_a_given_one_kept(tmp_path: Path) -> None:
    """A given directory has the same data, under the same addresses, the next time; until then no other cluster gets it."""
    with up() as temporary:
        folder = temporary.directory
        assert folder.is_dir()
    assert not folder.exists()

    with up(tmp_path / "kept") as cluster:
        addresses = (cluster.bootstrap_servers, cluster.zookeeper_hosts)
        create_topic(cluster, "kept")
        publish(cluster, "kept", b"1")
        with (
            pytest.raises(EmbeddedClusterError, match=f"in use by the live cluster of pid {os.getpid()}"),
            up(tmp_path / "kept"),
        ):
            pass
        running = pids(cluster)
    assert not any(alive(pid) for pid in running)

    with up(tmp_path / "kept") as cluster:
        assert (cluster.bootstrap_servers, cluster.zookeeper_hosts) == addresses
        assert consume(cluster, "kept", 1) == [b"1"]


@pytest.mark.thorough("two starts; tests/embedded/test_embedded_server.py has a server that cannot start")
def test_a_server_that_cannot_start_tells_why(tmp_path: Path) -> None:
    """Kafka's data folder is damaged: the error has the server's own words, and nothing stays running."""
    with up(tmp_path):
        pass
    (tmp_path / "kafka-0" / "data" / "meta.properties").write_text("version=1\nnode.id=99\ncluster.id=x\n")
    cluster = EmbeddedCluster(tmp_path, jars=files.jar_cache(), java=files.java_command())

    with pytest.raises(EmbeddedClusterError, match=r"kafka-0: the server ended with exit code 1") as caught:
        cluster.start()

    assert "99" in str(caught.value)
    assert not any(server.running for server in cluster.servers)
    assert holder(tmp_path / "cluster.lock") is None


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inbound", "cluster", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patient(110), check=False)


def test_a_detached_cluster_lives_until_down_and_not_without_its_supervisor(tmp_path: Path) -> None:
    """`up --detach` returns with the cluster up; `status` asks its servers; `down` ends them all and keeps the data.

    SIGKILL to the supervisor ends the servers within 5 s: `status` says so, and `up --detach` starts the same cluster again.
    """
    here = ("--dir", str(tmp_path))
    started = cli("up", "--detach", *here)
    assert started.returncode == 0, started.stderr
    info = detached.read(tmp_path)
    try:
        assert info is not None
        assert f"Kafka:     {info.bootstrap_servers}" in started.stdout
        servers = [server.pid for server in (*info.brokers, *info.zookeepers)]
        said = cli("status", *here)
        assert (said.returncode, "standalone" in said.stdout, "sees 1 of 1" in said.stdout) == (0, True, True)
        assert all(str(pid) in said.stdout for pid in servers)
        assert "in use by the live cluster" in cli("up", "--detach", *here).stderr

        os.kill(info.zookeepers[0].pid, signal.SIGKILL)
        until(lambda: not alive(servers[-1]), 5, "ZooKeeper is gone")
        said = cli("status", *here)
        assert (said.returncode, "NO ANSWER" in said.stdout) == (1, True)

        os.kill(info.pid, signal.SIGKILL)
        until(lambda: not any(map(alive, servers)), 5, "the servers have ended with their supervisor")
        said = cli("status", *here)
        assert (said.returncode, "stale" in said.stdout) == (1, True)

        again = cli("up", "--detach", *here)
        assert (again.returncode, info.bootstrap_servers in again.stdout) == (0, True), again.stderr
        info = detached.read(tmp_path)
    finally:
        ended = cli("down", *here)
    assert (ended.returncode, "the cluster has ended" in ended.stdout) == (0, True)
    assert info is not None
    assert not any(alive(pid) for pid in (info.pid, *(server.pid for server in (*info.brokers, *info.zookeepers))))
    assert not (tmp_path / "cluster.json").exists()
    assert (tmp_path / "kafka-0" / "data").is_dir()


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough("`make test` has Ctrl-C"))]
)
def test_up_in_the_foreground_ends_with_a_signal(number: signal.Signals) -> None:
    """It prints the addresses, then runs until Ctrl-C or SIGTERM, which is a good end: exit code 0, no servers."""
    command = [sys.executable, "-m", "inbound", "cluster", "up"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("Kafka:     127.0.0.1:")
        hosts = process.stdout.readline().split()[1]
        assert "Mode: standalone" in four_letter_word(int(hosts.rpartition(":")[2]), "srvr", 5)

        process.send_signal(number)

        assert process.wait(patient(30)) == 0
        assert "Traceback" not in process.stderr.read()
    assert four_letter_word(int(hosts.rpartition(":")[2]), "srvr", 1) == ""


@pytest.mark.thorough("all other tests of this folder have their cluster from these fixtures")
def test_the_fixtures_give_users_a_cluster(tmp_path: Path) -> None:
    """A user's project with the plugin in its conftest gets a running cluster in its tests."""
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\nimport pytest\n"
        'pytest_plugins = ["inbound.embedded.pytest_plugin"]\n'
        "@pytest.fixture(scope='session')\n"
        f"def inbound_jars():\n    return Path({str(files.jar_cache())!r})\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "def test_up(embedded_cluster, cluster_factory):\n"
        "    assert embedded_cluster.zookeepers[0].mode() == 'standalone'\n"
        "    other = cluster_factory()\n"
        "    assert other.bootstrap_servers != embedded_cluster.bootstrap_servers\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=patient(110), check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout

"""The embedded cluster itself: real servers come up, work, survive what is done to them, and never stay behind."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient

from inbound.cli import places
from inbound.embedded import EmbeddedCluster, detached
from inbound.embedded.kafka import KafkaServer
from inbound.embedded.locks import alive, holder
from inbound.embedded.zookeeper import ZooKeeperServer, four_letter_word
from inbound.errors import EmbeddedClusterError

ROOT = Path(__file__).resolve().parent.parent
#: What `make test` may meet on a busy machine; on a quiet one 1 + 1 servers are up in 2 s, 3 + 3 in 6 s.
SLOWEST_START = 60.0


@pytest.fixture(scope="module")
def single() -> Iterator[EmbeddedCluster]:
    """One Kafka and one ZooKeeper server."""
    with up() as cluster:
        yield cluster


@contextmanager
def up(directory: Path | None = None, *, brokers: int = 1, zookeepers: int = 1) -> Iterator[EmbeddedCluster]:
    """A started cluster; how long the start took is printed."""
    began = time.monotonic()
    cluster = EmbeddedCluster(
        directory, jars=places.jar_cache(), java=places.java_command(), brokers=brokers, zookeepers=zookeepers
    )
    with cluster:
        took = time.monotonic() - began
        print(f"{brokers} Kafka + {zookeepers} ZooKeeper servers up after {took:.1f} s")
        assert took < SLOWEST_START
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
    """Return the first `count` values of partition 0, or what there is of them after 60 s."""
    values: list[bytes] = []
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + 60
        while len(values) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                values += [record.value for record in records]
    return values


def eventually(true: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait until `true()`, and return how long that took; fail with `what` after `seconds`."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def pids(cluster: EmbeddedCluster) -> list[int]:
    found = [server.pid for server in cluster.servers]
    assert None not in found
    return [pid for pid in found if pid is not None]


def test_kafka_takes_and_gives_a_record(single: EmbeddedCluster) -> None:
    """A topic can be created, written and read as soon as the cluster is up."""
    create_topic(single, "first")
    publish(single, "first", b"hello")

    assert consume(single, "first", 1) == [b"hello"]


def test_zookeeper_keeps_a_node(single: EmbeddedCluster) -> None:
    """A node can be written and read."""
    with zookeeper(single.zookeeper_hosts) as client:
        client.create("/greeting", b"hello")
        assert client.get("/greeting")[0] == b"hello"


def granted_session(port: int, wanted_ms: int) -> int:
    """Ask ZooKeeper for a session by hand, because kazoo hides the timeout it was granted. Milliseconds."""
    asked = struct.pack(">iqiqi16s", 0, 0, wanted_ms, 0, 16, b"")
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(struct.pack(">i", len(asked)) + asked)
        answer = connection.recv(64)  # length, protocol version, timeout, ...
    return int(struct.unpack_from(">iii", answer)[2])


@pytest.mark.parametrize(("wanted", "granted"), [(100, 1000), (1500, 1500), (60_000, 60_000), (90_000, 60_000)])
def test_sessions_are_granted_between_one_second_and_sixty(single: EmbeddedCluster, wanted: int, granted: int) -> None:
    """Tests of expiry need short sessions; ZooKeeper's own bounds would be 2 and 20 ticks."""
    assert granted_session(single.zookeepers[0].port, wanted) == granted


def test_zookeeper_answers_the_monitoring_words_only(single: EmbeddedCluster) -> None:
    """`ruok`, `srvr` and `mntr` are allowed, others are not."""
    port = single.zookeepers[0].port

    assert four_letter_word(port, "ruok", 5) == "imok"
    assert "Mode: standalone" in four_letter_word(port, "srvr", 5)
    assert "zk_znode_count" in four_letter_word(port, "mntr", 5)
    assert "not in the whitelist" in four_letter_word(port, "conf", 5)


def test_topics_do_not_appear_by_themselves(single: EmbeddedCluster) -> None:
    """Writing to a topic that nobody created is an error, so a typo in a test is found."""
    with closing(KafkaAdminClient(bootstrap_servers=single.bootstrap_servers)) as admin:
        with closing(KafkaConsumer(bootstrap_servers=single.bootstrap_servers)) as consumer:
            assert not consumer.partitions_for_topic("no-such-topic")
        assert "no-such-topic" not in admin.list_topics()


@pytest.mark.parametrize("which", ["kafka", "zookeeper"])
def test_a_paused_server_answers_again_after_resume(single: EmbeddedCluster, which: str) -> None:
    """Frozen, it answers nobody; resumed, it is the same process and serves."""
    server: KafkaServer | ZooKeeperServer = single.brokers[0] if which == "kafka" else single.zookeepers[0]
    pid = server.pid
    server.pause()
    try:
        assert not server.ready(0.5)
    finally:
        server.resume()
    server.wait_ready(30)

    assert server.pid == pid


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_a_restarted_server_keeps_address_and_data(verb: str) -> None:
    """Stopped or killed, both servers come back where they were, with what they had."""
    with up() as cluster:
        addresses = (cluster.bootstrap_servers, cluster.zookeeper_hosts)
        create_topic(cluster, "kept")
        publish(cluster, "kept", b"1", b"2")
        with zookeeper(cluster.zookeeper_hosts) as client:
            client.create("/kept", b"3")
        for server in cluster.servers:
            getattr(server, verb)()
            assert not server.running
        for server in cluster.servers:
            server.start()

        assert (cluster.bootstrap_servers, cluster.zookeeper_hosts) == addresses
        assert consume(cluster, "kept", 2) == [b"1", b"2"]
        with zookeeper(cluster.zookeeper_hosts) as client:
            assert client.get("/kept")[0] == b"3"


def test_three_of_each_survive_the_death_of_one() -> None:
    """A quorum and replicated topics: with one of each dead all goes on, and the dead ones catch up."""
    with up(brokers=3, zookeepers=3) as cluster:
        roles = ["follower", "follower", "leader"]
        eventually(lambda: sorted(str(server.mode()) for server in cluster.zookeepers) == roles, 60, "all have a role")
        create_topic(cluster, "replicated", partitions=3, copies=3)
        publish(cluster, "replicated", b"before")
        with zookeeper(cluster.zookeeper_hosts) as client:
            client.create("/node", b"before")

        broker = cluster.brokers[0]
        leader = next(server for server in cluster.zookeepers if server.mode() == "leader")
        broker.kill()
        leader.kill()
        others = [server for server in cluster.zookeepers if server is not leader]
        took = eventually(lambda: any(server.mode() == "leader" for server in others), 60, "a new ZooKeeper leader")
        print(f"a new ZooKeeper leader after {took:.1f} s")
        with zookeeper(cluster.zookeeper_hosts) as client:
            client.set("/node", b"after")
        living = cluster.brokers[1]
        took = eventually(lambda: living.sees() == {2, 3}, 60, "broker 1 is fenced")
        print(f"the dead broker is out after {took:.1f} s")
        publish(cluster, "replicated", b"after")
        assert consume(cluster, "replicated", 2) == [b"before", b"after"]

        broker.start()
        leader.start()
        eventually(lambda: living.sees() == {1, 2, 3}, 60, "broker 1 is back")
        with zookeeper(leader.address) as client:
            client.sync("/node")
            assert client.get("/node")[0] == b"after"


def test_a_whole_ensemble_comes_back() -> None:
    """All three ZooKeeper servers killed and started: they find each other again and have their data."""
    with up(zookeepers=3) as cluster:
        with zookeeper(cluster.zookeeper_hosts) as client:
            client.create("/node", b"kept")
        for server in cluster.zookeepers:
            server.kill()
        for server in cluster.zookeepers:
            server.start(wait=False)
        for server in cluster.zookeepers:
            server.wait_ready()

        with zookeeper(cluster.zookeeper_hosts) as client:
            assert client.get("/node")[0] == b"kept"


def test_a_temporary_directory_is_removed_and_a_given_one_kept(tmp_path: Path) -> None:
    """A given directory has the same data, under the same addresses, the next time; meanwhile nobody else gets it."""
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


def test_a_server_that_cannot_start_tells_why(tmp_path: Path) -> None:
    """Kafka's data folder is damaged: the error has the server's own words, and nothing stays running."""
    with up(tmp_path):
        pass
    (tmp_path / "kafka-0" / "data" / "meta.properties").write_text("version=1\nnode.id=99\ncluster.id=x\n")
    cluster = EmbeddedCluster(tmp_path, jars=places.jar_cache(), java=places.java_command())

    with pytest.raises(EmbeddedClusterError, match=r"kafka-0: the server ended with exit code 1") as caught:
        cluster.start()

    assert "99" in str(caught.value)
    assert not any(server.running for server in cluster.servers)
    assert holder(tmp_path / "cluster.lock") is None


def test_no_server_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL to the owner: its servers are gone within 5 s, and the directory can be used again at once."""
    code = f"""
import sys, time
from pathlib import Path
from inbound.embedded import EmbeddedCluster
cluster = EmbeddedCluster(Path({str(tmp_path)!r}), jars=Path({str(places.jar_cache())!r}),
                          java={places.java_command()!r})
with cluster:
    print(*[server.pid for server in cluster.servers], flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        servers = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(servers) == 2
        assert all(alive(pid) for pid in servers)

        owner.kill()

        took = eventually(lambda: not any(alive(pid) for pid in servers), 5, "the servers have ended")
        print(f"all servers are gone {took:.2f} s after their owner's SIGKILL")
        with up(tmp_path):
            pass


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "inbound", "cluster", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


def test_a_detached_cluster_lives_until_down(tmp_path: Path) -> None:
    """`up --detach` returns with the cluster up; `status` asks its servers; `down` ends them all and keeps the data."""
    started = cli("up", "--detach", "--dir", str(tmp_path))
    assert started.returncode == 0, started.stderr
    info = detached.read(tmp_path)
    try:
        assert info is not None
        assert f"Kafka:     {info.bootstrap_servers}" in started.stdout
        servers = [server.pid for server in (*info.brokers, *info.zookeepers)]
        said = cli("status", "--dir", str(tmp_path))
        assert (said.returncode, "standalone" in said.stdout, "sees 1 of 1" in said.stdout) == (0, True, True)
        assert all(str(pid) in said.stdout for pid in servers)
        assert "in use by the live cluster" in cli("up", "--detach", "--dir", str(tmp_path)).stderr

        os.kill(info.zookeepers[0].pid, signal.SIGKILL)
        eventually(lambda: not alive(info.zookeepers[0].pid), 5, "ZooKeeper is gone")
        said = cli("status", "--dir", str(tmp_path))
        assert (said.returncode, "NO ANSWER" in said.stdout) == (1, True)
    finally:
        ended = cli("down", "--dir", str(tmp_path))
    assert (ended.returncode, "the cluster has ended" in ended.stdout) == (0, True)
    assert not any(alive(pid) for pid in (info.pid, *servers))
    assert not (tmp_path / "cluster.json").exists()
    assert (tmp_path / "kafka-0" / "data").is_dir()


def test_a_killed_supervisor_leaves_a_stale_file_and_no_servers(tmp_path: Path) -> None:
    """`status` says so, and `up --detach` starts the same cluster again."""
    assert cli("up", "--detach", "--dir", str(tmp_path)).returncode == 0
    info = detached.read(tmp_path)
    assert info is not None

    os.kill(info.pid, signal.SIGKILL)

    servers = [server.pid for server in (*info.brokers, *info.zookeepers)]
    eventually(lambda: not any(alive(pid) for pid in servers), 5, "the servers have ended")
    said = cli("status", "--dir", str(tmp_path))
    assert (said.returncode, "stale" in said.stdout) == (1, True)
    try:
        again = cli("up", "--detach", "--dir", str(tmp_path))
        assert (again.returncode, info.bootstrap_servers in again.stdout) == (0, True), again.stderr
    finally:
        assert cli("down", "--dir", str(tmp_path)).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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

        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    assert four_letter_word(int(hosts.rpartition(":")[2]), "srvr", 1) == ""


def test_the_fixtures_give_users_a_cluster(tmp_path: Path) -> None:
    """A user's project with the plugin in its conftest gets a running cluster in its tests."""
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\nimport pytest\n"
        'pytest_plugins = ["inbound.embedded.pytest_plugin"]\n'
        "@pytest.fixture(scope='session')\n"
        f"def inbound_jars():\n    return Path({str(places.jar_cache())!r})\n"
    )
    (tmp_path / "test_mine.py").write_text(
        "def test_up(embedded_cluster, cluster_factory):\n"
        "    assert embedded_cluster.zookeepers[0].mode() == 'standalone'\n"
        "    other = cluster_factory()\n"
        "    assert other.bootstrap_servers != embedded_cluster.bootstrap_servers\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout

"""A channel's offsets in a real Kafka group, as Kafka's own tool describes it: the very ones that ZooKeeper holds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import kafka
import kafka.errors
import pytest
from kafka.admin import KafkaAdminClient

from inbound.embedded import EmbeddedCluster
from inbound.errors import BrokerUnavailableError
from inbound.kafka.python.topics import prepare_topic
from inbound.mirror.kafka_python import mirror_connector
from inbound.mirror.plan import Answer, Kind, RefusedOffset
from inbound.topic_partition import TopicPartition
from integration.certificates import CA
from integration.harness import Scene, Scenes, consumer_groups
from integration.secured import USER, quoted, secured, set_password
from tests.waiting import until

MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(scenes: Scenes) -> MakeScene:
    """Make scenes whose channel mirrors to the Kafka group of its own name."""
    return partial(scenes, channel_extra="    offsets: {mirror: kafka}\n")


def described(s: Scene, jars: Path) -> tuple[str, dict[int, tuple[int, int]]]:
    """Return what `kafka-consumer-groups --describe` prints, and of each partition offset and lag in it."""
    said = consumer_groups(s.bootstrap_servers, jars, "--describe", "--group", s.group)
    rows = [words for line in said.splitlines() if (words := line.split())[:2] == [s.group, s.topic]]
    return said, {int(words[2]): (int(words[3]), int(words[5])) for words in rows}


def mirrored(s: Scene) -> dict[int, int]:
    """Return the Kafka group's offsets, as the broker has them."""
    answers: list[dict[int, int]] = []

    def ask() -> bool:
        with suppress(kafka.errors.KafkaError):  # the group's coordinator has just come up
            admin = KafkaAdminClient(bootstrap_servers=s.cluster.bootstrap_servers)
            try:
                found = admin.list_group_offsets({s.group: None})[s.group]
            finally:
                admin.close()
            answers.append({tp.partition: one.offset for tp, one in sorted(found.items()) if tp.topic == s.topic})
        return bool(answers)

    until(ask, 90, "the broker says what the Kafka group has")
    return answers[-1]


def held_in_zookeeper(s: Scene) -> dict[int, int | None]:
    """Return the group's offsets."""
    return {partition: s.offset(partition) for partition in range(s.partitions)}


def in_step(s: Scene) -> bool:
    """Whether the Kafka group has what ZooKeeper has."""
    return mirrored(s) == held_in_zookeeper(s)


@pytest.mark.thorough(
    "starts Kafka's tool and waits for a dead session; tests/mirror/test_mirror.py decides what goes to Kafka, and when"
)
def test_kafkas_own_tool_shows_the_offsets_that_zookeeper_holds(scene: MakeScene, inbound_jars: Path) -> None:
    """Of two replicas, each of which sends its own; of one that took over from a killed one; and the last at a stop."""
    s = scene(partitions=6, session=8.0)
    running = s.run_group(2, records=50)
    until(lambda: in_step(s), 30, lambda: f"mirrored: {mirrored(s)} of {held_in_zookeeper(s)}")
    said, found = described(s, inbound_jars)
    s.start_load()
    s.wait_more()
    running[0].send_signal(signal.SIGKILL)
    running[0].wait()
    until(lambda: s.owned_by(running[1:]), 60, "the other one owns everything")
    s.settle()
    until(lambda: in_step(s), 60, lambda: f"mirrored: {mirrored(s)} of {held_in_zookeeper(s)}")
    s.publish(7)
    s.settle()
    codes = s.stop_all()

    assert found == dict.fromkeys(range(6), (50, 0)), said
    assert "has no active members" in said
    assert (codes, mirrored(s)) == ([0], dict(sorted(s.published.items())))


class LiveGroup:
    """A Kafka consumer, member of a group, that commits nothing."""

    def __init__(self, s: Scene) -> None:
        self._over = threading.Event()
        self._member = threading.Event()
        self._consumer = kafka.KafkaConsumer(
            s.topic, bootstrap_servers=s.cluster.bootstrap_servers, group_id=s.group, enable_auto_commit=False
        )
        self._thread = threading.Thread(target=self._run, name="live-group")
        self._thread.start()
        until(self._member.is_set, 60, "the Kafka consumer is a member")

    def _run(self) -> None:
        while not self._over.is_set():
            self._consumer.poll(timeout_ms=200)
            if self._consumer.assignment():
                self._member.set()
        self._consumer.close()

    def leave(self) -> None:
        """Leave the group."""
        self._over.set()
        self._thread.join(30)


@pytest.mark.parametrize("client", ["confluent-kafka"])
@pytest.mark.thorough("tests/mirror/test_mirror.py has a live group")
def test_a_live_kafka_group_of_the_name_is_left_alone(scene: MakeScene) -> None:
    """It is logged once, and commits go on; when its members are gone, the next replica mirrors."""
    s = scene(partitions=2)
    live = LiveGroup(s)
    try:
        first = s.start()
        until(lambda: "it has members of its own" in s.log(first), 60, lambda: s.log(first))
        for _ in range(3):
            s.publish(5)
            s.settle()
        untouched = mirrored(s)
    finally:
        live.leave()
    said = s.log(first).count("offsets do not go to Kafka group")
    code = s.stop(first)
    second = s.start()
    until(lambda: in_step(s), 60, lambda: s.log(second))

    assert (untouched, said, code) == ({}, 1, 0)
    assert mirrored(s) == {0: 15, 1: 15}
    assert "it has members of its own" not in s.log(second)


@pytest.mark.thorough("tests/mirror/test_mirror.py has a broker that is away; test_brokers.py kills one under load")
def test_commits_go_on_without_the_broker_and_are_there_when_it_is_back(
    mortal_cluster: EmbeddedCluster, scene: MakeScene
) -> None:
    """What was read ahead is processed and committed while the only broker is away; it is logged once, and made good."""
    s = scene(partitions=1, seconds_per_record=0.02)
    s.write_config(reader="{max_batch_records: 5}")
    s.publish(50)
    process = s.start()
    until(lambda: (s.offset(0) or 0) >= 50 and (mirrored(s).get(0) or 0) >= 5, 120, "it is mirrored")
    s.publish(1500)  # not before: while a broker's first group has no coordinator yet, records are consumed
    until(lambda: (s.offset(0) or 0) >= 100, 60, "it has read ahead")
    mortal_cluster.brokers[0].stop()
    at = s.offset(0) or 0
    until(lambda: (s.offset(0) or 0) >= at + 200, 60, lambda: f"commits without a broker: {s.offset(0)} of {at} + 200")
    until(lambda: "offsets do not go to Kafka group" in s.log(process), 60, lambda: s.log(process))
    mortal_cluster.brokers[0].start()
    s.settle(180)
    until(lambda: in_step(s), 120, lambda: f"mirrored: {s.log(process)}")
    # The broker has them before its answer is there, and before the line is written.
    until(lambda: "offsets go to Kafka group" in s.log(process), 60, lambda: s.log(process))

    assert (mirrored(s), s.account().repeated) == ({0: 1550}, {})


# -- who is let in ---------------------------------------------------------------------------------------------------


def asked(client: str, properties: Mapping[str, str], group: str, offset: int) -> Answer:
    """Write one offset with a client of its own, and return what came of it."""
    answers: list[Answer] = []
    written = {TopicPartition("secured", 0): offset}

    def ask() -> bool:
        try:
            one = mirror_connector(client, properties, client_id="mirror")(group)
        except BrokerUnavailableError as error:
            answers.append(dict.fromkeys(written, RefusedOffset(Kind.UNREACHABLE, str(error))))
            return True
        try:
            answer = one.send(written, lambda: None)
            until(lambda: answer() is not None, 60, "it is answered")
            found = answer() or {}
        finally:
            one.close()
        if any(refusal.kind is Kind.COORDINATOR for refusal in found.values()):
            return False  # the first group that the broker sees
        answers.append(found)
        return True

    until(ask, 90, "the group's coordinator is up")
    return answers[-1]


@pytest.mark.thorough("starts secured brokers; tests/kafka/test_kafka_access.py decides what a client is given")
def test_the_mirror_comes_in_as_the_channel_does(tmp_path: Path) -> None:
    """With the same password and authority, by each client; with a wrong one it says so."""
    authority = CA(tmp_path)
    with secured(authority, session_ms=60_000) as cluster:
        set_password(cluster, USER, "right-s3cret")
        prepare_topic({"bootstrap.servers": cluster.bootstrap_servers}, "secured", create=True, partitions=1)

        def given(password: str) -> dict[str, str]:
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            return {
                "bootstrap.servers": cluster.servers_at("BOTH"),
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": f"{module} required username={quoted(USER)} password={quoted(password)};",
                "ssl.truststore.location": str(authority.pem),
            }

        for offset, client in ((7, "kafka-python"), (9, "confluent-kafka")):
            right = asked(client, given("right-s3cret"), "mirrored", offset)
            (wrong,) = asked(client, given("wr0ng-s3cret"), "mirrored", offset + 1).values()
            admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
            (found,) = admin.list_group_offsets({"mirrored": None})["mirrored"].values()
            admin.close()

            assert (right, found.offset) == ({}, offset)
            assert (
                wrong.kind,
                f"authentication failed for user {USER}" in wrong.said,
                "s3cret" in wrong.said,
            ) == (Kind.UNREACHABLE, True, False), (client, wrong.said)

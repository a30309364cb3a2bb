"""Links between replicas and their servers are cut, by taking a container off a network, and mended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from inbound.cli.main import main
from integration.docker.replicas import Replica, Replicas
from integration.docker.site import LINKS
from tests.waiting import until

MakeReplicas = Callable[..., Replicas]
#: The first one of a session makes the images. Seconds.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough(
        "makes images and networks, minutes; `make test` kills, stops and cuts off processes of this machine"
    ),
]


def cause(s: Replicas, replica: Replica, partition: int) -> str:
    """Return why a partition stands where it does, as the replica says when it is asked inside its container."""
    _, said = replica.inbound("explain", s.topic, str(partition), "-c", str(s.config), "--json")
    return str(json.loads(said)["cause"]) if said else ""


def test_a_replica_cut_from_zookeeper_is_replaced_and_comes_back(
    replicas: MakeReplicas, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others take its partitions, its late commits are refused, and its share is its own again when the link is mended."""
    s = replicas(session=6.0, seconds_per_record=0.01)
    victim, *others = s.start(3)
    s.wait_shared([victim, *others])
    s.start_load(per_second=20)
    until(lambda: s.seen(victim.name) and s.inside(victim.name), 90, "the victim is inside a batch")
    victim.cut("zookeeper")
    s.wait_shared(others)
    in_hand, handed = s.last_batches(victim.name), s.seen(victim.name)
    until(lambda: sum(s.seen().values()) > sum(handed.values()) + 100, 60, "the others go on")
    assert s.seen(victim.name) == handed, "it hands nothing out while it cannot know what is its own"
    victim.mend("zookeeper")
    s.wait_shared([victim, *others])
    s.settle(120)
    capsys.readouterr()
    code = main(["spark", "validate", "-c", str(s.outside), "--quick", "--json"])
    proof = json.loads(capsys.readouterr().out)
    unfenced = [f for one in proof["partitions"] for f in one["findings"] if f["kind"] != "repeated"]
    assert (s.account().lost, s.repeated_beyond(in_hand), code, unfenced) == ({}, {}, 0, []), (in_hand, victim.log())
    assert "nothing more of it is committed" in victim.log()


def test_a_replica_cut_from_kafka_keeps_its_partitions_and_says_why_they_stand(replicas: MakeReplicas) -> None:
    """Ownership is ZooKeeper's affair: nothing moves; it reads on where it was when the link is mended."""
    s = replicas(session=30.0)
    victim, *others = s.start(3)
    s.wait_shared([victim, *others])
    s.start_load(per_second=20)
    s.wait_read(90)
    until(lambda: all(s.seen(one.name) for one in s.running), 90, "all process")
    before = (s.owners(), s.claims())
    victim.cut("kafka")
    partition = min(s.owned()[victim.name])
    until(lambda: cause(s, victim, partition) == "broker-away", 90, lambda: f"explained: {cause(s, victim, partition)}")
    victim.mend("kafka")
    s.settle(120)
    assert ((s.owners(), s.claims()), s.account().clean) == (before, True), s.account()


def test_replicas_cut_from_everything_get_back_what_they_had(replicas: MakeReplicas) -> None:
    """All sessions expire; each replica finds its partitions again under the same claims, and nothing is repeated."""
    s = replicas(session=20.0, join_delay=30.0, seconds_per_record=0.005)  # all are cut before the first one's expires
    three = s.start(3)
    s.wait_shared(three)
    s.start_load(per_second=20)
    s.wait_read(90)
    until(lambda: all(s.seen(one.name) for one in three), 90, "all process")
    before = (s.owners(), s.claims())
    s.cut_all(*LINKS)
    until(lambda: not s.owners(), 90, "all sessions have expired")
    for one in three:
        one.mend(*LINKS)
    s.wait_shared(three)
    s.settle(120)
    assert ((s.owners(), s.claims()), s.account().clean) == (before, True), s.account()


def test_a_kafka_that_is_frozen_for_ten_seconds_moves_and_repeats_nothing(replicas: MakeReplicas) -> None:
    """`docker pause`: connections stay, nothing answers; afterwards all goes on."""
    s = replicas(session=30.0)
    three = s.start(3)
    s.wait_shared(three)
    s.start_load(per_second=20)
    s.wait_read(90)
    until(lambda: all(s.seen(one.name) for one in three), 90, "all process")
    before = (s.owners(), s.claims())
    s.site.servers["kafka"].pause()
    try:
        time.sleep(10)
    finally:
        s.site.servers["kafka"].unpause()
    handed = sum(s.seen().values())
    until(lambda: sum(s.seen().values()) > handed, 90, "consuming goes on")
    s.settle(120)
    assert ((s.owners(), s.claims()), s.account().clean) == (before, True), s.account()

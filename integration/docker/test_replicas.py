"""Three replicas in containers share a topic; they are killed, stopped and started again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.docker.replicas import Replicas
from tests.waiting import until

MakeReplicas = Callable[..., Replicas]
#: The first one of a session makes the images. Seconds.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough(
        "makes images and networks, minutes; `make test` kills, stops and cuts off processes of this machine"
    ),
]


def test_three_replicas_share_the_partitions_and_read_everything(replicas: MakeReplicas) -> None:
    """Each owns two of six partitions, and every record is delivered once; the image says that all is healthy."""
    s = replicas()
    three = s.start(3)
    s.wait_shared(three)
    s.publish(200)
    s.settle()
    seen_by = {one.name for one in three if s.seen(one.name)}
    assert (s.account().clean, seen_by) == (True, {one.name for one in three}), s.account()
    until(
        lambda: {one.health() for one in three} == {"healthy"},
        120,
        lambda: f"all healthy: {[r.health() for r in three]}",
    )
    assert "0" not in {one.user_id() for one in three}, "it runs as root"


def test_a_killed_replica_is_replaced_and_takes_its_share_when_it_is_started_again(replicas: MakeReplicas) -> None:
    """What it had in hand is read again, one batch of a partition at most."""
    s = replicas(session=4.0, seconds_per_record=0.01)
    victim, *others = s.start(3)
    s.wait_shared([victim, *others])
    s.start_load(per_second=20)
    until(lambda: s.seen(victim.name) and s.inside(victim.name), 90, "the victim is inside a batch")
    assert victim.kill() == 137
    in_hand = s.last_batches(victim.name)
    s.wait_shared(others)
    victim.start()
    s.wait_shared([victim, *others])
    s.settle(120)
    assert (s.account().lost, s.repeated_beyond(in_hand)) == ({}, {}), in_hand


def test_a_stopped_replica_ends_in_its_grace_and_releases_without_a_repeat(replicas: MakeReplicas) -> None:
    """The stop of the engine is a SIGTERM: batches end, commits land, partitions are released; no kill follows."""
    s = replicas(session=30.0, seconds_per_record=0.005)
    leaver, *others = s.start(3)
    s.wait_shared([leaver, *others])
    s.start_load(per_second=20)
    until(lambda: all(s.seen(one.name) for one in s.running), 90, "all process")
    code = leaver.stop()
    owned_at_once = s.owned()  # the session would have lasted another 30 s
    s.wait_shared(others)
    s.settle(120)
    assert (code, leaver.name in owned_at_once, s.account().clean) == (0, False, True), s.account()

"""A channel's offsets in a Kafka group, too: after they landed, at each claim, once a day; and never in a commit's way."""

from __future__ import annotations

import json
import logging
import threading
from itertools import pairwise

import pytest

from inbound.cli.inspect.status_text import shown
from inbound.clock import SystemClock
from inbound.config import Loaded, OffsetsConfig, load
from inbound.coordinators.nodes import encode_offset
from inbound.coordinators.ownership import Fence
from inbound.coordinators.zookeeper import SetData
from inbound.errors import ConfigError
from inbound.mirror.mirror import LAST, Mirror
from inbound.mirror.plan import ONCE_MORE
from inbound.observe.status.status import process_status
from inbound.partition.partition import Partition
from inbound.partition.position import Position
from inbound.plan.plan import plan_channels
from inbound.testing.clock import ManualClock
from inbound.testing.mirror import FakeMirrorClient
from inbound.testing.world import World
from inbound.topic_partition import TopicPartition
from tests.observe.status.made_status import NOW
from tests.observe.status.rich_status import rich_process
from tests.waiting import wait_for

MIRROR = {"mirror": "kafka", "group": "orders-kafka"}
GROUP = "orders-kafka"


def world_of(partitions: int, *consumers: str) -> World:
    """Return a world whose consumers mirror, at rest."""
    world = World()
    world.kafka.create_topic("orders", partitions)
    for name in consumers:
        world.join(name, offsets=MIRROR)
    world.run(10)
    return world


def kinds(world: World, name: str = "a") -> list[str]:
    """Return what the journal of a consumer's channel has of the mirror."""
    journal = world.consumers[name].channel.parts.journal
    return [event.kind for event in journal.of() if event.kind.startswith("mirror-")]


@pytest.mark.parametrize("mirror", ["kafka", "none"])
def test_commits_are_in_the_kafka_group_soon_after_they_landed(mirror: str) -> None:
    """The very offsets that ZooKeeper has, in the group of the channel's name unless set; without the setting nothing."""
    world = World()
    world.kafka.create_topic("orders", 2)
    world.kafka.publish("orders", 0, [b"1", b"2", b"3"])

    a = world.join("a", offsets={"mirror": mirror})
    world.run(10)

    assert world.commits() == {0: 3, 1: 0}
    if mirror == "kafka":
        assert world.groups.of("group") == world.commits()
    else:
        assert (world.groups.requests, a.channel.status().mirror) == ([], None)


def test_each_replica_sends_what_it_holds() -> None:
    """Together they are the whole group."""
    world = world_of(4, "a", "b")
    for partition in range(4):
        world.kafka.publish("orders", partition, [b"x"] * (partition + 1))

    world.run(3)

    mirrored = [world.consumers[name].channel.status().mirror for name in "ab"]
    assert world.groups.of(GROUP) == world.commits() == {0: 1, 1: 2, 2: 3, 3: 4}
    assert [mirror and (mirror.state, mirror.waiting) for mirror in mirrored] == [("mirroring", 0)] * 2


def test_a_claim_sends_what_it_read() -> None:
    """The commit of a killed owner that had not sent it, and an offset that a reset has set back since."""
    world = world_of(1, "a")
    world.kafka.publish("orders", 0, [b"x"] * 5)
    world.run(3)
    world.groups.is_up = False
    world.kafka.publish("orders", 0, [b"x"] * 5)
    world.run(2)
    before = world.groups.of(GROUP), world.commits()
    world.kill("a")
    world.ensemble.tree.transaction([SetData(world.paths.offset("orders", 0), encode_offset(4))], 0)
    world.groups.is_up = True
    world.groups.requests.clear()

    world.join("b", offsets=MIRROR)
    world.run_until(lambda: bool(world.groups.requests), within=30)

    assert (before, world.groups.requests[0][2]) == (({0: 5}, {0: 10}), {TopicPartition("orders", 0): 4})


def test_what_a_late_request_set_back_is_set_right_again() -> None:
    """One of the owner before may arrive after ours: all is sent once more, when none can come any more."""
    world = world_of(1, "a")
    world.kafka.publish("orders", 0, [b"x"] * 9)
    world.run(3)
    world.groups.write(GROUP, {TopicPartition("orders", 0): 2})

    world.run(ONCE_MORE)

    assert world.groups.of(GROUP) == {0: 9}


def test_a_mirror_that_hangs_is_in_no_commits_way() -> None:
    """A coordinator that never answers: commits land as fast as ever, and nothing piles up but the newest offsets."""
    worlds = [world_of(2, "a") for _ in range(2)]
    worlds[1].groups.hangs = True
    landed = []
    for world in worlds:
        for _ in range(20):
            world.kafka.publish("orders", 0, [b"x"])
            world.run(0.5)
        landed.append((world.commits(), world.consumers["a"].channel.status().commits_total))
    mirror = worlds[1].consumers["a"].channel.status().mirror

    assert landed[0] == landed[1] == ({0: 20, 1: 0}, landed[0][1])
    assert mirror is not None
    assert (mirror.state, mirror.waiting, mirror.failures["unreachable"] > 0) == ("failing", 1, True)


def test_a_coordinator_that_loads_is_not_worth_a_word_unless_it_lasts() -> None:
    """As it does for a second or two when a broker comes up; it counts, and `status` says so at once."""
    world = world_of(1, "a")
    world.groups.loading = True
    world.kafka.publish("orders", 0, [b"x"])
    world.run(4)
    briefly = kinds(world), world.consumers["a"].channel.status().mirror
    world.run(10)
    lasting = kinds(world)
    world.groups.loading = False
    world.run(10)

    assert briefly[1] is not None
    assert (briefly[0], briefly[1].state, briefly[1].failures["coordinator"]) == ([], "failing", 3)
    assert (lasting, kinds(world)) == (["mirror-waits"], ["mirror-waits", "mirror-over"])
    assert world.groups.of(GROUP) == {0: 1}


def test_a_live_group_is_left_alone_and_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again now and then, without a word in the log; when its members are gone the mirror goes on."""
    monkeypatch.setattr("inbound.mirror.plan.LIVE_GROUP_AGAIN", 10.0)
    world = World()
    world.kafka.create_topic("orders", 1)
    world.groups.live.add(GROUP)
    a = world.join("a", offsets=MIRROR)
    with caplog.at_level(logging.INFO, "inbound.partition.journal"):
        for _ in range(3):
            world.kafka.publish("orders", 0, [b"x"])
            world.run(10)
    refused = a.channel.status().mirror
    times = [at for at, _, _ in world.groups.requests]
    world.groups.live.clear()
    world.run(10)

    assert refused is not None
    assert (refused.state, refused.waiting, world.commits()) == ("refused", 1, {0: 3})
    assert len(times) == 3
    assert all(later - sooner >= 10 for sooner, later in pairwise(times))
    assert len([one for one in caplog.messages if "it has members of its own" in one]) == 1
    assert (world.groups.of(GROUP), kinds(world)) == ({0: 3}, ["mirror-refused", "mirror-over"])


def test_a_topic_that_may_not_be_read_is_logged_with_what_to_do() -> None:
    """Other topics of the channel go on."""
    world = World()
    for topic in ("orders", "secret"):
        world.kafka.create_topic(topic, 1)
        world.kafka.publish(topic, 0, [b"x"])
    world.groups.denied.add("secret")
    a = world.join("a", topics=["orders", "secret"], offsets=MIRROR)
    world.run(10)
    world.kafka.publish("orders", 0, [b"x"])
    world.run(3)

    event = a.channel.parts.journal.last(None, "mirror-waits")
    assert world.groups.offsets[GROUP] == {TopicPartition("orders", 0): 2}
    assert event is not None
    assert event.text == (
        "offsets do not go to Kafka group orders-kafka: TopicAuthorizationFailed; allow this user to READ the group and its "
        "topics; commits go on, and it is tried again"
    )


def test_the_last_commits_are_sent_when_it_stops() -> None:
    """Also those of the last moment, when there is nobody else to send them; and the client is closed."""
    world = world_of(1, "a")
    world.kafka.publish("orders", 0, [b"x"] * 7)
    world.run_until(lambda: world.commits() == {0: 7}, within=5)

    world.leave("a")

    assert (world.groups.of(GROUP), world.groups.open_clients) == ({0: 7}, 0)


def test_a_mirror_that_hangs_keeps_nobody_from_stopping() -> None:
    """Partitions are released before it is waited for, and that for two seconds at most; the log says what is missing."""
    world = world_of(1, "a")
    world.groups.hangs = True
    world.kafka.publish("orders", 0, [b"x"] * 7)
    world.run_until(lambda: world.commits() == {0: 7}, within=5)
    began = world.clock.now()

    world.leave("a")

    assert world.clock.now() - began <= LAST + 1.0
    assert (world.owned(), kinds(world)) == ({}, ["mirror-waits", "mirror-behind"])


def test_a_mirror_is_turned_on_and_off_while_the_channel_runs() -> None:
    """And to another group: what is held goes there at once, although nothing new has landed."""
    world = world_of(1, "a")
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(5)
    channel = world.consumers["a"].channel

    seen = []
    for offsets in (OffsetsConfig(mirror="kafka", group="other"), OffsetsConfig(), OffsetsConfig(mirror="kafka")):
        channel.configure(channel.parts.settings.now.model_copy(update={"offsets": offsets}))
        world.kafka.publish("orders", 0, [b"x"])
        world.run(3)
        seen.append({group: of[TopicPartition("orders", 0)] for group, of in sorted(world.groups.offsets.items())})

    assert seen == [{GROUP: 3, "other": 4}, {GROUP: 3, "other": 4}, {GROUP: 3, "group": 6, "other": 4}]
    assert world.groups.open_clients == 1


def test_a_stopped_process_that_goes_on_sets_nothing_back() -> None:
    """What it had not sent when it was frozen is another's by now: it is forgotten."""
    world = world_of(1, "a")
    world.groups.is_up = False
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(1.5)
    world.pause("a")
    world.groups.is_up = True
    world.join("b", offsets=MIRROR)
    world.run(20)
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(5)
    world.groups.requests.clear()

    world.resume("a")
    world.run(3)

    assert world.groups.of(GROUP) == {0: 6}
    assert [offsets for _, _, offsets in world.groups.requests if 3 in offsets.values()] == []


@pytest.mark.parametrize("leaves", [False, True])
def test_a_process_that_was_stopped_for_just_longer_than_its_session_sets_nothing_back(leaves: bool) -> None:
    """What it had not sent is not older than what a release would still send, but it is another's by now; also if it leaves."""
    world = World(session_timeout=4.0)
    world.kafka.create_topic("orders", 1)
    for name in "ab":
        world.join(name, offsets=MIRROR)
    world.run(10)
    (owner,) = (name for name, owned in world.owned().items() if owned)
    world.groups.is_up = False
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run_until(lambda: world.commits() == {0: 3}, within=1)
    world.pause(owner)
    world.groups.is_up = True
    world.run(4.5)
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(2)
    world.groups.requests.clear()

    world.resume(owner)
    if leaves:
        world.leave(owner)
    world.run(3)

    assert world.groups.of(GROUP) == world.commits() == {0: 6}
    assert [offsets for _, _, offsets in world.groups.requests if 3 in offsets.values()] == []


def test_a_broker_that_is_connected_to_forever_holds_up_neither_commits_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connecting is what the mirror's own thread waits for; it is left behind, and closes what it gets at last."""
    monkeypatch.setattr("inbound.mirror.mirror.LAST", 0.05)
    world = world_of(1, "a")
    parts = world.consumers["a"].channel.parts
    connecting, connected = threading.Event(), threading.Event()

    def connect(group: str) -> FakeMirrorClient:
        connecting.set()
        connected.wait(30)
        return world.groups.connect(group)

    before = world.groups.open_clients
    mirror = Mirror(
        parts.settings.now, name=parts.name, clock=SystemClock(), zk=parts.zk, schedule=parts.schedule,
        journal=parts.journal, connect=connect,
    )  # fmt: skip
    mirror.start()
    (partition,) = parts.schedule.held()
    mirror.landed(partition, 5)
    wait_for(connecting, 30, "the mirror does not connect")
    mirror.landed(partition, 6)
    mirror.close()
    (driver,) = mirror.drivers
    left_behind = driver.thread.is_alive()
    connected.set()
    driver.thread.join(30)

    assert (left_behind, driver.thread.is_alive(), world.groups.open_clients) == (True, False, before)
    assert kinds(world) == ["mirror-behind"]


def test_an_earlier_claim_that_is_released_late_leaves_the_offset_of_the_later_one() -> None:
    """A reset gives a partition up, its release hangs, and the member claims the partition once more."""
    world = world_of(1, "a")
    parts = world.consumers["a"].channel.parts
    clock = ManualClock()
    mirror = Mirror(
        parts.settings.now, name=parts.name, clock=clock, zk=parts.zk, schedule=parts.schedule, journal=parts.journal,
        connect=world.groups.connect,
    )  # fmt: skip
    (later,) = parts.schedule.held()
    earlier = Partition(later.tp, Fence(0, 0), Position(5))
    mirror.landed(earlier, 5)
    mirror.landed(later, 9)

    mirror.forget(earlier)
    kept = mirror.status()
    mirror.forget(later)
    forgotten = mirror.status()

    assert kept is not None
    assert forgotten is not None
    assert (kept.waiting, forgotten.waiting) == (1, 0)


def test_any_exception_of_a_client_is_a_failure_like_others() -> None:
    """It is logged once, counted, and tried again ever more slowly."""
    world = world_of(1, "a")
    channel = world.consumers["a"].channel

    def connect(group: str) -> FakeMirrorClient:
        raise RuntimeError("the selector is closed")

    channel.parts.mirror.reconnect(connect)
    world.kafka.publish("orders", 0, [b"x"])
    world.run(10)
    mirror = channel.status().mirror

    assert mirror is not None
    assert (mirror.state, mirror.problem) == ("failing", "RuntimeError: the selector is closed")
    assert (mirror.failures["other"], kinds(world), world.commits()) == (4, ["mirror-waits"], {0: 1})


def test_other_ways_to_the_brokers_are_taken_at_once() -> None:
    """Where the old one failed, it is not waited for the next try."""
    world = world_of(1, "a")
    world.groups.is_up = False
    world.kafka.publish("orders", 0, [b"x"])
    world.run(40)
    world.groups.is_up = True

    world.consumers["a"].channel.parts.mirror.reconnect(world.groups.connect)
    world.run(1.5)

    assert (world.groups.of(GROUP), world.groups.open_clients) == ({0: 1}, 1)


def test_status_shows_it_and_survives_the_way_from_another_process() -> None:
    """A line for each channel that mirrors; the same from JSON."""
    told = process_status(json.loads(json.dumps(rich_process().as_dict())))

    assert told.channels[0].mirror == rich_process().channels[0].mirror
    assert (
        "Mirror: failing, Kafka group orders-kafka, 30 offsets (1 waiting): no answer"
        in shown([told], NOW).splitlines()
    )


# -- the configuration -------------------------------------------------------------------------------------------------


def loaded(*channels: str) -> Loaded:
    """Return a configuration with these channels."""
    return load("channels:\n" + "".join(f"  {channel}\n" for channel in channels), filename="inbound.yaml")


CHANNEL = "{{topics: [{topics}], group: {group}, processor: {{type: simple, options: {{sinks: [log]}}}}, offsets: {{{offsets}}}}}"


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        ("mirror: zookeeper", "channels.a.offsets.mirror"),
        ("group: x", "channels.a.offsets.group: is used only with mirror: kafka, but mirror is none"),
        ("mirror: kafka, group: ' '", "channels.a.offsets.group: need the name of a Kafka group"),
        ("mirror: kafka, every: 1s", "channels.a.offsets.every"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(offsets: str, told: str) -> None:
    """With its place."""
    with pytest.raises(ConfigError) as refused:
        loaded("a: " + CHANNEL.format(topics="orders", group="a", offsets=offsets))

    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("topics", "group", "offsets", "refused"),
    [
        ("orders", "b", "mirror: kafka, group: shared", True),
        ("orders", "shared", "mirror: kafka", True),  # by its own name
        ("orders", "a", "mirror: kafka, group: shared", False),  # the same group: they share partitions and offsets
        ("other", "b", "mirror: kafka, group: shared", False),
        ("orders", "b", "mirror: kafka", False),
    ],
)
def test_two_groups_do_not_overwrite_each_other(topics: str, group: str, offsets: str, refused: bool) -> None:
    """Of the same topic only one group's offsets can stand in a Kafka group."""
    found = loaded(
        "a: " + CHANNEL.format(topics="orders", group="a", offsets="mirror: kafka, group: shared"),
        "b: " + CHANNEL.format(topics=topics, group=group, offsets=offsets),
    )
    try:
        plan_channels(found)
        told = ""
    except ConfigError as error:
        told = str(error)

    assert ("would both write the offsets of Kafka group shared" in told) is refused

"""Knative's ResetOffset manifests: how they are read, which resets they are, and what becomes of them while a process runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from inbound.config import Manifests, ResetManifest, parse_manifests, parse_time
from inbound.controller.reset_offset import (
    ControllerFactory,
    Ref,
    RefInfo,
    ResetCommand,
    ResetController,
    ResetSpec,
    To,
    listing,
)
from inbound.coordinators.tasks import Tasks
from inbound.errors import ConfigError, UnknownRefError
from inbound.observe.status.status import ManifestStatus
from inbound.plan.resets import command_of
from inbound.process.resets import ManifestResets
from inbound.testing.topic_logs import FakeTopicLogs
from inbound.testing.world import GROUP
from tests.group.paused_group import Group

RESET = """\
apiVersion: kafka.eventing.knative.dev/v1alpha1
kind: ResetOffset
metadata:
  name: rewind
  namespace: shop
spec:
  offset: {time: earliest}
  ref:
    apiVersion: messaging.knative.dev/v1
    kind: Subscription
    namespace: shop
    name: billing
"""
CHANNEL = """\
---
apiVersion: messaging.knative.dev/v1
kind: KafkaChannel
metadata: {name: orders, namespace: shop}
spec: {subscribers: [{uid: a-1, subscriberUri: "http://search"}]}
"""


class Mapper:
    """Knows two subscriptions, of the group that the fake world has, and of one that it has not."""

    def map(self, ref: Ref) -> RefInfo:
        if ref.name not in ("billing", "missing"):
            raise UnknownRefError(f"{ref}: no such thing; there is: billing")
        return RefInfo(topic="orders", group=GROUP if ref.name == "billing" else "absent")


def read(text: str) -> Manifests:
    return parse_manifests({"folder/reset.yaml": text})


def one(text: str) -> ResetManifest:
    """Return the only reset of a file."""
    (found,) = read(text).resets
    return found


def command(text: str) -> ResetCommand:
    """Return the reset that a manifest is."""
    return command_of(one(text), Mapper(), created=5.0, by="a test")


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_manifest_is_a_reset_with_topic_and_group() -> None:
    """As eventing-kafka has it."""
    found = command(RESET)

    assert (found.ref, found.info, found.spec, found.once) == (
        Ref(kind="Subscription", name="billing", namespace="shop", api_version="messaging.knative.dev/v1"),
        RefInfo(topic="orders", group=GROUP),
        ResetSpec(to=To.EARLIEST),
        True,
    )


@pytest.mark.parametrize(
    ("time", "spec"),
    [
        ("latest", ResetSpec(to=To.LATEST)),
        ("2026-01-31T02:40:00Z", ResetSpec(to=To.TIME, time=1769827200.0)),
        ('"2026-01-31T03:40:00.250+01:00"', ResetSpec(to=To.TIME, time=1769827200.25)),
    ],
)
def test_every_time_that_knative_has(time: str, spec: ResetSpec) -> None:
    """With quotes or without."""
    assert command(RESET.replace("earliest", time)).spec == spec


def test_a_namespace_that_is_not_given_is_the_manifests_own() -> None:
    """For Kubernetes' objects; the configuration's channels have none."""
    without = RESET.replace("    namespace: shop\n    name: billing", "    name: billing")
    own = without.replace("    apiVersion: messaging.knative.dev/v1\n", "")

    assert (command(without).ref.namespace, command(own).ref.namespace) == ("shop", None)


def test_the_same_manifest_is_the_same_reset_and_another_one_is_another() -> None:
    """For every reader, at any time; a new generation or uid is another reset."""
    texts = [
        RESET,
        RESET,
        RESET.replace("earliest", "latest"),
        RESET.replace("  name: rewind", "  name: rewind\n  generation: 2"),
        RESET.replace("  name: rewind", "  name: rewind\n  uid: u-2"),
        RESET.replace("rewind", "again"),
    ]
    names = [command(text).name for text in texts]
    assert names[0] == names[1]
    assert len(set(names)) == 5
    assert names[0].startswith("shop.rewind.")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            RESET.replace("earliest", "yesterday"),
            "folder/reset.yaml:7: spec.offset.time: need a time with its offset from UTC, such as 2026-01-31T02:40:00Z, got "
            "'yesterday'; or earliest or latest",
        ),
        (
            RESET.replace("earliest", "2026-01-31T02:40:00"),
            "folder/reset.yaml:7: spec.offset.time: need a time with its offset from UTC, such as 2026-01-31T02:40:00Z, got "
            "'2026-01-31T02:40:00'; or earliest or latest",
        ),
        (RESET.replace("v1alpha1", "v2"), "folder/reset.yaml:1: apiVersion: "),
        (RESET.replace("    name: billing", "    nmae: billing"), "folder/reset.yaml:12: spec.ref.nmae: unknown key"),
        (RESET.replace("  offset: {time: earliest}\n", ""), "spec.offset: missing"),
    ],
)
def test_one_that_is_wrong_says_so_and_keeps_nothing_else_from_working(text: str, problem: str) -> None:
    """It is no part of the configuration: channels in the same file are read."""
    found = read(text + CHANNEL)

    (reset,) = found.resets
    assert (reset.name, reset.reset, len(found.channels)) == ("shop/rewind", None, 1)
    assert problem in str(reset.problem)
    with pytest.raises(ConfigError):
        command_of(reset, Mapper(), created=0.0, by="")


def test_of_two_with_one_name_the_second_does_nothing() -> None:
    """Which one is meant is unknown; the first may be in progress."""
    first, second = read(f"{RESET}---\n{RESET}").resets
    assert (first.problem, second.problem) == (
        None,
        "folder/reset.yaml:17: metadata.name: ResetOffset shop/rewind is given twice, also in folder/reset.yaml:4; keep one",
    )


def test_one_that_is_being_deleted_is_none() -> None:
    """As kubectl prints it while finalizers run."""
    assert (
        read(RESET.replace("  name: rewind", "  name: rewind\n  deletionTimestamp: 2026-01-31T02:40:00Z")).resets == ()
    )


def test_a_subscription_without_a_uid_is_left_out_with_a_note() -> None:
    """The cluster gives it one; before, resets that name it will say that there is none."""
    text = "apiVersion: messaging.knative.dev/v1\nkind: Subscription\nmetadata: {name: x}\nspec: {channel: {kind: K, name: n}}\n"

    found = read(text)

    assert (found.subscriptions, found.refused) == ((), ())
    assert found.notes == (
        "folder/reset.yaml:3: metadata.uid: the cluster has not given it one yet, so no reset can name it; this Subscription "
        "is ignored",
    )


def test_a_subscription_that_is_wrong_stops_itself() -> None:
    """It is named, and all else goes on."""
    text = "apiVersion: messaging.knative.dev/v1\nkind: Subscription\nmetadata: {name: x, uid: u}\nspec: {channel: 3}\n"

    found = read(text + CHANNEL)

    assert (found.subscriptions, len(found.channels)) == ((), 1)
    assert [(one.subject, one.problem) for one in found.refused] == [
        ("Subscription default/x", "folder/reset.yaml:4: spec.channel: need a mapping, got 3")
    ]


@pytest.mark.parametrize(
    "text", ["2026-13-01T00:00:00Z", "2026-01-31", "20260131T000000Z", "noon", "2026-02-30T00:00:00Z"]
)
def test_what_is_no_rfc_3339_is_no_time(text: str) -> None:
    """Also what Python would take."""
    with pytest.raises(ValueError, match="need a time with its offset from UTC"):
        parse_time(text)


# -- while a process runs ----------------------------------------------------------------------------------------------


class Process:
    """What a process has beside its channels: it follows manifests and carries resets out."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        zk = group.world.ensemble.client(name, 10.0)
        self.tasks = Tasks(group.world.clock, lambda: None)
        self.manifests = ManifestResets(Mapper(), name)
        logs = FakeTopicLogs(group.world.kafka)
        self.controller: ResetController = ControllerFactory(mapper=Mapper(), logs=logs)(zk, self.tasks)
        zk.on_change = self.controller.look
        self.tasks.spawn(self.controller.run(), "resets")
        self.tasks.spawn(self.manifests.follow(zk), "manifests")

    def states(self) -> list[str]:
        return [one.state for one in self.manifests.status()]


class Processes:
    """Two of them, beside the consumers of a group that has read everything."""

    def __init__(self) -> None:
        self.group = Group()
        self.group.publish(5)
        self.all = [Process(self.group, name) for name in ("p", "q")]
        self.run(5)

    def run(self, seconds: float) -> None:
        """Let time pass for everybody."""

        def step() -> bool:
            for process in self.all:
                process.tasks.step()
            return False

        self.group.world.run_until(step, within=seconds, complain=False)

    def learn(self, text: str) -> None:
        """Let both read the manifests, one after the other."""
        for process in self.all:
            process.manifests.learn(read(text).resets)
            self.run(0.5)

    def commands(self) -> list[ResetCommand]:
        return self.group.operator(listing(self.group.zk))

    def status(self) -> ManifestStatus:
        """Return what the first process says of its only manifest."""
        (found,) = self.all[0].manifests.status()
        return found


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    for process in made.all:
        process.tasks.close()


def test_one_that_has_succeeded_never_runs_again_and_an_edited_one_does(processes: Processes) -> None:
    """All processes read it, one carries it out. Also when it is taken away and put back, and when a process starts later."""
    processes.learn(RESET)
    processes.run(10)
    processes.learn("")
    processes.all.append(Process(processes.group, "r"))
    processes.learn(RESET)
    processes.run(10)
    assert ([process.states() for process in processes.all], len(processes.commands())) == ([["succeeded"]] * 3, 1)

    processes.learn(RESET.replace("earliest", "latest"))
    processes.run(10)

    assert ([process.states() for process in processes.all], len(processes.commands())) == ([["succeeded"]] * 3, 2)
    assert processes.group.seen() == sorted([(p, offset) for p in range(4) for offset in range(5)] * 2)


def test_a_bad_reset_is_in_the_status_and_does_nothing(processes: Processes) -> None:
    """Neither form nor reference."""
    processes.learn(RESET.replace("earliest", "noon"))
    processes.run(3)
    assert "reset.yaml:7: spec.offset.time" in str(processes.status().problem)

    processes.learn(RESET.replace("billing", "biling"))
    processes.run(3)
    assert (
        processes.status().problem == "folder/reset.yaml:4: Subscription shop/biling: no such thing; there is: billing"
    )
    assert processes.commands() == []


def test_one_that_cannot_be_done_is_refused_and_says_why(processes: Processes) -> None:
    """The group of that subscription never was."""
    processes.learn(RESET.replace("billing", "missing"))
    processes.run(5)

    told = processes.status()
    assert (told.state, told.finished, "group absent: there is none" in told.message) == ("refused", True, True)


def test_it_is_submitted_when_zookeeper_is_back(processes: Processes) -> None:
    """It was away when the manifest came."""
    processes.group.world.ensemble.down()
    processes.learn(RESET)
    processes.run(3)
    assert [process.states() for process in processes.all] == [[], []]

    processes.group.world.ensemble.up()
    processes.run(30)

    assert [process.states() for process in processes.all] == [["succeeded"], ["succeeded"]]

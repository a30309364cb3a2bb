"""Subscriptions that come, change and go while two processes dispatch under load; and their status."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from kazoo.exceptions import NoNodeError

from inbound.admin.client import fetch_status
from inbound.embedded import EmbeddedCluster
from integration.kubernetes.mounted import mount
from integration.processors.dispatch.dispatching import Dispatching, by_partition, metrics, partition_of, repeats
from integration.processors.sink import HANG, Sink, status
from tests.waiting import until


class Subscribed(Dispatching):
    """The same as `Dispatching`, with the subscriptions under one channel, and manifests beside the file."""

    manifests: bool = False

    def _sections(self) -> dict[str, Any]:
        # Not compacted: the library that writes Parquet keeps threads of its own from its first use on.
        body: dict[str, Any] = {"ledger": {"path": str(self.folder / "ledger"), "compact": False}}
        if self.subscriptions:
            options = {name: {"ordering": "key", **given} for name, given in self.subscriptions.items()}
            posted = {"topics": [self.topic], "group": self.group, "reader": {"client": self.client}}
            body["channels"] = {"posted": {**posted, "subscriptions": options}}
        if self.manifests:
            body["manifests"] = {"paths": ["manifests"], "topic": self.topic, "options": {"ordering": "key"}}
        return body

    def group_of(self, name: str) -> str:
        """Return the group of a subscription, or of a manifest's subscriber."""
        return f"kafka.{name}" if self.manifests else f"{self.group}.{name}"

    def begin(self, name: str, members: int = 2) -> list[subprocess.Popen[bytes]]:
        """Start the processes, and the load when they own all partitions of this subscription."""
        started = [self.start() for _ in range(members)]
        until(lambda: self.shared(name) == members, 60, lambda: f"{members} share it: {self.log(started[0])[-3000:]}")
        self.start_load(50)
        return started

    def shared(self, name: str) -> int:
        """Return among how many members all partitions are shared; 0 while some have no owner, or one has too many.

        Who came first, as the other was still starting, gives the partitions up one by one: in between all can have owners,
        two of them, and the claims that are noted then are not the last ones.
        """
        path = f"/consumers/{self.group_of(name)}/owners/{self.topic}"
        try:
            owners = [self.zk.get(f"{path}/{partition}")[0] for partition in range(self.partitions)]
        except NoNodeError:
            return 0  # not made yet, or one is moving just now
        shares = Counter(owners).values()
        return len(shares) if max(shares) - min(shares) <= 1 else 0

    def claimed(self, name: str) -> list[str]:
        """Return the nonce of each partition's last claim: a commit can move the epoch on, only a claim changes this."""
        path = f"/consumers/{self.group_of(name)}/epochs/{self.topic}"
        return [json.loads(self.zk.get(f"{path}/{partition}")[0])["nonce"] for partition in range(self.partitions)]

    def members(self, name: str) -> list[str]:
        """Return who is in the group of a subscription."""
        path = f"/consumers/{self.group_of(name)}/ids"
        return list(self.zk.get_children(path)) if self.zk.exists(path) else []

    def said(self, name: str) -> dict[str, Any]:
        """Return what stands in the node of a subscription's status."""
        path = f"/consumers/{self.group_of(name)}/subscriber"
        return dict(json.loads(self.zk.get(path)[0])) if self.zk.exists(path) else {}

    def refused(self, process: subprocess.Popen[bytes]) -> dict[str, list[str]]:
        """Return the problems of manifests that a process cannot use, each with the channels that go on nevertheless."""
        found = fetch_status(self.admin_url(process), 30)["refused_manifests"]
        return {one["problem"]: one["kept"] for one in found}


@pytest.fixture
def subscribed(embedded_cluster: EmbeddedCluster, tmp_path: Path, client: str) -> Iterator[Callable[..., Subscribed]]:
    """Make scenes of four partitions, with sessions that outlive any delay of the machine; end what they started."""
    scenes: list[Subscribed] = []

    def make(*, manifests: bool = False, session: float = 15.0, **subscriptions: dict[str, Any]) -> Subscribed:
        folder = tmp_path / f"scene-{len(scenes)}-{tmp_path.name[-20:]}"
        folder.mkdir()
        one = Subscribed(embedded_cluster, folder, partitions=4, client=client, session=session)
        scenes.append(one)
        one.manifests, one.subscriptions = manifests, subscriptions
        one.write_config()
        return one

    yield make
    for one in scenes:
        one.close()


def account(scene: Subscribed, taken: list[str]) -> tuple[set[str], dict[str, int]]:
    """Return what was lost and what was repeated."""
    return scene.lost(taken), repeats(taken)


def test_a_subscriber_is_added_edited_and_removed_while_another_goes_on(
    subscribed: Callable[..., Subscribed], sink: Sink
) -> None:
    """Each change counts; nothing is lost, nothing repeated, and the other one notices nothing."""
    scene = subscribed(first={"subscriberUri": f"{sink.url}/first"})
    both = scene.begin("first")
    # An owner node stands before its owner knows; a claim whose answer is lost is made once more.
    until(lambda: len(chains(scene, sink, "/first")) == 4 * 5, 60, "every partition is read")
    claims = scene.claimed("first")

    scene.subscriptions["second"] = {"subscriberUri": f"{sink.url}/second"}
    scene.write_config()
    until(lambda: sink.sent("/second"), 60, "the second one is served")
    until(lambda: scene.shared("second") == 2, 60, "both processes serve it")
    shared = len(sink.sent("/second"))  # those before may be of one process alone
    until(lambda: len(chains(scene, sink, "/second", shared)) == 4 * 5, 60, "every partition is read")
    claims_of_second = scene.claimed("second")

    scene.subscriptions["second"] = {"subscriberUri": f"{sink.url}/edited"}
    scene.write_config()
    until(lambda: sink.sent("/edited"), 60, "events go where the edit says")
    edited = "posted.second: goes on with other settings"
    until(lambda: all(edited in scene.log(process) for process in both), 60, "both processes have taken the edit")
    # An event goes when the one before it with its key has been answered: who gets the next one gets all that follow.
    until(lambda: len(chains(scene, sink, "/edited")) == 4 * 5, 60, "the events of all keys go where the edit says")
    quiet = len(sink.sent("/second"))
    assert scene.claimed("second") == claims_of_second  # the partitions stayed where they were

    del scene.subscriptions["second"]
    scene.write_config()
    until(lambda: not scene.members("second"), 60, "the second one is not served")
    at_removal, first = len(sink.sent("/edited")), len(sink.sent("/first"))
    until(lambda: len(sink.sent("/first")) > first + 100, 60, "the other one goes on")
    assert (len(sink.sent("/second")), len(sink.sent("/edited"))) == (quiet, at_removal)

    scene.subscriptions["second"] = {"subscriberUri": f"{sink.url}/again"}
    scene.write_config()
    until(lambda: sink.sent("/again"), 60, "it is served again")
    scene.drained("second")
    scene.drained("first")

    second = [*sink.taken("/second"), *sink.taken("/edited"), *sink.taken("/again")]
    assert (account(scene, sink.taken("/first")), account(scene, second)) == ((set(), {}), (set(), {}))
    assert scene.claimed("first") == claims


def chains(scene: Subscribed, sink: Sink, path: str, since: int = 0) -> set[tuple[int, bytes | None]]:
    """Return partition and key of the events that were sent there, but for the first ones."""
    return {(partition_of(id), scene.events[id].key) for request in sink.sent(path)[since:] for id in request.ids}


def threads(process: subprocess.Popen[bytes]) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


@pytest.mark.thorough("who leaves, and its leftovers, are decided by the fast tests of running channels")
def test_a_subscriber_that_hangs_can_be_removed_and_leaves_nothing_behind(
    subscribed: Callable[..., Subscribed], sink: Sink
) -> None:
    """Nothing new is sent to it from then on; what is under way is waited for, then threads and nodes are gone."""
    scene = subscribed(first={"subscriberUri": f"{sink.url}/first"})
    (process,) = scene.begin("first", members=1)
    until(lambda: len(by_partition(sink.taken("/first"))) == 4, 30, "the first one is served from all partitions")
    before = threads(process)
    sink.tell(HANG, path="/second")
    scene.subscriptions["second"] = {"subscriberUri": f"{sink.url}/second", "delivery": {"timeout": "15s"}}
    scene.write_config()
    until(lambda: sink.sent("/second"), 60, "it is sent events")
    # One request is under way for each key of each partition: none is just being sent when the subscriber goes. That is
    # long before the first of them is given up after its 15 s, and sent again.
    until(lambda: len(sink.sent("/second")) >= 4 * 5, 15, lambda: f"all hang: {len(sink.sent('/second'))}")
    scene.subscriptions["third"] = {"subscriberUri": f"{sink.url}/third"}
    del scene.subscriptions["second"]
    scene.write_config()

    until(lambda: sink.sent("/third"), 60, "another one, added with the same change, does not wait for it")
    until(lambda: "posted.second: removed" in scene.log(process), 60, "it is being removed")
    sent = len(sink.sent("/second"))
    until(lambda: "posted.second: closed" in scene.log(process), 60, "it has left")
    del scene.subscriptions["third"]
    scene.write_config()
    until(lambda: "posted.third: closed" in scene.log(process), 60, "so has the other")

    until(lambda: threads(process) <= before, 30, lambda: f"its threads are gone: {threads(process)} of {before}")
    assert (len(sink.sent("/second")), scene.members("second")) == (sent, [])
    scene.drained("first")
    assert account(scene, sink.taken("/first")) == (set(), {})
    assert scene.committed("second") == dict.fromkeys(range(4), 0)


def channel(name: str, *subscribers: dict[str, Any]) -> str:
    """Return a manifest, as `kubectl get -o yaml` prints it."""
    return yaml.safe_dump(
        {
            "apiVersion": "messaging.knative.dev/v1beta1",
            "kind": "KafkaChannel",
            "metadata": {"name": name, "namespace": "shop", "resourceVersion": "4711", "uid": "abc"},
            "spec": {"numPartitions": 4, "subscribers": list(subscribers)},
            "status": {"observedGeneration": 1},
        }
    )


@pytest.mark.thorough(
    "in `make test` eventing-kafka's pair is served from a manifest, and an ingress follows a mounted folder"
)
def test_the_subscribers_of_a_mounted_folder_of_manifests_come_and_go(
    subscribed: Callable[..., Subscribed], sink: Sink
) -> None:
    """A new version counts; one that cannot be used changes nothing of it, and status says why."""
    uid, other_uid = str(uuid4()), str(uuid4())  # members of the test before may still have a session
    scene = subscribed(manifests=True)
    manifests = scene.folder / "manifests"
    one = {"uid": uid, "generation": 1, "subscriberUri": f"{sink.url}/one"}
    mount(manifests, {"orders.yaml": channel("orders", one)})
    process, _ = scene.begin(uid)

    other = {"uid": other_uid, "generation": 1, "subscriberUri": f"{sink.url}/other"}
    mount(manifests, {"orders.yaml": channel("orders", one, other)})
    until(lambda: sink.sent("/other"), 60, "the subscriber that was added is served")

    mount(manifests, {"orders.yaml": channel("orders", one, {**other, "subscriberUrl": "x"})})
    unknown = "spec.subscribers[1].subscriberUrl: unknown key; did you mean subscriberUri?"
    until(lambda: unknown in str(scene.refused(process)), 30, lambda: f"the refusal: {scene.refused(process)}")
    assert "orders.yaml:" in str(scene.refused(process))
    before = len(sink.sent("/other"))
    until(lambda: len(sink.sent("/other")) > before, 30, "what was known before goes on")

    mount(
        manifests,
        {"orders.yaml": channel("orders", one, {**other, "generation": 2, "subscriberUri": f"{sink.url}/edited"})},
    )
    until(lambda: sink.sent("/edited"), 60, "the edit counts")
    until(lambda: not scene.refused(process), 30, "nothing is wrong any more")
    until(lambda: scene.said(other_uid).get("observedGeneration") == 2, 30, "the edit is observed")
    scene.drained(uid)
    scene.drained(other_uid)

    both = [*sink.taken("/other"), *sink.taken("/edited")]
    assert (account(scene, sink.taken("/one")), account(scene, both)) == ((set(), {}), (set(), {}))


def test_a_manifest_that_goes_bad_stops_only_itself(subscribed: Callable[..., Subscribed], sink: Sink) -> None:
    """What ran by it goes on, the other channel follows its edit; after a restart it waits for the mending, and loses nothing."""
    uid, other_uid = str(uuid4()), str(uuid4())  # members of the test before may still have a session
    scene = subscribed(manifests=True)
    manifests = scene.folder / "manifests"
    one = {"uid": uid, "generation": 1, "subscriberUri": f"{sink.url}/one"}
    other = {"uid": other_uid, "generation": 1, "subscriberUri": f"{sink.url}/other"}
    mount(manifests, {"mails.yaml": channel("mails", other), "orders.yaml": channel("orders", one)})
    (process,) = scene.begin(uid, members=1)
    until(lambda: len(chains(scene, sink, "/other")) == 4 * 5, 60, "every partition is read")
    claims = scene.claimed(uid), scene.claimed(other_uid)

    one["subscriberUri"], bad = f"{sink.url}/edited", {**other, "subscriberUrl": "x"}
    mount(manifests, {"mails.yaml": channel("mails", bad), "orders.yaml": channel("orders", one)})
    until(lambda: sink.sent("/edited"), 60, "the good one follows its edit")
    ((problem, kept),) = scene.refused(process).items()
    before = len(sink.sent("/other"))
    until(lambda: len(sink.sent("/other")) > before + 20, 30, "the bad one goes on as it was")
    reload, check = scene.inbound("reload", "--url", scene.admin_url(process), code=3), scene.inbound("check", code=2)
    series = [name for name in metrics(scene, process) if name.startswith("inbound_manifests_refused{")]
    assert "mails.yaml:" in problem
    assert "spec.subscribers[0].subscriberUrl: unknown key" in problem
    assert kept == [f"shop.mails.{other_uid}"]
    assert ("mails.yaml:" in reload.stderr, "mails.yaml:" in check.stderr, len(series)) == (True, True, 1)
    assert (scene.claimed(uid), scene.claimed(other_uid)) == claims
    assert scene.log(process).count("subscriberUrl: unknown key") == 1

    assert scene.stop(process) == 0
    process = scene.start()
    until(lambda: scene.shared(uid) == 1, 60, lambda: f"the good one starts: {scene.log(process)[-3000:]}")
    stood = scene.committed(other_uid)
    assert (scene.refused(process), scene.members(other_uid)) == ({problem: []}, [])

    mount(manifests, {"mails.yaml": channel("mails", other), "orders.yaml": channel("orders", one)})
    until(lambda: not scene.refused(process), 30, "nothing is wrong any more")
    scene.drained(uid)
    scene.drained(other_uid)
    assert all(stood.values())
    posted = [*sink.taken("/one"), *sink.taken("/edited")]
    assert (account(scene, posted), account(scene, sink.taken("/other"))) == ((set(), {}), (set(), {}))


def test_requests_to_a_broker_are_told_of_once_for_all_subscriptions(
    subscribed: Callable[..., Subscribed], sink: Sink
) -> None:
    """They read by one client: its figures have no channel, and stand once in the metrics and in `inbound status`."""
    scene = subscribed(a={"subscriberUri": f"{sink.url}/a"}, b={"subscriberUri": f"{sink.url}/b"})
    (process,) = scene.begin("a", members=1)
    until(lambda: sink.sent("/a") and sink.sent("/b"), 60, "both are posted to")

    name = "inbound_kafka_requests_per_second{"
    (told,) = [series for series in metrics(scene, process) if series.startswith(name)]
    status = scene.inbound("status", "--url", scene.admin_url(process)).stdout
    assert 'client="consumer",channel="",group=""' in told
    assert [line.split(":")[0] for line in status.splitlines() if line.startswith("Kafka")] == [
        "Kafka, for all subscriptions"
    ]


def shown(scene: Subscribed, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return what a process's status has of its one subscription."""
    found: dict[str, Any] = fetch_status(scene.admin_url(process), 30)["channels"][0]["subscriber"]
    return found


@pytest.mark.thorough("the fast tests of the subscriber's status have each condition")
def test_ready_is_what_all_replicas_do(subscribed: Callable[..., Subscribed], sink: Sink) -> None:
    """Kept in ZooKeeper and shown in status: the generation, who lacks it, partitions without owner, who is down."""
    served = {"subscriberUri": f"{sink.url}/first", "uid": "u-1", "generation": 1, "delivery": {"retry": 1_000_000}}
    scene = subscribed(first=served, session=8.0)  # its end is waited for, but must not come before
    first, second = scene.begin("first")
    good = {"v": 1, "uid": "u-1", "observedGeneration": 1, "ready": "True", "message": ""}
    until(lambda: scene.said("first") == good, 30, lambda: f"it is ready: {scene.said('first')}")

    scene.subscriptions["first"] = {**served, "generation": 2}
    scene.write_config()
    good["observedGeneration"] = 2
    until(lambda: scene.said("first") == good, 30, lambda: f"the edit is observed: {scene.said('first')}")

    sink.tell(status(503))
    until(lambda: "503" in scene.said("first")["message"], 30, lambda: f"the subscriber is down: {scene.said('first')}")
    assert scene.said("first")["ready"] == "True"
    sink.forget()

    second.kill()
    until(lambda: len(scene.members("first")) == scene.shared("first") == 1, 60, "the other one has it all")
    # Said before the death, too, and then said otherwise as long as partitions had no owner: so both are waited for.
    wanted = {key: value for key, value in good.items() if key != "v"}
    until(
        lambda: (scene.said("first"), shown(scene, first)) == (good, wanted),
        30,
        lambda: f"it is ready again: {scene.said('first')}, shown: {shown(scene, first)}",
    )

    scene.end_load()
    assert scene.stop(first) == 0
    assert scene.said("first") == {**good, "ready": "False", "message": "the group has no member"}

"""Brokers die, freeze and crawl under load: judged by what processors saw, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.embedded.kafka import KafkaServer
from integration.harness import Scene, Scenes, serve_again
from integration.kafka.brokers import (
    Load,
    advertise,
    await_election,
    balance,
    healthy,
    leaders,
    longest_pause,
    longest_wait,
    now,
    resumed,
    status,
)
from integration.proxy import Proxy
from tests.waiting import patient, until

MakeScene = Callable[..., tuple[Scene, Load]]

#: Two partitions led by each broker. Only those of the third, which is the one that things happen to, have a copy there:
#: with a copy anywhere on a dead broker, Kafka gives out nothing new of a partition until that broker is out of the
#: in-sync replicas (`broker.session.timeout.ms`), for any leader.
REPLICAS = {0: [1, 2], 1: [2, 1], 2: [3, 1], 3: [1, 2], 4: [2, 1], 5: [3, 2]}
#: How long a record on a live broker may wait for its delivery, of a partition that gets 40 a second. Seconds.
JITTER = 0.7
LONGER = "waits for long outages; `make test` kills a broker"
#: How long all brokers are down. Seconds; 60 was tried, too.
OUTAGE = 30


@pytest.fixture(scope="module")
def three(cluster_factory: Callable[..., EmbeddedCluster]) -> Iterator[EmbeddedCluster]:
    """Three brokers; closed with this file, so that they do not slow down the tests of others."""
    cluster = cluster_factory(brokers=3)
    yield cluster
    cluster.close()


@pytest.fixture
def scene(three: EmbeddedCluster, tmp_path: Path, client: str) -> Iterator[MakeScene]:
    """Make scenes with a replicated topic and load; afterwards all brokers are up."""
    # A session that outlives any delay of the machine: with a new one, records would be repeated, rightly.
    scenes = Scenes(three, tmp_path, replicas=REPLICAS, client=client)
    loads: list[Load] = []

    def make() -> tuple[Scene, Load]:
        # One that was frozen is fenced until its next heartbeat: of a topic that is created in that time it leads nothing.
        until(lambda: all(len(server.sees()) == 3 for server in three.brokers), 60, "all brokers take part")
        one = scenes()
        balance(one)
        loads.append(Load(one))
        return one, loads[-1]

    yield make
    serve_again(three)
    for load in loads:
        load.end()
    scenes.close()


def consuming(s: Scene) -> None:
    """Wait until a consumer reads all partitions at the logs' ends."""
    until(lambda: s.owned_by(s.processes), 180, lambda: f"all own partitions: {s.owners()}")
    until(lambda: {p for p, _ in s.seen()} == set(range(s.partitions)), 60, "all partitions are read")


def finish(s: Scene, load: Load) -> None:
    """End the load: nothing was lost, nothing was repeated, the consumers end gracefully, and the proof says so."""
    load.end()
    s.settle()
    account = s.account()
    assert (account.lost, account.repeated) == ({}, {})
    assert s.stop_all() == [0] * len(s.processes)
    s.prove()


def halves(s: Scene, witness: KafkaServer, third: KafkaServer) -> tuple[list[int], list[int]]:
    """Return the partitions that one broker leads, and those of the others."""
    led = leaders(s, witness)
    its, others = ([p for p in led if (led[p] == third.node_id) is own] for own in (True, False))
    return its, others


def test_a_killed_broker_stops_only_its_own_partitions_and_those_only_until_the_election(scene: MakeScene) -> None:
    """Partitions of live leaders do not notice; the others go on within a second of the election."""
    s, load = scene()
    s.start(), s.start()
    consuming(s)
    s.wait_more()
    victim, witness = s.cluster.brokers[2], s.cluster.brokers[0]
    its, others = halves(s, witness, victim)
    victim.kill()
    killed = now()
    elected = await_election(s, witness, its, victim.node_id)
    published = load.published_since(elected)  # the producer has to find the new leader, too
    took = max(resumed(s, published).values())
    late = max(at - elected[p] for p, at in published.items())
    waited = longest_wait(s, load, others, killed - 0.5, now() - 0.2)
    print(f"elected after {max(elected.values()) - killed:.1f} s, published to {late:.2f} s later, read {took:.2f} s")
    print(f"others {waited:.2f} s")
    assert (waited < patient(JITTER), took < patient(1.0)) == (True, True), (waited, took)
    victim.start()
    finish(s, load)


@pytest.mark.thorough(LONGER)
def test_all_brokers_down_for_half_a_minute_cost_no_session_and_no_record(scene: MakeScene) -> None:
    """The process stays healthy and says what is wrong; it then goes on under the same owners and claims."""
    s, load = scene()
    s.start()
    consuming(s)
    url = s.admin_url(s.processes[0])
    before = (s.owners(), s.claims())
    for server in s.cluster.brokers:
        server.kill()
    down = time.monotonic()
    until(lambda: status(url)["kafka_problem"], OUTAGE, "the status says that Kafka does not answer")
    while time.monotonic() < down + OUTAGE:
        assert healthy(url)
        time.sleep(1)
    for server in s.cluster.brokers:
        server.start(wait=False)
    for server in s.cluster.brokers:
        server.wait_ready()
    up = now()
    took = resumed(s, dict.fromkeys(range(s.partitions), up))
    print(f"resumed {max(took.values()):.1f} s after the last broker was up")
    assert max(took.values()) < patient(15)
    until(lambda: status(url)["kafka_problem"] is None, 60, "the status is clean again")
    assert ((s.owners(), s.claims()), healthy(url)) == (before, True)
    finish(s, load)


@pytest.mark.thorough(LONGER)
@pytest.mark.parametrize("client", ["confluent-kafka"])
def test_a_frozen_broker_holds_up_only_its_own_partitions(scene: MakeScene) -> None:
    """It keeps its connections and answers nothing, for longer than requests wait; then it wakes up."""
    s, load = scene()
    s.config.write_text(
        s.config.read_text().replace("kafka: {", "kafka: {request.timeout.ms: 4000, "),
    )
    s.start()
    consuming(s)
    frozen, witness = s.cluster.brokers[2], s.cluster.brokers[0]
    its, others = halves(s, witness, frozen)
    frozen.pause()
    at = now()
    elected = await_election(s, witness, its, frozen.node_id)
    published = load.published_since(elected)  # the producer has waited for the frozen one, too
    took = max(resumed(s, published).values())
    time.sleep(max(0.0, at + 8 - now()))
    frozen.resume()
    s.wait_more()
    waited = longest_wait(s, load, others, at - 0.5, now() - 0.2)
    print(f"elected after {max(elected.values()) - at:.1f} s, resumed {took:.2f} s later, others {waited:.2f} s")
    assert (waited < patient(JITTER), took < patient(1.5)) == (True, True), (waited, took)
    finish(s, load)


@pytest.mark.thorough(LONGER)
@pytest.mark.parametrize(("client", "late"), [("kafka-python", 0.0), ("confluent-kafka", 0.45)])
def test_a_new_group_reads_what_live_brokers_lead_while_one_is_frozen(scene: MakeScene, late: float) -> None:
    """Where to begin is asked of each leader separately: the one that does not answer holds up only its partitions.

    Half a second later a client may have sent it the question for all leaders.
    """
    s, load = scene()
    frozen, witness = s.cluster.brokers[2], s.cluster.brokers[0]
    live = ",".join(server.address for server in s.cluster.brokers if server is not frozen)
    s.config.write_text(s.config.read_text().replace(s.cluster.bootstrap_servers, live))
    _, others = halves(s, witness, frozen)
    s.start()
    until(lambda: bool(s.owners()), 60, "it claims")
    time.sleep(late)
    frozen.pause()
    at = now()
    since = resumed(s, dict.fromkeys(others, 0.0))
    first = max(since.values())
    listed = leaders(s, witness)
    time.sleep(4)
    waited = longest_wait(s, load, others, first, now() - 0.2)
    print(
        f"read {first - at:.1f} s later, frozen leader listed: {frozen.node_id in listed.values()}; others {waited:.2f} s"
    )
    assert (frozen.node_id in listed.values(), waited < patient(JITTER)) == (True, True), waited
    frozen.resume()
    finish(s, load)


@pytest.mark.thorough(LONGER)
def test_a_slow_broker_slows_down_only_its_own_partitions(scene: MakeScene, three: EmbeddedCluster) -> None:
    """Every answer of one broker takes a second: the others' partitions are read as before."""
    slow, witness = three.brokers[2], three.brokers[0]
    with Proxy(slow.port) as proxy:
        advertise(slow, proxy.port)
        try:
            until(lambda: len(witness.sees()) == 3, 60, "it is back")
            s, load = scene()
            s.start()
            consuming(s)
            its, others = halves(s, witness, slow)
            proxy.delay = 1.0
            at = now()
            time.sleep(6)
            waited = longest_wait(s, load, others, at - 0.5, now() - 0.2)
            own = longest_pause(s, its, at - 0.5, now() - 0.2)
            proxy.delay = 0.0
            print(f"its own partitions {own:.2f} s, others {waited:.2f} s")
            assert (own > 0.9, waited < patient(JITTER)) == (True, True), (own, waited)
            finish(s, load)
        finally:
            advertise(slow, slow.port)

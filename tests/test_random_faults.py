"""Whole clusters under random faults, seed by seed: what must hold at every moment, and once everything is well again.

A failing seed names itself; `run(SEED, Faults...)` in this file plays it again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from inbound import Batch
from inbound.testing.world import Recording, World

#: Faults after which nothing may be repeated (design: shutdown, rebalance, an outage of ZooKeeper), and all of them.
GENTLE = ("publish", "publish", "join", "leave", "disconnect", "outage", "brokers")
ROUGH = (*GENTLE, "kill", "freeze", "cut", "expire", "lose answers")
SESSION = 6.0


class Cluster:
    """One seed's cluster, and what was seen of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(seed=seed, session_timeout=SESSION)
        self.partitions = self.rng.randint(1, 5)
        self.world.kafka.create_topic("orders", self.partitions)
        self.published = [0] * self.partitions
        self.handed_out: dict[tuple[int, int], int] = defaultdict(int)
        self.epoch_owner: dict[tuple[int, int], str] = {}
        self.commits: dict[int, int] = {}
        self.joined = 0
        self.violations: list[str] = []
        self.join()

    # -- what happens ------------------------------------------------------------------------------------------------

    def happen(self, fault: str) -> None:
        """Let one thing happen, for a while."""
        world, rng = self.world, self.rng
        living = [name for name, consumer in world.consumers.items() if not consumer.dead]
        name = rng.choice(living)
        if fault == "publish":
            partition = rng.randrange(self.partitions)
            self.published[partition] += len(world.kafka.publish("orders", partition, [b"x"] * rng.randint(1, 6)))
        elif fault == "join" and len(living) < 4:
            self.join()
        elif fault == "leave" and len(living) > 1:
            world.leave(name, within=60)
        elif fault == "kill" and len(living) > 1:
            world.kill(name)
        elif fault == "disconnect":
            world.ensemble.disconnect(name)
        elif fault == "outage":
            world.ensemble.down()
            self.run(rng.uniform(0.1, 3 * SESSION))
            world.ensemble.up()
        elif fault == "brokers":
            world.kafka.down()
            self.run(rng.uniform(0.1, 3))
            world.kafka.up()
        elif fault == "freeze":
            world.pause(name)
            self.run(rng.uniform(0.1, 2 * SESSION))
            world.resume(name)
        elif fault == "cut":
            world.ensemble.cut_off(name)
            self.run(rng.uniform(0.1, 2 * SESSION))
            world.ensemble.heal(name)
        elif fault == "expire":
            world.ensemble.expire_session(name)
        elif fault == "lose answers":
            world.ensemble.lose_answers(name, rng.randint(1, 6))
        self.run(rng.choice([0.01, 0.1, 1.0, 4.0]))

    def join(self) -> None:
        self.joined += 1
        name = f"c{self.joined}"
        processor = Recording()
        processor.on_batch = lambda batch: self.see(name, batch)
        self.world.join(name, processor, reader={"max_batch_records": self.rng.randint(1, 5)})

    def run(self, seconds: float) -> None:
        """Let time pass, looking at the commits all the while."""
        end = self.world.clock.now() + seconds
        while self.world.clock.now() < end:
            self.world.run(min(0.05, end - self.world.clock.now()))
            self.look()

    # -- what must hold ----------------------------------------------------------------------------------------------

    def see(self, name: str, batch: Batch) -> None:
        owner = self.epoch_owner.setdefault((batch.partition, batch.epoch), name)
        if owner != name:
            self.violations.append(f"{owner} and {name} were handed partition {batch.partition} in epoch {batch.epoch}")
        for record in batch.records:
            self.handed_out[batch.partition, record.offset] += 1

    def look(self) -> None:
        for partition, offset in self.world.commits().items():
            before = self.commits.get(partition, 0)
            offset = offset or 0
            if offset < before:
                self.violations.append(f"the commit of partition {partition} went back from {before} to {offset}")
            skipped = [o for o in range(before, offset) if not self.handed_out[partition, o]]
            if skipped:
                self.violations.append(f"partition {partition}: {skipped} committed without having been handed out")
            self.commits[partition] = offset

    def settle(self) -> None:
        """Everything is well again: soon all is read and committed, and owned by those who live, in even shares."""
        self.run(2 * SESSION + 8)
        for partition, count in enumerate(self.published):
            unread = [offset for offset in range(count) if not self.handed_out[partition, offset]]
            if unread or (count and self.commits.get(partition) != count):
                self.violations.append(
                    f"partition {partition}: {unread} never read, commit {self.commits.get(partition)}"
                )
        shares = sorted(len(owned) for owned in self.world.owned().values())
        if sum(shares) != self.partitions or shares[-1] - shares[0] > 1:
            self.violations.append(f"shares {shares} of {self.partitions} partitions")

    @property
    def repeated(self) -> list[tuple[int, int]]:
        return [place for place, times in self.handed_out.items() if times > 1]


def run(seed: int, faults: Sequence[str]) -> Cluster:
    """Play one seed."""
    cluster = Cluster(seed)
    cluster.run(4)
    for _ in range(cluster.rng.randint(3, 12)):
        cluster.happen(cluster.rng.choice(faults))
    cluster.settle()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_rough_faults_lose_nothing_and_break_no_rule(block: int) -> None:
    """Nothing is lost, no commit goes back or skips, no epoch has two owners, every partition is read again."""
    wrong = {seed: c.violations for seed in range(block * 10, block * 10 + 10) if (c := run(seed, ROUGH)).violations}
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_gentle_faults_repeat_nothing_either(block: int) -> None:
    """Joining, leaving, short and long outages of ZooKeeper, brokers away: every record is handed out exactly once."""
    wrong = {}
    for seed in range(1000 + block * 10, 1000 + block * 10 + 10):
        cluster = run(seed, GENTLE)
        if cluster.violations or cluster.repeated:
            wrong[seed] = (cluster.violations, cluster.repeated)
    assert wrong == {}

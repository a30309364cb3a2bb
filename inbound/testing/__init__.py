"""Fakes, and a whole cluster in one thread, for tests.

They serve the tests of this project, and those of your own processors. The room may import every room but `cli`; only `cli`,
for the starter of a new processor, may import it. Nothing in it waits, has a thread or reads a real clock: tests move the
time. Begin with `world.py`, which makes consumers of the product's own parts on a fake Kafka (`kafka.py`) and a fake ZooKeeper
(`zookeeper.py`: servers; `zookeeper_client.py`: a client and its connection; `zookeeper_tree.py`: the nodes). `simulation/`
plays whole groups under seeded faults.

from inbound.testing import World

def test_orders():
    world = World()
    world.kafka.create_topic("orders", 2)
    world.kafka.publish("orders", 0, [b"one", b"two"])
    world.join("a", Orders())
    world.run(5)  # seconds of virtual time
    assert world.commits() == {0: 2, 1: 0}
"""

from inbound.testing.clock import FakeLoop, ManualClock
from inbound.testing.kafka import FakeKafka, FakeLogClient
from inbound.testing.world import Recording, World
from inbound.testing.zookeeper import FakeEnsemble
from inbound.testing.zookeeper_client import FakeZooKeeper

__all__ = [
    "FakeEnsemble",
    "FakeKafka",
    "FakeLogClient",
    "FakeLoop",
    "FakeZooKeeper",
    "ManualClock",
    "Recording",
    "World",
]

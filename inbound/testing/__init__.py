"""Fakes and a whole cluster in one thread, for tests of your own processors.

from inbound.testing import World

def test_orders():
    world = World()
    world.kafka.create_topic("orders", 2)
    world.kafka.publish("orders", 0, [b"one", b"two"])
    world.join("a", Orders())
    world.run(5)  # seconds of virtual time
    assert world.commits() == {0: 2, 1: 0}
"""

from inbound.testing.clock import ManualClock
from inbound.testing.event_loop import FakeLoop
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

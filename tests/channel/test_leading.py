"""Who polls, who delivers, who stands by: the rules by themselves, and workers that go by them."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.kafka.base import Poll
from inbound.partition.leader import ALONE, GRACE, NEVER, Lead, Leading
from inbound.testing.world import Recording, World

NOW = 100.0


class Crew:
    """Workers that ask what to do next, and how many of them were woken."""

    def __init__(self, *, cpu: float, elapsed: float = 0.1, turn: tuple[float, float] | None = None) -> None:
        """Have callbacks that were seen to take so much CPU of so much time; and turns, if those are others."""
        self.woken = 0
        self.leading = Leading(self._wake, most=2)
        self.leading.observe((cpu, elapsed), turn or (cpu, elapsed))

    def _wake(self) -> None:
        self.woken += 1

    def asks(self, worker: str, now: float = NOW, due: float = NEVER) -> Lead | float | None:
        """Return a worker's orders, with the next partition due then."""
        return self.leading.next_of(worker, now, due)

    def takes(self, worker: str, now: float = NOW) -> None:
        """Have a worker take a partition."""
        assert self.asks(worker, now, due=now) is None
        self.leading.took(now, more=False)


@pytest.fixture
def waiting() -> Crew:
    """Callbacks that wait."""
    return Crew(cpu=0.001)


@pytest.fixture
def computing() -> Crew:
    """Callbacks that compute."""
    return Crew(cpu=0.1)


def test_one_polls_and_the_others_wait_to_be_woken(waiting: Crew) -> None:
    """A poll beside a free worker may take as long as the client likes."""
    alone = waiting.asks("a")
    waiting.leading.end_lead(NOW)
    told = [waiting.asks("b"), waiting.asks("a"), waiting.asks("c")]
    waiting.leading.end_lead(NOW)
    assert (alone, told, waiting.asks("a")) == (Lead(ALONE), [Lead(ALONE), NEVER, NEVER], Lead(NEVER))


def test_a_poll_ends_when_a_partition_is_due(waiting: Crew) -> None:
    """Its commit is deferred, or it rests: nobody else looks at the time."""
    waiting.leading.read_soon(NOW)
    told = waiting.asks("a", due=NOW + ALONE / 4)
    assert isinstance(told, Lead)
    assert told.seconds == pytest.approx(ALONE / 4)


def test_while_callbacks_wait_everybody_is_woken_and_the_next_one_polls(waiting: Crew) -> None:
    """A database call leaves the interpreter to the others. Before any callback was seen they are taken to wait."""
    waiting.asks("a")
    waiting.asks("b")
    waiting.leading.begin_feeding()
    for _ in range(3):
        waiting.leading.becomes_due(NOW, NOW)
    waiting.leading.end_feeding(3)
    waiting.leading.end_lead(NOW)
    helped = waiting.woken
    waiting.takes("a")
    assert (helped, waiting.woken, waiting.asks("b")) == (1, 2, Lead(ALONE))


def test_while_callbacks_compute_a_leader_delivers_what_it_got_alone(computing: Crew) -> None:
    """One stands by, and is woken once for that; it looks again when the turn has taken long."""
    computing.asks("a")
    computing.asks("b")
    computing.leading.begin_feeding()
    for _ in range(3):
        computing.leading.becomes_due(NOW, NOW)
    computing.leading.end_feeding(3)
    computing.leading.end_lead(NOW)
    computing.takes("a")
    woken = computing.woken
    stands_by = computing.asks("b", due=NOW)
    computing.leading.becomes_due(NOW, NOW)
    assert (woken, stands_by, computing.asks("c", due=NOW), computing.woken) == (1, NOW + GRACE, NEVER, 1)


def who_waited_is_taken(crew: Crew, turns: int, hang: int = 0) -> bool:
    """Whether one more worker takes what has waited for the grace, beside so many turns that have just begun, or hang."""
    crew.leading.most = turns + hang + 1
    crew.leading.end_lead(NOW + 9)
    crew.leading._turns.update(dict.fromkeys(range(turns), NOW + GRACE))
    crew.leading._turns.update({-number: NOW - 9 for number in range(1, hang + 1)})
    return crew.asks("one more", NOW + GRACE, due=NOW) is None


QUICK = {"cpu": 0.000_014, "elapsed": 0.000_015}


@pytest.mark.parametrize(
    ("crew", "turns", "taken"),
    [
        (Crew(**QUICK, turn=(0.000_1, 0.000_11)), 1, False),  # the interpreter has no time for another
        (Crew(**QUICK, turn=(0.000_1, 0.000_5)), 2, False),  # others want it, too
        (Crew(**QUICK, turn=(0.000_1, 0.012)), 60, False),  # all were awake: they go to rest one by one
        (Crew(**QUICK, turn=(0.000_1, 0.045)), 1, True),  # other callbacks wait, or the ledger does
        (Crew(**QUICK, turn=(0.000_1, 0.045)), 100, True),
        (Crew(cpu=0.004, elapsed=0.01), 1, True),  # it computes a little, and waits a lot
        (Crew(cpu=0.004, elapsed=0.01), 2, True),
        (Crew(cpu=0.004, elapsed=0.01), 3, False),  # these use up a core
        (Crew(cpu=0.02, elapsed=0.02), 3, True),  # code in C: three of them do not hinder each other
        (Crew(cpu=0.007, elapsed=0.02), 3, False),  # these do
    ],
)
def test_what_has_waited_for_the_grace_is_taken_where_that_helps(crew: Crew, turns: int, taken: bool) -> None:
    """Sixty awake workers that compute get half as much done as one, and keep commits waiting for the interpreter."""
    assert who_waited_is_taken(crew, turns) is taken


def test_what_hangs_does_not_count_as_using_the_core() -> None:
    """Beside a turn of which less than half is computing another one helps, also while a third does not end."""
    assert who_waited_is_taken(Crew(cpu=0.004, elapsed=0.01), 1, hang=5)


def test_a_callback_that_was_interrupted_once_does_not_count_as_one_that_waits() -> None:
    """Another thread had the interpreter for its 5 ms: of a quick callback that is hundreds of times what it takes."""
    crew = Crew(cpu=0.000_014, elapsed=0.000_015)
    for number in range(5000):
        taken = 0.000_014, 0.005 if number % 350 == 0 else 0.000_015
        crew.leading.observe(taken, taken)
    assert crew.leading.computing


def test_a_worker_in_a_long_turn_holds_nobody_off(computing: Crew) -> None:
    """Neither what is due, nor what comes: a callback that never ends keeps nobody else's records."""
    computing.leading.end_lead(NOW)
    computing.takes("a")
    later = NOW + GRACE
    assert (computing.asks("b", later, due=later), computing.asks("c", later, due=later)) == (Lead(0.0), None)


def test_nobody_is_held_off_while_no_worker_is_in_a_turn(computing: Crew) -> None:
    """The first record after a pause is delivered at once."""
    computing.asks("a")
    computing.asks("b")
    computing.leading.becomes_due(NOW, NOW)
    assert (computing.woken, computing.asks("b", due=NOW)) == (1, None)


def test_a_command_that_comes_during_a_poll_is_seen_right_after(waiting: Crew) -> None:
    """1. The leader has looked for commands; 2. one comes; 3. it says when to poll next, which is much later."""
    waiting.asks("a")
    waiting.leading.read_soon(NOW)
    waiting.leading.end_lead(NOW + 5)
    assert waiting.asks("a") == Lead(ALONE)


def test_another_one_is_woken_where_the_leader_raises(waiting: Crew) -> None:
    """What came with its poll was left to it, and it rests for a while, as any part that raises."""
    waiting.asks("a")
    waiting.asks("b")
    waiting.leading.begin_feeding()
    waiting.leading.becomes_due(NOW, NOW)
    waiting.leading.end_feeding(1)
    left_to_it = waiting.woken
    waiting.leading.end_lead(NOW)
    waiting.leading.misses_one(NOW)
    waiting.takes("b")
    assert (left_to_it, waiting.woken, waiting.asks("c")) == (0, 1, Lead(ALONE))


def test_another_one_is_woken_where_a_worker_raises_in_its_turn(waiting: Crew) -> None:
    """As many turns as may be were under way, so nobody was woken for what became due: who ends one looks, but not this one."""
    for worker in ("a", "b"):
        waiting.leading.end_lead(NOW + 9)
        waiting.takes(worker)
    waits, before = waiting.asks("c", due=NOW), waiting.woken
    waiting.leading.becomes_due(NOW, NOW)
    not_woken = waiting.woken == before
    waiting.leading.end_turn("a")
    waiting.leading.misses_one(NOW)
    assert (waits, not_woken, waiting.woken, waiting.asks("c", due=NOW)) == (NOW + 9, True, before + 1, None)


def test_a_worker_that_raises_in_its_turn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partition is put back, and its turn is over."""
    world = world_of_two_partitions(Recording(), workers=1)
    channel = world.consumers["a"].channel
    missed: list[float] = []
    monkeypatch.setattr(channel.parts.schedule._leading, "misses_one", missed.append)
    monkeypatch.setattr(channel._turns._delivery, "cut", lambda partition, room: 1 / 0)
    world.kafka.publish("orders", 0, [b"x"])
    worker = channel.workers[0]
    worker.run_once()
    with pytest.raises(ZeroDivisionError):
        worker.run_once()
    assert (missed, channel.parts.schedule.full) == ([world.clock.now()], False)


def test_a_command_wakes_a_worker_where_nobody_polls(waiting: Crew) -> None:
    """The client is left alone until it says that something has come."""
    waiting.asks("a")
    waiting.leading.end_lead(NOW + 2)
    until = waiting.asks("a")
    waiting.leading.read_soon(NOW)
    assert (until, waiting.woken, waiting.asks("a")) == (NOW + 2, 1, Lead(ALONE))


def test_a_poll_comes_first_where_deliveries_have_kept_everybody_from_it(computing: Crew) -> None:
    """What is to be claimed, or read again, does not wait until all that is buffered is delivered."""
    computing.leading.end_lead(NOW)
    assert (computing.asks("a", due=NOW), computing.asks("a", NOW + GRACE, due=NOW)) == (None, Lead(0.0))


def test_who_stands_by_is_followed_by_another_one(waiting: Crew) -> None:
    """It is woken for something sooner, has got something to do, or its thread has ended."""
    waiting.leading.end_lead(NOW + 9)
    first = waiting.asks("a")
    sooner = waiting.asks("b", due=NOW + 1)
    waiting.leading.comes("b")
    after = waiting.asks("c", due=NOW + 2)
    assert (first, sooner, after) == (NOW + 9, NOW + 1, NOW + 2)


def test_one_is_left_to_poll_while_as_many_as_may_be_are_in_turns(waiting: Crew) -> None:
    """What hangs keeps nobody from saying so. Who polls takes nothing that is due: there would be one turn too many."""
    for worker in ("a", "b"):
        waiting.leading.end_lead(NOW)
        waiting.takes(worker)
    assert (waiting.leading.full, waiting.asks("c", due=NOW)) == (True, Lead(ALONE))


def test_old_observations_fade(computing: Crew) -> None:
    """A processor that begins to wait is soon treated so."""
    for _ in range(30):
        computing.leading.observe((0.001, 0.1), (0.001, 0.1))
    assert not computing.leading.computing


# -- in a channel -------------------------------------------------------------------------------------------------------


def world_of_two_partitions(processor: Recording, workers: int = 2) -> World:
    """Return a world in which consumer a has two partitions, and workers that poll."""
    world = World()
    world.kafka.create_topic("orders", 2)
    world.join("a", processor, leads=True, workers=workers)
    world.run(6)
    return world


def seen(processor: Recording) -> list[tuple[int, int]]:
    """Return the partition and the offset of what was delivered, in order."""
    return [(tp.partition, offset) for tp, offset in processor.seen]


def test_a_single_worker_polls_and_delivers() -> None:
    """Nobody else takes part: a turn that polls, and one for the batch."""
    processor = Recording()
    world = world_of_two_partitions(processor, workers=1)
    worker = world.consumers["a"].channel.workers[0]
    world.kafka.publish("orders", 0, [b"x"] * 3)
    for _ in range(3):
        worker.run_once()
    assert seen(processor) == [(0, 0), (0, 1), (0, 2)]


def test_what_the_leader_got_is_delivered_by_another_worker_where_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests for a second; nobody else was woken for what it meant to deliver itself."""
    processor = Recording()
    world = world_of_two_partitions(processor)
    consumer = world.consumers["a"]
    first, second, _ = consumer.channel.workers
    wakeup, client = consumer.channel.parts.worker_wakeup, consumer.log_clients[-1]
    poll = client.poll

    def poll_while_another_one_waits(*arguments: Any) -> Poll:
        second.run_once()
        while wakeup.take():
            pass
        return poll(*arguments)

    def fail() -> bool:
        raise ValueError("a defect")

    monkeypatch.setattr(client, "poll", poll_while_another_one_waits)
    monkeypatch.setattr(client, "reachable", fail)
    consumer.channel.reader.problem = "away"
    world.kafka.publish("orders", 0, [b"x"])
    with pytest.raises(ValueError, match="a defect"):
        first.run_once()
    woken = wakeup.take()
    second.run_once()
    assert (woken, seen(processor)) == (True, [(0, 0)])


def test_while_a_callback_waits_another_worker_polls_on() -> None:
    """A slow partition holds back only itself: what comes for another one meanwhile is delivered."""
    processor, meanwhile = Recording(), list[tuple[int, int]]()
    world = world_of_two_partitions(processor)
    first, second, _ = world.consumers["a"].channel.workers

    def slow(batch: object) -> None:
        processor.on_batch = lambda batch: None
        world.kafka.publish("orders", 1, [b"x"] * 2)
        for _ in range(3):
            second.run_once()
        meanwhile.extend(seen(processor))

    processor.on_batch = slow
    world.kafka.publish("orders", 0, [b"x"])
    for _ in range(3):
        first.run_once()
    assert [one for one in meanwhile if one[0] == 1] == [(1, 0), (1, 1)]


def test_everything_is_delivered_once_and_committed_by_workers_that_lead() -> None:
    """The whole way, with a follower that is promoted many times."""
    processor = Recording()
    world = world_of_two_partitions(processor, workers=3)
    for _ in range(20):
        for partition in (0, 1):
            world.kafka.publish("orders", partition, [b"x"] * 5)
        world.run(0.2)
    world.run_until(lambda: world.commits() == {0: 100, 1: 100}, within=5)
    assert sorted(seen(processor)) == [(p, offset) for p in (0, 1) for offset in range(100)]

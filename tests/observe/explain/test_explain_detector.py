"""The stall detector on a whole channel on fakes: the causes that it names, and when it reports a stall."""

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from inbound.coordinators.pauses import OPERATOR, Pause, pause
from inbound.coordinators.tasks import Tasks
from inbound.observe.explain.answer import BadQuestionError, PartitionQuestion, answers
from inbound.observe.explain.detector import AT_ONCE, BREATH, LOOKS, StallDetector
from inbound.observe.explain.gather import below_inbound
from inbound.partition.journal import Happened
from inbound.partition.partition import Partition
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch, BatchResponse
from inbound.testing import World
from inbound.testing.world import GROUP, Consumer, Recording
from inbound.topic_partition import TopicPartition

TP = TopicPartition("orders", 0)
INTERVAL = 2.0


class Watched:
    """One consumer of one partition that has read so many records, and the detector beside it."""

    def __init__(
        self,
        answer: Callable[[Batch], object] | None = None,
        *,
        read: int = 0,
        processor: Recording | None = None,
        **settings: Any,
    ) -> None:
        self.world = World()
        self.world.kafka.create_topic("orders", 1)
        self.consumer: Consumer = self.world.join("a", processor or Recording(answer), **settings)
        self.detector = StallDetector(lambda: [self.consumer.channel], self.world.clock, INTERVAL)
        self.consumer.parts.append(self.detector)
        self.world.run(5)
        if read:
            self.publish(read)
            self.world.run(5)

    def publish(self, count: int = 100) -> None:
        self.world.kafka.publish("orders", 0, [b"x"] * count)

    def cure(self) -> None:
        """Let the processor take all there is from now on."""
        processor = self.consumer.processor
        assert isinstance(processor, Recording)
        processor.answer = None

    @property
    def partition(self) -> Partition:
        found = self.consumer.channel.parts.schedule.get(TP)
        assert found is not None
        return found

    def named(self, cause: str, within: float = 2 * INTERVAL) -> None:
        """Let time pass until the cause is named."""
        self.world.run_until(lambda: self.partition.stall.cause == cause, within=within)

    def events(self, *kinds: str) -> list[Happened]:
        return [event for event in self.consumer.channel.parts.journal.of(TP) if event.kind in kinds]

    def answer(self, at: float | None = None) -> dict[str, Any]:
        (found,) = answers([self.consumer.channel], self.detector, PartitionQuestion(TP, at))
        return found


def test_many_partitions_are_looked_at_in_short_steps_and_each_within_an_interval() -> None:
    """A look at all of them at once would keep the interpreter from commits for as long as it takes."""
    world = World()
    world.kafka.create_topic("orders", 3 * AT_ONCE)
    channel = world.join("a", Recording(lambda batch: BatchResponse.revert(wait=0.1))).channel
    world.run_until(lambda: len(channel.parts.schedule.held()) == 3 * AT_ONCE, within=30)
    detector = StallDetector(lambda: [channel], world.clock, INTERVAL)
    looked, waits = [], []
    for _ in range(4):
        waits.append((detector.run_once() or 0.0) - world.clock.now())
        looked.append(sum(p.stall.cause_since is not None for p in channel.parts.schedule.held()))
    waits = [round(wait, 6) for wait in waits]
    steps = [AT_ONCE - 1, 2 * AT_ONCE - 1, 3 * AT_ONCE - 1, 3 * AT_ONCE]
    assert (looked, waits) == (steps, [BREATH, BREATH, BREATH, INTERVAL / LOOKS])


def test_a_revert_loop_is_named_then_told_as_a_stall_and_over_when_it_moves() -> None:
    s = Watched(lambda batch: BatchResponse.revert(wait=0.1))
    s.publish()
    s.named("revert-loop")
    s.world.run_until(lambda: s.partition.stall.since is not None, within=3 * INTERVAL)
    assert s.answer()["explanation"]["text"].startswith("the processor has gone back to offset 0 ")
    status = s.consumer.channel.status().partitions[0]
    assert (status.cause, status.stalled) == (
        "revert-loop",
        {"cause": "revert-loop", "since": s.partition.stall.since},
    )
    s.cure()
    s.world.run_until(lambda: s.partition.stall.since is None, within=3 * INTERVAL)
    s.world.run(1)
    assert [event.kind for event in s.events("stalled", "stall-over")] == ["stalled", "stall-over"]
    (loop,) = s.events("reverted")
    assert loop.count > 10
    assert loop.offset == 0


def test_a_processor_that_raises_is_named_and_later_the_one_record() -> None:
    def bad(batch: Batch) -> object:
        if any(record.offset == 42 for record in batch.records):
            raise ValueError("no such account")
        return BatchResponse.advance()

    s = Watched(bad, on_error={"max_attempts": 3, "then": "hold"})
    s.publish()
    s.named("processor-fails")
    assert "ValueError: no such account" in s.answer()["explanation"]["text"]
    s.named("poison-event", within=60)
    s.world.run_until(lambda: s.partition.failure.held is not None, within=60)
    s.world.run(INTERVAL)
    assert (s.partition.stall.cause, s.partition.stall.since is not None) == ("poison-event", True)
    assert "the record at offset 42" in s.answer()["explanation"]["text"]


def test_a_rest_that_the_processor_asked_for_is_named_and_is_no_stall() -> None:
    s = Watched(lambda batch: BatchResponse.advance(batch.first_offset + 1, wait=60.0))
    s.publish()
    s.named("waiting")
    s.world.run(20)
    assert (s.partition.stall.cause, s.events("stalled")) == ("waiting", [])
    (waited,) = s.events("waited")
    assert "60.0 s" in waited.text


def test_brokers_away_and_back() -> None:
    """Also one broker, the partition's leader, although others answer. Nothing to read is idle, and no stall."""
    s = Watched(read=10)
    s.world.kafka.down()
    s.named("broker-away", within=10)
    s.world.kafka.up()
    s.named("idle", within=10)
    assert [event.kind for event in s.consumer.channel.parts.journal.of() if "broker" in event.kind] == [
        "broker-away",
        "broker-back",
    ]
    s.world.kafka.lose_leader("orders", 0)
    s.named("broker-away")
    s.world.kafka.elect_leader("orders", 0)
    s.named("idle")
    stalls = len(s.events("stalled"))
    s.world.run(30)
    assert (s.partition.stall.cause, s.partition.stall.since, len(s.events("stalled"))) == ("idle", None, stalls)


def test_a_client_that_has_forgotten_a_partition_is_found_out() -> None:
    """Assigned, healthy and frozen: no fetch, no error, and the lag that fetches tell stays 0."""
    s = Watched(read=10)
    s.consumer.log_clients[-1].paused.add(TP)  # behind the reader's back
    s.publish(50)
    s.named("not-fetching")
    assert "50 records wait at offset 10" in s.answer()["explanation"]["text"]
    s.world.run_until(lambda: s.partition.stall.since is not None, within=3 * INTERVAL)
    s.consumer.log_clients[-1].paused.clear()
    s.named("idle", within=10)
    assert s.partition.stall.since is None


def test_the_session_suspended_then_in_doubt_then_certain_again() -> None:
    s = Watched(read=10)
    s.world.ensemble.down()
    s.named("session-suspended", within=8)
    s.named("in-doubt", within=15)


def test_a_pause_is_named_with_who_did_it() -> None:
    s = Watched()
    zk = s.world.ensemble.client("operator", 30.0)
    tasks = Tasks(s.world.clock, lambda: None)
    call = tasks.spawn(pause(zk, GROUP, Pause(OPERATOR, None, "12:00", "ann", "migration")), "pause")
    s.world.run_until(lambda: bool(tasks.step() or True) and call.done, within=5)
    s.publish()
    s.named("paused", within=10)
    assert s.answer()["explanation"]["text"].startswith("paused since 12:00 by ann (migration)")
    s.world.run(20)
    assert s.events("stalled") == []


class Hanging(Recording):
    """Lets four seconds pass in one of its callbacks, while the detector looks, and asks why."""

    def __init__(self, hangs: str) -> None:
        super().__init__()
        self.scene: Watched | None = None
        self.asked: list[dict[str, Any]] = []
        setattr(type(self), hangs, lambda self, *args: self.hang())

    def hang(self) -> None:
        if self.scene is None or self.asked:
            return
        for _ in range(8):
            self.scene.world.clock.advance(0.5)
            self.scene.detector.run_once()
        self.asked.append(self.scene.answer())


@pytest.mark.parametrize("callback", ["on_batch_processed", "on_idle"])
def test_a_callback_that_hangs_is_named_whichever_it_is(callback: str) -> None:
    """Only on_next_batch was: the partition counted as idle, with nothing to read."""

    class Hangs(Hanging):
        """A class of this test alone: the callback is set on it."""

    processor = Hangs(callback)
    s = Watched(processor=processor, idle_time=1.0)
    processor.scene = s
    s.publish()
    s.world.run(10)
    (found,) = processor.asked
    explanation = found["explanation"]
    assert explanation["cause"] == "slow-processor"
    assert f"the processor's {callback} has not returned for " in explanation["text"]


class Silent:
    """A committer that ZooKeeper does not answer."""

    def run_once(self) -> None:
        return None


@pytest.mark.parametrize("count", [5, 20_000], ids=["few", "a full window"])
def test_a_commit_that_does_not_land_is_named_also_where_the_next_batch_need_not_wait_for_it(count: int) -> None:
    """With few records the partition counted as idle, and its lag stayed without a reason."""
    s = Watched(read=10)
    parts, committer = s.consumer.parts, s.consumer.channel.parts.committer
    at = parts.index(committer)
    parts[at] = Silent()
    s.publish(count)
    s.named("commit-waits", within=3 * INTERVAL)
    s.world.run_until(lambda: s.partition.stall.since is not None, within=4 * INTERVAL)
    text = s.answer()["explanation"]["text"]
    parts[at] = committer
    s.world.run(10)
    waits = "; its next batch waits for that (max_uncommitted_records)"
    records = {5: "5 records are", 20_000: "11,000 records are"}[count]
    assert text.startswith(f"its commit waits for ZooKeeper's answer (1 commit waits): {records} answered for and not ")
    assert (waits in text) == (count > 5)
    assert (s.partition.stall.cause, s.partition.stall.since) == ("idle", None)


class Mixed(BatchEventProcessor):
    """Takes some of a batch, sometimes all, sometimes rests a little: nothing is wrong with it."""

    def __init__(self) -> None:
        self.turns = 0

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.turns += 1
        if self.turns % 7 == 0 and len(batch) > 1:
            return BatchResponse.advance(batch.first_offset + len(batch) // 2)
        if self.turns % 5 == 0:
            return BatchResponse.next(commit_within=3.0)
        return BatchResponse.advance(wait=0.2 if self.turns % 3 == 0 else 0.0)


def test_mixed_load_with_nothing_wrong_is_never_called_otherwise() -> None:
    world = World()
    world.kafka.create_topic("orders", 8)
    consumers = [world.join(name, Mixed(), workers=2) for name in ("a", "b")]
    detectors = [StallDetector(lambda c=c: [c.channel], world.clock, INTERVAL) for c in consumers]  # type: ignore[misc]
    for consumer, detector in zip(consumers, detectors, strict=True):
        consumer.parts.append(detector)
    causes = set()
    for second in range(20):
        for partition in range(8):
            if partition != second % 9:
                world.kafka.publish("orders", partition, [b"x"] * ((second * 7 + partition * 3) % 40))
        world.run(1)
        causes |= {p.stall.cause for c in consumers for p in c.channel.parts.schedule.held()}
    assert causes <= {"healthy", "catching-up", "idle", "starting", "waiting"}
    assert not [e for c in consumers for p in range(8) for e in c.channel.parts.journal.of(TopicPartition("orders", p))
                if e.kind == "stalled"]  # fmt: skip


def test_the_journal_says_what_was_at_a_time() -> None:
    s = Watched(lambda batch: BatchResponse.revert(wait=0.1))
    began = s.world.clock.wall()
    s.publish()
    s.world.run(20)
    s.cure()
    s.world.run(20)
    then = s.answer(at=began + 15)
    assert (then["cause"], then["known"], then["was_held"]) == ("revert-loop", True, True)
    assert s.answer(at=s.world.clock.wall())["cause"] == "healthy"
    long_ago = s.answer(at=began - 1000)
    assert (long_ago["known"], long_ago["cause"]) == (False, None)


def test_a_partition_says_why_it_was_claimed_and_given_up() -> None:
    s = Watched()
    s.world.join("b")
    s.world.kafka.create_topic("orders", 4)
    s.world.run(20)
    s.world.kill("b")
    s.world.run(40)
    journal = s.consumer.channel.parts.journal
    told = [
        event.text for p in range(4) for event in journal.of(TopicPartition("orders", p)) if event.kind == "claimed"
    ]
    assert any("after joining the group" in text for text in told)
    assert sum("after b left" in text for text in told) == 2, told


def test_questions_that_cannot_be_understood_are_refused() -> None:
    assert PartitionQuestion.of("topic=a%2Fb&partition=3&at=12.5&channel=x") == PartitionQuestion(
        TopicPartition("a/b", 3), 12.5, "x"
    )
    whole = "topic=a&partition=1"
    bad = (
        "",
        "topic=a",
        "topic=a&partition=x",
        f"{whole}&at=noon",
        f"{whole}&at=nan",
        f"{whole}&at=inf",
        f"{whole}{'&x=1' * 9}",
    )
    for query in bad:
        with pytest.raises(BadQuestionError):
            PartitionQuestion.of(query)


def fails(self: object) -> dict[str, Any]:
    raise RuntimeError("no such table")


@pytest.mark.parametrize(
    ("says", "why"), [(fails, "RuntimeError: no such table"), (lambda self: None, "it returned None")]
)
def test_a_processor_that_cannot_say_what_it_does_costs_nobody_else_an_answer(
    says: Callable[[object], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The detector stopped looking, at any channel; there was no status."""

    class Says(Recording):
        waits = status = says

    s = Watched(processor=Says())
    s.publish(5)
    s.world.run(10)
    s.consumer.channel.report()
    assert s.consumer.channel.status().processor == {}
    assert s.partition.stall.cause == "idle"
    told = [re.sub(r" \(at .*\)", "", record.getMessage()) for record in caplog.records]
    assert told == [
        f"channel orders: {name} failed: {why}; status and metrics are without it" for name in ("waits", "status")
    ]


def test_a_stack_begins_in_the_processor() -> None:
    """The calls that led there are inbound's, and no help."""
    stacks: list[str] = []

    class Stopped(Recording):
        def on_next_batch(self, batch: Batch) -> BatchResponse:
            stacks.append(below_inbound("".join(traceback.format_stack())))
            return BatchResponse.advance()

    Watched(read=1, processor=Stopped())

    files = re.findall(r'File "(.*)", line', stacks[0])
    assert files == [__file__]

"""The sampler, on a clock and threads made by hand."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter

import pytest

from inbound.observe.profiling import sampler as module
from inbound.observe.profiling.profile import Profile
from inbound.observe.profiling.sampler import Order, Sampler, SamplingPace
from inbound.observe.profiling.threads import DEEPEST, KnownThread, ThreadSource, labels_of, state_of
from inbound.testing import ManualClock
from tests.observe.profiling.made_threads import FILE, MadeFrame, MadeThreads, at_rest, at_work
from tests.waiting import until, wait_for

Values = dict[tuple[str, tuple[tuple[str, int], ...]], tuple[int, ...]]


def taken(threads: MadeThreads, order: Order | None = None) -> Profile:
    """Return a profile of 1 s at 10 Hz, if not ordered otherwise."""
    found = Sampler(threads.clock, threads).run(order or Order(seconds=1, hz=10, end=threading.Event()))
    assert found is not None
    return found


def values(profile: Profile) -> Values:
    """Return (samples, cpu in ms, wall in ms) by thread and stack, the outermost call first."""
    return {
        (
            sample.labels["thread"],
            tuple((frame.function.removeprefix("orders."), frame.line) for frame in reversed(sample.stack)),
        ): (sample.values[0], *(round(value / 1e6) for value in sample.values[1:]))
        for sample in profile.samples
    }


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_who_works_has_cpu_and_who_waits_has_wall(clock: ManualClock) -> None:
    """Each thread by its name and channel, at function and line; CPU time from its own clock, since the profile began."""
    booking = MadeFrame("Orders.book", 4)
    working = at_work(MadeFrame("Orders.send", 9, booking), 0.5)
    waiting = at_rest(MadeFrame("Orders.send", 8))
    threads = MadeThreads(clock, (1, "orders-worker-0", 11, working), (2, "my-orders-reader", 12, waiting))

    profile = taken(threads)

    assert values(profile) == {
        ("orders-worker-0", (("Orders.book", 4), ("Orders.send", 9))): (10, 500, 1000),
        ("my-orders-reader", (("Orders.send", 8),)): (10, 0, 1000),
    }
    assert {sample.labels["channel"] for sample in profile.samples} == {"orders", "my-orders"}
    assert {frame.file for sample in profile.samples for frame in sample.stack} == {FILE}
    assert [kind.name for kind in profile.types] == ["samples", "cpu", "wall"]
    assert (profile.default, profile.period[1], profile.duration_ns) == ("cpu", 100_000_000, 1_000_000_000)
    assert profile.time_ns == 1_767_225_600 * 10**9


def test_what_changes_places_is_counted_at_each(clock: ManualClock) -> None:
    """Two lines of one function are two places; CPU time goes to where a thread was seen after it."""
    caller, early, late = MadeFrame("Orders.book", 5), MadeFrame("Orders.send", 8), MadeFrame("Orders.send", 9)
    early.f_back = late.f_back = caller

    def at(elapsed: float) -> tuple[MadeFrame, float]:
        return (early if elapsed < 0.35 else late), elapsed

    profile = taken(MadeThreads(clock, (1, "log", 11, at)))

    assert values(profile) == {
        ("log", (("Orders.book", 5), ("Orders.send", 8))): (3, 300, 300),
        ("log", (("Orders.book", 5), ("Orders.send", 9))): (7, 700, 700),
    }


def test_the_stack_of_a_thread_whose_clock_has_not_moved_is_not_read_again(clock: ManualClock) -> None:
    """It has not moved; so a hundred waiting threads cost little. At first its stack is looked at once."""
    frame = MadeFrame("Orders.send", 8)

    taken(MadeThreads(clock, (1, "audit-worker-3", 11, at_rest(frame))))

    assert frame.looks == 1


def test_a_thread_that_comes_later_brings_all_its_cpu_time(clock: ManualClock) -> None:
    """It had none when the profile began."""

    def at(elapsed: float) -> tuple[MadeFrame, float] | None:
        return (MadeFrame("Orders.send", 9), (elapsed - 0.15) / 2) if elapsed > 0.15 else None

    profile = taken(MadeThreads(clock, (1, "admin-c", 11, at)))

    assert values(profile) == {("admin-c", (("Orders.send", 9),)): (9, 425, 900)}


def test_a_thread_that_takes_the_place_of_another_is_not_taken_for_it(clock: ManualClock) -> None:
    """The system gives the same ident to another thread, between two looks; its number tells."""
    frame = MadeFrame("Orders.send", 9)

    def first(elapsed: float) -> tuple[MadeFrame, float] | None:
        return (frame, 3 + elapsed) if elapsed < 0.45 else None

    def second(elapsed: float) -> tuple[MadeFrame, float] | None:
        return (frame, elapsed - 0.45) if elapsed > 0.45 else None

    threads = MadeThreads(clock, (1, "admin-c", 11, first), (1, "audit-reader", 12, second))

    found = values(taken(threads))

    assert found["admin-c", (("Orders.send", 9),)] == (4, 400, 400)
    # The look at which it is found out counts for neither.
    assert found["audit-reader", (("Orders.send", 9),)] == (5, 550, 500)


def test_cpu_time_of_none_of_the_threads_is_a_sample_apart(clock: ManualClock) -> None:
    """Libraries have threads that run no Python: librdkafka's fetch and decode."""
    threads = MadeThreads(clock, (1, "orders-reader", 11, at_work(MadeFrame("Orders.send", 9), 0.25)))
    threads.outside = 0.5

    found = values(taken(threads))

    (outside,) = [value for (thread, _), value in found.items() if thread == "[not Python]"]
    assert outside == (0, 500, 0)


def test_only_the_threads_that_are_asked_for(clock: ManualClock) -> None:
    """The others are not even looked at, and nothing is concluded of them."""
    other = MadeFrame("Orders.send", 9)
    threads = MadeThreads(
        clock, (1, "orders-reader", 11, at_work(MadeFrame("Orders.book", 4))), (2, "audit-reader", 12, at_work(other))
    )

    profile = taken(
        threads, Order(seconds=1, hz=10, end=threading.Event(), wanted=lambda name: name.startswith("orders"))
    )

    assert [sample.labels["thread"] for sample in profile.samples] == ["orders-reader"]
    assert other.looks == 0


def test_the_end_comes_at_once_with_what_there_is(clock: ManualClock) -> None:
    """The process is to stop: half a profile is better than none."""
    end = threading.Event()

    def at(elapsed: float) -> tuple[MadeFrame, float]:
        if elapsed > 0.38:
            end.set()
        return MadeFrame("Orders.send", 9), elapsed

    profile = taken(MadeThreads(clock, (1, "log", 11, at)), Order(seconds=300, hz=10, end=end))

    assert values(profile) == {("log", (("Orders.send", 9),)): (4, 400, 400)}
    assert profile.duration_ns == pytest.approx(400_000_000, abs=1000)


def test_a_client_that_goes_away_ends_it(clock: ManualClock) -> None:
    """The client has gone; that is checked a few times a second."""
    threads = MadeThreads(clock, (1, "log", 11, at_rest(MadeFrame("Orders.send", 8))))
    asked: list[float] = []

    def gone() -> bool:
        asked.append(clock.now() - threads.began)
        return len(asked) == 3

    order = Order(seconds=300, hz=100, end=threading.Event(), gone=gone)

    assert Sampler(clock, threads).run(order) is None
    assert asked == pytest.approx([0.25, 0.5, 0.75], abs=0.05)


def test_looks_that_are_missed_are_told_and_time_is_not_lost(clock: ManualClock) -> None:
    """A thread of C keeps the interpreter for 0.35 s: two looks are missing, and the time counts where it went."""
    held: list[float] = []

    def at(elapsed: float) -> tuple[MadeFrame, float]:
        if elapsed > 0.45 and not held:
            held.append(elapsed)
            clock.advance(0.35)
        return MadeFrame("Orders.send", 8), elapsed

    profile = taken(MadeThreads(clock, (1, "log", 11, at)))

    ((count, cpu, wall),) = values(profile).values()
    assert (count, cpu, wall) == (8, 1000, 1000)
    assert profile.comments[0] == "8 looks in 1.00 s: 8.0 a second of 10 asked for; 2 were missed"


def test_looks_that_cost_too_much_become_fewer(clock: ManualClock) -> None:
    """2 % of a processor, 0.5 ms a look and 1 ms for who is disturbed: 13.3 a second, once it is known; no time is lost."""
    threads = MadeThreads(clock, (1, "log", 11, at_work(MadeFrame("Orders.send", 9))))
    threads.look_costs = 0.0005

    profile = taken(threads, Order(seconds=10, hz=100, end=threading.Event(), budget=0.02))

    ((count, cpu, wall),) = values(profile).values()
    assert (cpu, wall) == (10_000, 10_000)
    assert count == pytest.approx(25 + 9.75 * 13.3, abs=5)
    assert (
        "a second of 100 asked for; 0 were missed; fewer, so that looking costs 2% of a processor"
        in profile.comments[0]
    )


def test_a_requested_frequency_is_kept_at_any_cost(clock: ManualClock) -> None:
    """Without a budget."""
    threads = MadeThreads(clock, (1, "log", 11, at_work(MadeFrame("Orders.send", 9))))
    threads.look_costs = 0.0005

    profile = taken(threads, Order(seconds=10, hz=64, end=threading.Event()))

    assert profile.comments[0].startswith("640 looks in 10.00 s: 64.0 a second of 64 asked for; 0 were missed")


def test_the_pace_comes_back_when_looks_are_cheap_again() -> None:
    """It follows the cost of the last looks, to the sampler and to the other threads, within bounds."""
    pace = SamplingPace(100, 0.02)
    periods = []
    for cost, busy in ((0.0001, 0.0), (0.0002, 0.5), (0.0005, 1.9), (0.5, 0.0), (0.0001, -0.01)):
        pace.weigh(cost * 25, 25, busy)
        periods.append(pace.period)
    pace.weigh(0.0, 0, 1.0)  # no look in all that time: nothing is known

    assert (*periods, pace.period) == pytest.approx((0.01, 0.035, 0.075, 0.1, 0.01, 0.01))
    assert not pace.slowed


def test_without_clocks_of_threads_there_is_wall_alone(clock: ManualClock) -> None:
    """As on macOS; and it says so."""
    threads = MadeThreads(clock, (1, "log", 11, at_work(MadeFrame("Orders.send", 9))), clocks=False)

    profile = taken(threads)

    assert values(profile) == {("log", (("Orders.send", 9),)): (10, 1000)}
    assert ([kind.name for kind in profile.types], profile.default) == (["samples", "wall"], "wall")
    assert profile.comments[-1] == "this system does not tell the CPU time of single threads"


def test_a_thread_that_nobody_knows_is_looked_at_each_time(clock: ManualClock) -> None:
    """One that a library started: it has no name, and no clock that could be asked."""
    frame = MadeFrame("Orders.send", 8)

    class Nameless(MadeThreads):
        def known(self) -> dict[int, KnownThread]:
            return {}

    profile = taken(Nameless(clock, (77, "", None, at_rest(frame))))

    assert values(profile) == {("[thread 77]", (("Orders.send", 8),)): (10, 0, 1000)}
    assert frame.looks == 10


def test_a_stack_without_end_is_cut(clock: ManualClock) -> None:
    """The innermost calls are kept."""
    frame = MadeFrame("Orders.book", 4)
    for _ in range(2 * DEEPEST):
        frame = MadeFrame("Orders.send", 9, frame)

    (sample,) = taken(MadeThreads(clock, (1, "log", 11, at_rest(frame)))).samples

    assert len(sample.stack) == DEEPEST + 1
    assert (sample.stack[0].function, sample.stack[-1].function) == ("orders.Orders.send", "[further callers]")


def test_memory_is_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many different stacks all are one; their time is not lost."""
    monkeypatch.setattr(module, "MOST_STACKS", 3)

    def at(elapsed: float) -> tuple[MadeFrame, float]:
        frame = MadeFrame("Orders.book", 4)
        for _ in range(round(elapsed * 10)):
            frame = MadeFrame("Orders.send", 9, frame)
        return frame, elapsed

    profile = taken(MadeThreads(clock, (1, "log", 11, at)))

    deep = Counter(len(sample.stack) for sample in profile.samples)
    assert deep == {2: 1, 3: 1, 4: 1, 1: 1}
    assert sum(sample.values[2] for sample in profile.samples) == pytest.approx(10**9, abs=1000)
    assert profile.comments[-1] == "7 looks at further stacks are counted as one"


@pytest.mark.parametrize(
    ("thread", "channel"),
    [
        ("orders-worker-12", "orders"),
        ("web-shop.eu-event-loop", "web-shop.eu"),
        ("a-reader-mirror", "a-reader"),
        ("orders-mirror", "orders"),
        ("stall-detector", None),
        ("admin-c", None),
        ("-reader", None),
    ],
)
def test_the_channel_of_a_thread(thread: str, channel: str | None) -> None:
    """By its name, as channels name their threads."""
    assert labels_of(thread).get("channel") == channel


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the CPU time of single threads")
def test_clocks_of_real_threads() -> None:
    """Another thread's clock runs with its work, and one that has ended is an error, not a crash."""
    threads, begin, end = ThreadSource(), threading.Event(), threading.Event()
    used: list[int] = []

    def work() -> None:
        before = time.thread_time_ns()
        sum(number * number for number in range(100_000))
        used.append(time.thread_time_ns() - before)
        begin.set()
        end.wait(60)

    thread = threading.Thread(target=work, name="works")
    thread.start()
    try:
        wait_for(begin, 60, "the thread does not begin")
        number = thread.native_id
        assert number is not None
        assert used[0] <= threads.cpu_ns(number) <= threads.process_cpu_ns()
        assert threads.known()[thread.ident or 0].name == "works"
        assert threads.frames()[thread.ident or 0].f_code.co_filename.endswith("threading.py")
    finally:
        end.set()
        thread.join()
    # `join` returns before the system has ended the thread.
    until(lambda: state_of(number) is None, 60, "the system does not end the thread", look=0.001)
    with pytest.raises(OSError, match="nvalid argument"):
        threads.cpu_ns(number)


def test_real_threads_on_a_real_clock_are_found_where_they_are() -> None:
    """The sampler does not see itself; a profile that is ended before it began has nothing."""
    ended = threading.Event()
    ended.set()
    order = Order(seconds=1, hz=100, end=ended)
    profile = Sampler(ManualClock(), ThreadSource()).run(order)
    assert profile is not None
    assert all(sample.labels["thread"] == "[not Python]" for sample in profile.samples)

"""The CPU profile looks at all threads many times a second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType

from inbound.clock import Clock, Flag
from inbound.observe.profiling.profile import Frame, Names, Profile, StackSample, ValueType
from inbound.observe.profiling.threads import DEEPEST, KnownThread, ThreadSource, labels_of, named

#: The part of one processor that looking may cost, unless the request names a frequency.
BUDGET = 0.02
#: Seconds that a look costs the threads that compute, beside the look itself: the interpreter changes hands twice, and caches
#: grow cold. Measured, see `profiling_cost_ratio` in docs/benchmarks.md; the sampler's own clock does not show it.
DISTURBANCE = 0.001
#: At least so many looks a second, however much a look costs.
FEWEST_HZ = 10
COUNT = ValueType("samples", "count")
CPU = ValueType("cpu", "nanoseconds")
WALL = ValueType("wall", "nanoseconds")
#: Bounds the memory of one profile; further stacks are counted as one.
MOST_STACKS = 10_000
#: Seconds between two checks of the client's connection, and of the cost.
ASK_EVERY = 0.25
_SECOND = 1_000_000_000
#: Stands for the callers that are left out, for stacks beyond the most, and for the CPU time of no known thread.
_OMITTED = Frame("[further callers]", "", 0)
_OTHERS = Frame(f"[stacks beyond the first {MOST_STACKS:,}]", "", 0)
_OUTSIDE = Frame("[not Python: threads of libraries, and threads that ended between two looks]", "", 0)

#: A stack while it is measured: for each call the code's id and the instruction, the innermost first. Numbers alone: hashing
#: code objects costs more than all the rest.
_Key = tuple[int, ...]


class SamplingPace:
    """Keeps the cost of looking within a budget.

    A look costs more the more threads have moved, and the colder the caches are.

    Fewer looks make a profile coarser, not wrong: a thread's clock tells its CPU time since the last look.
    """

    def __init__(self, hz: int, budget: float | None) -> None:
        """`budget` is a part of a processor; None: no bound."""
        self._shortest = self.period = 1 / hz
        self._longest = max(self._shortest, 1 / FEWEST_HZ)
        self._budget = budget

    def weigh(self, spent: float, looks: int, busy: float) -> None:
        """Set `period`, in seconds, by the cost of the last `looks`.

        `spent` is their own CPU time in seconds; `busy` is how many processors the other threads had. Only one of them has
        the interpreter, so a second one is not disturbed.
        """
        if self._budget is not None and looks:
            cost = spent / looks + DISTURBANCE * min(max(busy, 0.0), 1.0)
            self.period = min(max(cost / self._budget, self._shortest), self._longest)

    @property
    def slowed(self) -> bool:
        """Whether there are fewer looks than requested."""
        return self.period > self._shortest


@dataclass(slots=True, eq=False)
class _Entry:
    """One stack of one thread."""

    codes: tuple[CodeType, ...]  # keeps the code alive whose ids are in the key
    count: int = 0
    cpu: int = 0  # nanoseconds, as `wall`
    wall: int = 0


@dataclass(slots=True, eq=False)
class _Seen:
    """A thread while it is measured."""

    known: KnownThread
    wanted: bool
    table: dict[_Key, _Entry]
    cpu: int | None = None  # its clock at the last look
    last: _Entry | None = None


@dataclass(slots=True, kw_only=True)
class Order:
    """An order of a profile."""

    seconds: float
    hz: int
    end: Flag  # set: end at once, and return the profile so far
    #: The part of a processor that looking may cost; beyond it there are fewer looks.
    budget: float | None = None
    gone: Callable[[], bool] = lambda: False  # whether the client has gone; asked every `ASK_EVERY` seconds
    wanted: Callable[[str], bool] = lambda name: True  # threads, by their names


@dataclass(slots=True, eq=False)
class Sampler:
    """Takes one profile, in the thread that calls `run`.

    A thread whose CPU clock has not moved is where it was: its stack is not read again. So a waiting thread costs one system
    call a look, and a working one some tenths of a microsecond for each of its calls.
    """

    clock: Clock
    threads: ThreadSource
    _tables: dict[str, dict[_Key, _Entry]] = field(default_factory=dict)
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _stacks: int = 0
    _dropped: int = 0

    def run(self, order: Order) -> Profile | None:
        """Return the profile; None: the client has gone."""
        clock = self.clock
        clocks = self.threads.has_cpu_clocks()
        pace = SamplingPace(order.hz, order.budget if clocks else None)
        began, wall_ns, cpu_ns = clock.now(), int(clock.wall() * _SECOND), self.threads.process_cpu_ns()
        own = self.threads.cpu_ns(threading.get_native_id()) if clocks else 0
        until, asked, weighed, spent, used = began + order.seconds, began, 0, own, cpu_ns
        self._begin(order, clocks)
        looks, missed, slowed, last, due = 0, 0, False, began, began + pace.period
        while not clock.wait(order.end, max(0.0, due - clock.now())):
            now = clock.now()
            self._look(int((now - last) * _SECOND), order, clocks)
            looks, last = looks + 1, now
            if now >= until:
                break
            if now - asked >= ASK_EVERY:
                elapsed, asked = now - asked, now
                if order.gone():
                    return None
                if clocks:
                    before, spent = spent, self.threads.cpu_ns(threading.get_native_id())
                    used_before, used = used, self.threads.process_cpu_ns()
                    mine = spent - before
                    pace.weigh(mine / _SECOND, looks - weighed, (used - used_before - mine) / (elapsed * _SECOND))
                    weighed, slowed = looks, slowed or pace.slowed
            late = max(0, int((now - due) / pace.period))  # missed looks are not made up for
            missed += late
            due = min(due + pace.period * (late + 1), until)
        duration = int((clock.now() - began) * _SECOND)
        own = self.threads.cpu_ns(threading.get_native_id()) - own if clocks else 0
        cpu_ns = self.threads.process_cpu_ns() - cpu_ns
        samples, kind = self._samples(clocks), CPU if clocks else WALL
        if clocks and all(seen.wanted for seen in self._seen.values()):
            rest = cpu_ns - own - sum(sample.values[1] for sample in samples)
            if rest > 0:
                samples.append(StackSample((_OUTSIDE,), (0, rest, 0), {"thread": "[not Python]"}))
        return Profile(
            title="CPU", types=(COUNT, CPU, WALL) if clocks else (COUNT, WALL), default=kind.name, samples=samples,
            period=(kind, _SECOND // order.hz), time_ns=wall_ns, duration_ns=duration,
            comments=(
                f"{looks:,} looks in {duration / _SECOND:.2f} s: {looks / max(duration, 1) * _SECOND:.1f} a second of "
                f"{order.hz} asked for; {missed:,} were missed"
                + (f"; fewer, so that looking costs {order.budget:.0%} of a processor: hz={order.hz} in the address "
                   "looks so often at any cost" if slowed else ""),
                f"the sampler itself had a processor for {own / max(duration, 1):.2%} of the time; it is not in the profile",
                *([f"{self._dropped:,} looks at further stacks are counted as one"] if self._dropped else []),
                *([] if clocks else ["this system does not tell the CPU time of single threads"]),
            ),
        )  # fmt: skip

    def _begin(self, order: Order, clocks: bool) -> None:
        """Read the threads' clocks; a thread that starts later begins at 0."""
        self._meet(self.threads.frames().keys() - {threading.get_ident()}, order)
        for seen in self._seen.values() if clocks else ():
            if seen.known.number is not None:
                with suppress(OSError):  # it has ended since; the next look finds that
                    seen.cpu = self.threads.cpu_ns(seen.known.number)

    def _look(self, elapsed: int, order: Order, clocks: bool) -> None:
        """Look at all threads, `elapsed` nanoseconds after the last look."""
        frames = self.threads.frames()
        me = threading.get_ident()
        if frames.keys() ^ self._seen.keys() != {me}:
            self._meet(frames.keys() - {me}, order)
        for ident, frame in frames.items():
            seen = self._seen.get(ident)
            if seen is None or not seen.wanted:
                continue
            used = 0
            if clocks and seen.known.number is not None:
                try:
                    cpu = self.threads.cpu_ns(seen.known.number)
                except OSError:  # it has ended since; another thread may have its identity, and is met at the next look
                    del self._seen[ident]
                    continue
                if cpu == seen.cpu and seen.last is not None:
                    seen.last.count += 1
                    seen.last.wall += elapsed
                    continue
                used, seen.cpu = cpu - (seen.cpu or 0), cpu
            entry = seen.last = self._entry(seen.table, frame)
            entry.count += 1
            entry.cpu += used
            entry.wall += elapsed

    def _meet(self, idents: set[int], order: Order) -> None:
        known = self.threads.known()
        for ident in self._seen.keys() - idents:
            del self._seen[ident]
        for ident in idents - self._seen.keys():
            one = named(known, ident)
            self._seen[ident] = _Seen(one, order.wanted(one.name), self._tables.setdefault(one.name, {}))

    def _entry(self, table: dict[_Key, _Entry], innermost: FrameType) -> _Entry:
        key: list[int] = []
        codes: list[CodeType] = []
        frame: FrameType | None = innermost
        while frame is not None and len(codes) < DEEPEST:
            code = frame.f_code
            codes.append(code)
            key += (id(code), frame.f_lasti)
            frame = frame.f_back
        found = table.get(stack := tuple(key))
        if found is None:
            if self._stacks >= MOST_STACKS:
                self._dropped += 1
                stack, codes = (), []
                if (others := table.get(stack)) is not None:
                    return others
            self._stacks += 1
            found = table[stack] = _Entry(tuple(codes))
        return found

    def _samples(self, clocks: bool) -> list[StackSample]:
        names = Names()
        merged: dict[tuple[str, tuple[Frame, ...]], list[int]] = {}
        measured = (
            (thread, *item) for thread, table in self._tables.items() for item in table.items() if item[1].count
        )
        for thread, key, entry in measured:
            # Several instructions of one line are one place.
            frames = tuple(names.of_instruction(code, at) for code, at in zip(entry.codes, key[1::2], strict=True))
            if len(frames) == DEEPEST:
                frames += (_OMITTED,)
            values = merged.setdefault((thread, frames or (_OTHERS,)), [0, 0, 0])
            for place, value in enumerate((entry.count, entry.cpu, entry.wall)):
                values[place] += value
        return [
            StackSample(frames, tuple(values) if clocks else (values[0], values[2]), labels_of(thread))
            for (thread, frames), values in merged.items()
        ]

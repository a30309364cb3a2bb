"""Where threads are, looked at so many times a second: the CPU profile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FrameType

from inbound.clock import Clock, Flag
from inbound.profiling.code import Names
from inbound.profiling.pace import Pace
from inbound.profiling.profile import Frame, Profile, Sample, ValueType
from inbound.profiling.threads import Known, Threads, channel_of, has_cpu_clocks

COUNT = ValueType("samples", "count")
CPU = ValueType("cpu", "nanoseconds")
WALL = ValueType("wall", "nanoseconds")
#: Of a deeper stack the outermost calls are left out.
DEEPEST = 256
#: Bounds the memory of one profile: more different stacks than this are counted as one.
MOST_STACKS = 10_000
#: How often it is asked whether the client is still there, and what looking has cost, in seconds.
ASK_EVERY = 0.25
_SECOND = 1_000_000_000
#: Stands for the callers that are left out, for stacks beyond the most, and for CPU time of none of the threads seen.
_OMITTED = Frame("[further callers]", "", 0)
_OTHERS = Frame(f"[stacks beyond the first {MOST_STACKS:,}]", "", 0)
_OUTSIDE = Frame("[not Python: threads of libraries, and threads that ended between two looks]", "", 0)

#: A stack while it is measured: for each call the code's id and the instruction, the innermost first. Numbers alone: hashing
#: code objects costs more than all the rest.
_Key = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Entry:
    """One stack of one thread."""

    codes: tuple[CodeType, ...]  # keeps alive what the key has the ids of
    count: int = 0
    cpu: int = 0  # nanoseconds, as `wall`
    wall: int = 0


@dataclass(slots=True, eq=False)
class _Seen:
    """A thread while it is measured."""

    known: Known
    wanted: bool
    table: dict[_Key, _Entry]
    cpu: int | None = None  # its clock at the last look
    last: _Entry | None = None


@dataclass(slots=True, kw_only=True)
class Order:
    """What is asked for."""

    seconds: float
    hz: int
    end: Flag  # set: end at once, with what there is
    budget: float | None = (
        None  # the part of a processor that looking may cost; where it is more, there are fewer looks
    )
    gone: Callable[[], bool] = lambda: False  # whether nobody waits for it any more; asked now and then
    wanted: Callable[[str], bool] = lambda name: True  # threads, by their names


@dataclass(slots=True, eq=False)
class Sampler:
    """Takes one profile, in the thread that calls `run`, which does not see itself.

    A thread whose CPU clock stands still has not moved: its stack is not looked at again. So what waits costs one system call
    a look, and what works some tenths of a microsecond for each of its calls.
    """

    clock: Clock
    threads: Threads
    _tables: dict[str, dict[_Key, _Entry]] = field(default_factory=dict)
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _stacks: int = 0
    _dropped: int = 0

    def run(self, order: Order) -> Profile | None:
        """Return the profile, however long it became; None: nobody waits for it any more."""
        clock = self.clock
        clocks = has_cpu_clocks(self.threads)
        pace = Pace(order.hz, order.budget if clocks else None)
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
            late = max(0, int((now - due) / pace.period))  # what was missed is not made up for
            missed += late
            due = min(due + pace.period * (late + 1), until)
        duration = int((clock.now() - began) * _SECOND)
        own = self.threads.cpu_ns(threading.get_native_id()) - own if clocks else 0
        cpu_ns = self.threads.process_cpu_ns() - cpu_ns
        types = (COUNT, CPU, WALL) if clocks else (COUNT, WALL)
        samples = self._samples(clocks)
        everybody = all(seen.wanted for seen in self._seen.values())
        if clocks and everybody:
            rest = cpu_ns - own - sum(sample.values[1] for sample in samples)
            if rest > 0:
                samples.append(Sample((_OUTSIDE,), (0, rest, 0), {"thread": "[not Python]"}))
        kind = CPU if clocks else WALL
        return Profile(
            title="CPU", types=types, default=kind.name, samples=samples, period=(kind, _SECOND // order.hz),
            time_ns=wall_ns, duration_ns=duration,
            comments=(
                f"{looks:,} looks in {duration / _SECOND:.2f} s: {looks / max(duration, 1) * _SECOND:.1f} a second of "
                f"{order.hz} asked for; {missed:,} were missed"
                + (f"; fewer, so that looking costs {order.budget:.0%} of a processor: hz={order.hz} in the address "
                   "looks so often whatever it takes" if slowed else ""),
                f"the sampler itself had a processor for {own / max(duration, 1):.2%} of the time; it is not in the profile",
                *([f"{self._dropped:,} looks at further stacks are counted as one"] if self._dropped else []),
                *([] if clocks else ["this system does not tell the CPU time of single threads"]),
            ),
        )  # fmt: skip

    def _begin(self, order: Order, clocks: bool) -> None:
        """Take down the clocks of who is there; whoever comes later began at 0."""
        self._meet(self.threads.frames().keys() - {threading.get_ident()}, order)
        for seen in self._seen.values() if clocks else ():
            if seen.known.number is not None:
                with suppress(OSError):  # it has ended since, and is found out at the next look
                    seen.cpu = self.threads.cpu_ns(seen.known.number)

    def _look(self, elapsed: int, order: Order, clocks: bool) -> None:
        """See where everybody is, `elapsed` nanoseconds after the last look."""
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
                except OSError:  # it has ended since; another one may have its place, and is met at the next look
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
            one = known.get(ident) or Known(f"[thread {ident}]", None)
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

    def _samples(self, clocks: bool) -> list[Sample]:
        names = Names()
        merged: dict[tuple[str, tuple[Frame, ...]], list[int]] = {}
        for thread, table in self._tables.items():
            for key, entry in table.items():
                if not entry.count:
                    continue
                # Several instructions of one line are one place.
                frames = tuple(
                    names.of_instruction(code, instruction)
                    for code, instruction in zip(entry.codes, key[1::2], strict=True)
                )
                if len(frames) == DEEPEST:
                    frames += (_OMITTED,)
                values = merged.setdefault((thread, frames or (_OTHERS,)), [0, 0, 0])
                for place, value in enumerate((entry.count, entry.cpu, entry.wall)):
                    values[place] += value
        return [
            Sample(frames, tuple(values) if clocks else (values[0], values[2]), _labels(thread))
            for (thread, frames), values in merged.items()
        ]


def _labels(thread: str) -> dict[str, str]:
    channel = channel_of(thread)
    return {"thread": thread} if channel is None else {"thread": thread, "channel": channel}

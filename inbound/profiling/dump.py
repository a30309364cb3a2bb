"""Where every thread is at this moment."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FrameType

from inbound.profiling.code import Names
from inbound.profiling.profile import Frame, Profile, Sample, ValueType
from inbound.profiling.sampler import DEEPEST
from inbound.profiling.threads import Known, Threads, channel_of, state_of

THREADS = ValueType("threads", "count")


@dataclass(frozen=True, slots=True)
class Stood:
    """Where a thread was."""

    known: Known
    state: str | None
    stack: tuple[Frame, ...]  # the innermost call first


def taken(threads: Threads, wanted: Callable[[str], bool] = lambda name: True) -> list[Stood]:
    """Return where all threads but the calling one are, by their names."""
    found, known, me = threads.frames(), threads.known(), threading.get_ident()
    raw = [
        (known.get(ident) or Known(f"[thread {ident}]", None), _calls(frame))
        for ident, frame in found.items()
        if ident != me
    ]
    names = Names()
    return [
        Stood(
            one, state_of(one.number), tuple(names.of_instruction(frame.f_code, instruction) for frame, instruction in calls)
        )
        for one, calls in sorted(raw, key=lambda pair: pair[0].name)
        if wanted(one.name)
    ]  # fmt: skip


def _calls(innermost: FrameType) -> list[tuple[FrameType, int]]:
    """Return frames, and where each is now: all at once, before they go on."""
    calls: list[tuple[FrameType, int]] = []
    frame: FrameType | None = innermost
    while frame is not None and len(calls) < DEEPEST:
        calls.append((frame, frame.f_lasti))
        frame = frame.f_back
    return calls


def as_profile(stood: Iterable[Stood], now_ns: int) -> Profile:
    """Return them as a profile, in which each counts 1; those alike in place, name and state are one sample.

    `now_ns` since the Unix epoch.
    """
    alike: Counter[tuple[tuple[Frame, ...], tuple[tuple[str, str], ...]]] = Counter()
    for one in stood:
        labels = {"thread": one.known.name}
        if (channel := channel_of(one.known.name)) is not None:
            labels["channel"] = channel
        if one.state is not None:
            labels["state"] = one.state
        alike[one.stack, tuple(labels.items())] += 1
    samples = [Sample(stack, (count,), dict(labels)) for (stack, labels), count in alike.items()]
    return Profile(
        title="threads", types=(THREADS,), default=THREADS.name, samples=samples, period=(THREADS, 1),
        time_ns=now_ns,
    )  # fmt: skip


def grouped(stood: Iterable[Stood]) -> str:
    """Return them as text, those that are at the same place together, the most first (`debug=1`)."""
    together: dict[tuple[Frame, ...], list[str]] = {}
    for one in stood:
        together.setdefault(one.stack, []).append(one.known.name)
    total = sum(map(len, together.values()))
    lines = [f"threads profile: total {total}"]
    for stack, names in sorted(together.items(), key=lambda item: -len(item[1])):
        counted = (name if count == 1 else f"{name} ({count})" for name, count in Counter(names).items())
        lines += ["", f"{len(names)} @ {', '.join(counted)}"]
        lines += [f"#\t{frame.function}\t{frame.file}:{frame.line}" for frame in stack]
    return "\n".join(lines) + "\n"


def one_by_one(stood: Iterable[Stood]) -> str:
    """Return each as text, as a traceback of Go's has it: the innermost call first (`debug=2`)."""
    blocks = []
    for one in stood:
        known = one.known
        said = [one.state or "unknown", *(["daemon"] if known.daemon else []), f"system thread {known.number or '?'}"]
        lines = [f'thread "{known.name}" [{", ".join(said)}]:']
        for frame in one.stack:
            lines += [f"{frame.function}(...)", f"\t{frame.file}:{frame.line}"]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"

"""Draws plans from seeds, with one function for each kind of plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inbound.testing.simulation.plan import (
    BESIDE_DISPATCH,
    BESIDE_MIRRORS,
    BESIDE_OWNED,
    BESIDE_RELOADS,
    BESIDE_RESETS,
    EVERYTHING,
    MIRRORS,
    MOVES,
    PROBES,
    RELOADS,
    RESETS,
    SUBSCRIBERS,
    THEMES,
    Action,
    Dispatch,
    Plan,
    Setup,
)


def make_plan(seed: int, *, kinds: tuple[str, ...] = EVERYTHING) -> Plan:
    """Draw a plan of faults.

    Each seed takes only some of the kinds: combinations of few faults, often repeated, reach states that a mixture of all
    of them hardly ever does (Groce et al., Swarm Testing, ISSTA 2012).
    """
    rng = random.Random(f"plan {seed}")
    theme = [kind for kind in rng.choice(THEMES) if kind in kinds]
    count = rng.choice((1, 2, 3, 5, len(kinds)))
    chosen = theme if theme and rng.random() < 0.4 else rng.sample(kinds, min(count, len(kinds)))
    topics = (("orders", rng.randint(1, 6)), ("items", rng.randint(1, 3)))[: rng.choice((1, 1, 1, 2))]
    members = rng.choice((1, 2, 2, 3, 4))
    mixed = rng.random() < 0.2
    kinds_of_members = ("static 0", "static 1", "fixed-count 1", "fixed-count 2", "dynamic")
    setup = Setup(
        topics=topics,
        members=members,
        others=tuple(rng.choice(kinds_of_members) for _ in range(members)) if mixed else (),
        workers=rng.choice((1, 1, 2)),
        batch=rng.choice((1, 2, 4, 8)),
        latest=rng.random() < 0.2,
        moody=rng.random() < 0.5,
        traffic=rng.choice((0.05, 0.1, 0.3, 2.0)),
    )
    setup = _livelier(setup, rng)
    if "ledger fails" in chosen:
        setup = replace(setup, degrade=random.Random(f"ledger {seed}").random() < 0.5)
    storm = _storm(rng, chosen, 2, 12)
    return Plan(seed, setup, tuple(storm), tuple(rng.sample(PROBES, rng.choice((0, 1, 1, 2)))))


def make_reset_plan(seed: int) -> Plan:
    """Draw a plan with at least one reset, and faults around it."""
    rng = random.Random(f"reset plan {seed}")
    faults = rng.sample(BESIDE_RESETS, rng.choice((0, 1, 2, 3)))
    chosen = ["reset", "at step", *rng.sample(RESETS, rng.choice((0, 1, 2))), *faults]
    members = rng.choice((0, 1, 2, 2, 3, 4)) or 1
    mixed = rng.random() < 0.1
    setup = Setup(
        topics=(("orders", rng.randint(1, 6)), ("items", rng.randint(1, 3)))[: rng.choice((1, 1, 1, 2))],
        members=members,
        others=tuple(rng.choice(("static 0", "fixed-count 1", "dynamic")) for _ in range(members)) if mixed else (),
        workers=rng.choice((1, 1, 2)),
        batch=rng.choice((1, 2, 4, 8)),
        moody=rng.random() < 0.2,
        traffic=rng.choice((0.05, 0.1, 0.3)),
        resets=True,
        chunked=rng.random() < 0.3,
    )
    setup = _livelier(setup, rng)
    storm = _storm(rng, chosen, 1, 9)
    # What waits for a step comes before the reset that it waits for, and something is read before that.
    first = _action(rng, ["reset"], "mixed")
    storm.insert(min(len(storm), rng.choice((0, 1, 1, 2, 3))), first)
    return Plan(seed, setup, tuple(storm), tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_reload_plan(seed: int) -> Plan:
    """Draw a plan of processes whose further channels change."""
    rng = random.Random(f"reload plan {seed}")
    chosen = [*rng.choices(RELOADS, (3, 1), k=2), *rng.sample(BESIDE_RELOADS, rng.choice((0, 1, 1, 2, 3)))]
    setup = Setup(
        topics=(("orders", rng.randint(1, 4)), ("items", rng.randint(1, 2)))[: rng.choice((1, 2))],
        members=rng.choice((1, 1, 2, 2, 3)),
        workers=rng.choice((1, 1, 2)),
        batch=rng.choice((1, 2, 4, 8)),
        moody=rng.random() < 0.4,
        traffic=rng.choice((0.05, 0.1, 0.3)),
        channels=rng.choice((1, 2)),
    )
    setup = _livelier(setup, rng)
    storm = _storm(rng, chosen, 1, 10)
    storm.insert(rng.randint(0, len(storm)), _action(rng, ["reload"], "mixed"))
    return Plan(seed, setup, tuple(storm), tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_dispatch_plan(seed: int) -> Plan:
    """Draw a plan of a group that posts events to a subscriber."""
    rng = random.Random(f"dispatch plan {seed}")
    chosen = rng.sample(SUBSCRIBERS, rng.choice((1, 1, 2, 3)))
    chosen += [*rng.sample(MOVES, rng.choice((0, 1, 2))), *rng.sample(BESIDE_DISPATCH, rng.choice((0, 0, 1, 2)))]
    batch = rng.choice((0, 0, 3))
    dispatch = Dispatch(
        ordering=rng.choice(("partition", "partition", "key", "none")),
        window=rng.choice((3, 4, 8)),
        sink=rng.choice(("", "topic", "url")),
        batch=batch,
        retry=rng.choice((0, 1, 3)),
        replies=rng.random() < 0.3,
        structured=rng.random() < 0.3,
    )
    setup = Setup(
        topics=(("orders", rng.randint(1, 4)),),
        members=rng.choice((1, 2, 2, 3)),
        batch=rng.choice((1, 2, 4, 8)),
        traffic=rng.choice((0.05, 0.1, 0.3)),
        begins=round(rng.choice((2.0, rng.uniform(2.5, 6.0))), 3),
        dispatch=dispatch,
    )
    storm = _storm(rng, chosen, 2, 10)
    return Plan(seed, setup, tuple(storm), tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_owned_plan(seed: int) -> Plan:
    """Draw a plan of processors that own their offsets, and may hang."""
    rng = random.Random(f"owned plan {seed}")
    theme = [kind for kind in rng.choice(THEMES) if kind in BESIDE_OWNED]
    chosen = theme if rng.random() < 0.4 else rng.sample(BESIDE_OWNED, rng.choice((1, 2, 3, 5)))
    setup = Setup(
        topics=(("orders", rng.randint(1, 4)), ("items", rng.randint(1, 2)))[: rng.choice((1, 1, 2))],
        members=rng.choice((1, 2, 2, 3)),
        workers=rng.choice((1, 2)),
        batch=rng.choice((1, 2, 4, 8)),
        work=rng.choice((0.0, 0.02, 0.2)),
        begins=round(rng.choice((2.0, rng.uniform(2.5, 6.0))), 3),
        later=rng.random() < 0.4,
        traffic=rng.choice((0.05, 0.1, 0.3)),
        owns=True,
        patience=rng.choice((25.0, 2.0)),
    )
    storm = _storm(rng, chosen, 2, 12)
    return Plan(seed, setup, tuple(storm), tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_mirror_plan(seed: int) -> Plan:
    """Draw a plan of a group that mirrors its offsets to Kafka."""
    rng = random.Random(f"mirror plan {seed}")
    chosen = rng.sample(MIRRORS, rng.choice((0, 1, 1, 2)))
    chosen += [*rng.sample(MOVES, rng.choice((0, 1, 2))), *rng.sample(BESIDE_MIRRORS, rng.choice((1, 1, 2)))]
    setup = Setup(
        topics=(("orders", rng.randint(1, 4)), ("items", rng.randint(1, 2)))[: rng.choice((1, 1, 2))],
        members=rng.choice((1, 2, 2, 3)),
        batch=rng.choice((1, 2, 4, 8)),
        moody=rng.random() < 0.3,
        traffic=rng.choice((0.1, 0.3, 2.0)),
        mirror=True,
    )
    setup = _livelier(setup, rng)
    drawn = _storm(rng, chosen, 1, 10)
    longer = [rng.uniform(4.0, 16.0) if action.kind in MIRRORS else action.seconds for action in drawn]
    storm = tuple(replace(action, seconds=round(seconds, 3)) for action, seconds in zip(drawn, longer, strict=True))
    return Plan(seed, setup, storm)


#: Kinds of plans by name: what draws one, and the kinds of actions that it draws from.
PLANS: Mapping[str, tuple[Callable[[int], Plan], tuple[str, ...]]] = {
    "faults": (make_plan, EVERYTHING),
    "reset": (make_reset_plan, (*RESETS, *BESIDE_RESETS)),
    "reload": (make_reload_plan, (*RELOADS, *BESIDE_RELOADS)),
    "dispatch": (make_dispatch_plan, (*SUBSCRIBERS, *BESIDE_DISPATCH)),
    "owned": (make_owned_plan, BESIDE_OWNED),
    "mirror": (make_mirror_plan, (*MIRRORS, *BESIDE_MIRRORS)),
}
#: The kind of each seed, by what is left of it when divided by 20; else `faults`.
MIXED = {9: "reset", 19: "reset", 4: "reload", 14: "reload", 6: "dispatch", 16: "dispatch", 1: "mirror", 11: "owned"}


def plan_of(seed: int, kind: str = "mixed") -> Plan:
    """Return a seed's plan, of a kind in `PLANS`, or `mixed`."""
    make, _ = PLANS[MIXED.get(seed % 20, "faults") if kind == "mixed" else kind]
    plan, rng = make(seed), random.Random(f"window {seed}")
    window = rng.choice((0, 1, 3, 20, Setup.window))
    interval = rng.choice((0.0, Setup.interval, 0.3))
    return replace(plan, setup=replace(plan.setup, window=window, interval=interval, leads=rng.random() < 0.5))


def _livelier(setup: Setup, rng: random.Random) -> Setup:
    """Add slow callbacks, other answers, given-up records and preemption to some plans."""
    setup = replace(
        setup, work=rng.choice((0.0, 0.0, 0.02, 0.2)), begins=round(rng.choice((2.0, rng.uniform(2.5, 6.0))), 3),
        preempted=rng.choice((0.0, 0.01, 0.1)), on_truncation=rng.choice(("hold", "earliest", "latest")),
    )  # fmt: skip
    if setup.resets:
        setup = replace(setup, patience=rng.choice((25.0, 25.0, 1.5)))
        if setup.patience < 25.0:  # then callbacks hang, and processors are cancelled
            setup = replace(setup, work=rng.choice((setup.work, 4.0)), moody=rng.random() < 0.6)
    if not setup.moody:
        return setup
    cancelled = setup.patience < 25.0
    setup = replace(
        setup,
        later=rng.random() < (0.7 if cancelled else 0.4),
        gives_up=rng.choice(("skip", "dead-letter") if cancelled else ("", "", "skip", "dead-letter")),
    )
    takes = (0.0, 3.0) if cancelled else (0.0, 0.3, 3.0)
    return replace(setup, letters_take=rng.choice(takes) if setup.gives_up == "dead-letter" else 0.0)


def _storm(rng: random.Random, kinds: Sequence[str], fewest: int, most: int) -> list[Action]:
    pace = rng.choice(("close", "mixed", "mixed", "wide"))
    return [_action(rng, kinds, pace) for _ in range(rng.randint(fewest, most))]


def _action(rng: random.Random, kinds: Sequence[str], pace: str) -> Action:
    kind = rng.choice(kinds)
    seconds = rng.choice((rng.uniform(0.01, 0.5), rng.uniform(0.5, 4.0), rng.uniform(3.0, 10.0)))
    if kind == "freeze" and rng.random() < 0.5:
        seconds = rng.uniform(4.2, 6.0)  # just longer than the session: others have taken over
    gaps = {"close": (0.005, 0.05, 0.3), "mixed": (0.01, 0.3, 1.5), "wide": (0.5, 2.0, 6.0)}[pace]
    return Action(
        wait=round(rng.uniform(0, rng.choice(gaps)), 3),
        kind=kind,
        who=rng.randrange(12),
        where=rng.randrange(12),
        size=rng.choice((1, 1, 2, 3, 6)),
        seconds=round(seconds, 3),
        flag=rng.random() < 0.5,
    )

"""What is going to happen in one simulated run: everything but the interleaving, drawn from a seed beforehand.

A plan is a value: its repr is Python that makes it again, and it can be cut down to what still fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

#: Faults after which nothing may be repeated (design: shutdown, rebalance, an outage of ZooKeeper, a broker's death).
GENTLE = (
    "join", "leave", "disconnect", "lose answers", "drop requests", "lag", "slow network", "outage", "brokers down",
    "leader lost", "gap", "grow", "slow callback", "jump wall clock",
    "stranger", "pause", "stuck write", "ledger fails", "dead letters fail", "client fails", "other client",
)  # fmt: skip
#: Those that cost a process its session, or its life.
ROUGH = ("kill", "dies writing", "freeze", "cut off", "expire", "expire all", "restart", "double")
#: Those that move positions from outside.
MOVING = ("retain", "cut", "reposition", "gate", "owner deleted", "recreate")
#: Those that take the offset out of its node, or the right to use a node.
HANDS = ("offset emptied", "offset deleted", "offset garbled", "offset refused", "epoch refused")
EVERYTHING = (*GENTLE, *ROUGH, *MOVING, *HANDS)
#: Kinds that reach deep together: identity, requests in flight, interference from outside, zombies, logs.
THEMES = (
    ("restart", "double", "expire", "freeze", "cut off", "slow network", "kill"),
    ("stuck write", "drop requests", "lose answers", "disconnect", "join", "leave"),
    ("reposition", "gate", "owner deleted", "slow network", "slow callback", "join"),
    ("freeze", "slow callback", "slow network", "expire", "cut off"),
    ("freeze", "slow network", "join"),
    ("retain", "gap", "grow", "recreate", "leader lost", "brokers down"),
    (*HANDS, "join", "leave", "restart", "kill", "expire", "gate", "owner deleted"),
    ("cut", "leader lost", "retain", "gap", "brokers down"),
    ("cut", "kill", "freeze", "expire", "stuck write", "leave", "join"),
    ("client fails", "other client", "cut", "retain", "pause", "join", "leave"),
    ("other client", "recreate", "reposition", "dies writing", "join", "leave"),
    ("cut", "dies writing", "lose answers", "join"),
    ("cut", "retain"),
    ("recreate", "dies writing"),
)
#: What resets are played with: who changes positions, gates or topics beside them is left out.
BESIDE_RESETS = (
    "join", "leave", "disconnect", "lose answers", "drop requests", "lag", "slow network", "outage", "brokers down",
    "leader lost", "gap", "grow", "slow callback", "stranger", "pause", "stuck write", "ledger fails", "dead letters fail",
    "client fails", "other client", "retain", "cut",
    "kill", "dies writing", "freeze", "hang", "cut off", "expire", "expire all", "restart", "crowd", "offset refused",
    "epoch refused",
)  # fmt: skip
#: What is done to resets, and to their leaders.
RESETS = ("reset", "reset other group", "cancel", "delete command", "leader", "at step")
#: A process gets another configuration, or one that it cannot use.
RELOADS = ("reload", "bad reload")
#: What happens beside that. Two processes of one id end each other.
BESIDE_RELOADS = tuple(kind for kind in EVERYTHING if kind != "double")
#: What is done to events that are posted: by their subscriber, by who takes its replies, and by the dead letter sink.
SUBSCRIBERS = (
    "subscriber refuses", "subscriber fails", "subscriber busy", "subscriber hangs", "subscriber late", "subscriber cuts",
    "subscriber dead", "replies refuses", "replies fails", "replies cuts", "dead letters fail",
)  # fmt: skip
#: What makes others post the same events, or the same process once more.
MOVES = ("kill", "expire", "freeze", "restart", "leave", "join")
#: What happens beside that: no tool moves offsets from outside, as events that are passed over then need not be posted.
BESIDE_DISPATCH = tuple(kind for kind in EVERYTHING if kind not in ("reposition", "recreate", "dead letters fail"))
#: What the coordinator of the Kafka group does that offsets are mirrored to; and what happens beside that.
MIRRORS = ("groups hang", "groups down", "groups load", "groups live", "groups denied")
BESIDE_MIRRORS = tuple(kind for kind in EVERYTHING if kind not in ("double", "owner deleted"))
#: What happens to processors that keep offsets of their own: who deletes a topic deletes those, too.
BESIDE_OWNED = (*(kind for kind in EVERYTHING if kind not in ("double", "recreate", "dead letters fail")), "hang")
#: What is looked at once all is well again; each must change no more than it has to.
PROBES = ("join", "leave", "blink", "outage", "expire all", "pause")


@dataclass(frozen=True)
class Action:
    """One thing that happens: `wait` seconds after the one before. `who` and `where` are taken modulo what there is."""

    wait: float
    kind: str
    who: int = 0
    where: int = 0
    size: int = 1
    seconds: float = 0.0
    flag: bool = False


@dataclass(frozen=True)
class Dispatch:
    """How the group's events are posted to a subscriber; see `dispatching`."""

    ordering: str = "partition"
    window: int = 4
    #: Where dead letters go: "topic", "url"; else events are retried without end.
    sink: str = ""
    #: Events in one request, at most; 0: one by one.
    batch: int = 0
    retry: int = 2
    replies: bool = False
    structured: bool = False


@dataclass(frozen=True)
class Setup:
    """The cluster as it starts."""

    topics: tuple[tuple[str, int], ...] = (("orders", 4),)
    members: int = 2
    workers: int = 1
    batch: int = 4
    session: float = 4.0
    #: Coordinators of the first members, others are dynamic; see `shares.make`.
    others: tuple[str, ...] = ()
    latest: bool = False
    #: What members do about logs that are cut below the commit.
    on_truncation: str = "hold"
    #: `max_uncommitted_records`, and `commit_interval` in seconds.
    window: int = 10_000
    interval: float = 0.02
    #: Workers poll, as in production; else a part of its own does, as beside an event loop.
    leads: bool = False
    #: Answers other than advance: partial advances, reverts, next, errors.
    moody: bool = False
    #: How long a callback takes, at most: seconds.
    work: float = 0.0
    #: When the storm begins: before the group has come to rest, or after. Seconds.
    begins: float = 2.0
    #: These answer as coroutines do, each batch of many partitions at once.
    later: bool = False
    #: What becomes of records that fail: "skip", "dead-letter"; else they are retried without end.
    gives_up: str = ""
    #: How often another thread of a process goes on first, where one may be stopped: of 1.
    preempted: float = 0.0
    #: A process that cannot write its ledger goes on without, instead of delivering nothing.
    degrade: bool = False
    #: How long sending a dead letter takes where processors answer later. Seconds.
    letters_take: float = 0.0
    #: `shutdown_timeout`: how long a callback may take where a reset or a shutdown waits for it. Seconds.
    patience: float = 25.0
    #: Seconds between two publications to some partition, while the storm lasts.
    traffic: float = 0.2
    #: How many further channels processes may run, each in a group of its own; see `channels`.
    channels: int = 0
    #: Events are posted to a subscriber, instead of being handed to a processor of the simulator's own.
    dispatch: Dispatch | None = None
    #: Processors keep their offsets beside their results.
    owns: bool = False
    #: Offsets go to a Kafka group, too.
    mirror: bool = False
    #: Each process carries resets out.
    resets: bool = False
    #: Each partition of a reset is moved by a transaction of its own, as if all together were too large for one.
    chunked: bool = False


@dataclass(frozen=True)
class Plan:
    """One run: a storm of actions, then calm, then probes."""

    seed: int
    setup: Setup = field(default_factory=Setup)
    storm: tuple[Action, ...] = ()
    probes: tuple[str, ...] = ()
    #: The first so many steps of the storm happen in a random order, the others in a fixed one.
    shuffled: int = 1 << 30


def make_plan(seed: int, *, kinds: tuple[str, ...] = EVERYTHING) -> Plan:
    """Draw a plan.

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
    pace = rng.choice(("close", "mixed", "mixed", "wide"))
    storm = tuple(_action(rng, chosen, pace) for _ in range(rng.randint(2, 12)))
    return Plan(seed, setup, storm, tuple(rng.sample(PROBES, rng.choice((0, 1, 1, 2)))))


def make_reset_plan(seed: int) -> Plan:
    """Draw a plan with at least one reset, and things that happen to it."""
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
    pace = rng.choice(("close", "mixed", "mixed", "wide"))
    storm = [_action(rng, chosen, pace) for _ in range(rng.randint(1, 9))]
    # What waits for a step comes before the reset that it waits for, and something is read before that.
    first = _action(rng, ["reset"], "mixed")
    storm.insert(min(len(storm), rng.choice((0, 1, 1, 2, 3))), first)
    return Plan(seed, setup, tuple(storm), tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_reload_plan(seed: int) -> Plan:
    """Draw a plan of processes that take in other configurations: further channels come, change and go."""
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
    pace = rng.choice(("close", "mixed", "mixed", "wide"))
    storm = [_action(rng, chosen, pace) for _ in range(rng.randint(1, 10))]
    storm.insert(rng.randint(0, len(storm)), _action(rng, ["reload"], "mixed"))
    return Plan(seed, setup, tuple(storm), tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_dispatch_plan(seed: int) -> Plan:
    """Draw a plan of a group that posts its events to a subscriber."""
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
    pace = rng.choice(("close", "mixed", "mixed", "wide"))
    storm = tuple(_action(rng, chosen, pace) for _ in range(rng.randint(2, 10)))
    return Plan(seed, setup, storm, tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_owned_plan(seed: int) -> Plan:
    """Draw a plan of processors that keep their offsets beside their results, and whose callbacks may hang."""
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
    pace = rng.choice(("close", "mixed", "mixed", "wide"))
    storm = tuple(_action(rng, chosen, pace) for _ in range(rng.randint(2, 12)))
    return Plan(seed, setup, storm, tuple(rng.sample(PROBES, rng.choice((0, 0, 1)))))


def make_mirror_plan(seed: int) -> Plan:
    """Draw a plan of a group whose offsets go to Kafka, too."""
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
    pace = rng.choice(("close", "mixed", "mixed", "wide"))
    drawn = [_action(rng, chosen, pace) for _ in range(rng.randint(1, 10))]
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
    """Return the plan of a seed: of a kind of `PLANS`, or `mixed`: of the one that `MIXED` says."""
    make, _ = PLANS[MIXED.get(seed % 20, "faults") if kind == "mixed" else kind]
    plan, rng = make(seed), random.Random(f"window {seed}")
    window = rng.choice((0, 1, 3, 20, Setup.window))
    interval = rng.choice((0.0, Setup.interval, 0.3))
    return replace(plan, setup=replace(plan.setup, window=window, interval=interval, leads=rng.random() < 0.5))


def _livelier(setup: Setup, rng: random.Random) -> Setup:
    """Let processors of some plans take their time, answer all kinds of things, give records up; and threads be stopped."""
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


def _action(rng: random.Random, kinds: list[str], pace: str) -> Action:
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

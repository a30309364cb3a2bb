"""What is going to happen in one simulated run: everything but the interleaving, drawn from a seed beforehand.

A plan is a value: its repr is Python that makes it again, and it can be cut down to what still fails.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

#: Faults after which nothing may be repeated (design: shutdown, rebalance, an outage of ZooKeeper, a broker's death).
GENTLE = (
    "join", "leave", "disconnect", "lose answers", "drop requests", "lag", "slow network", "outage", "brokers down",
    "leader lost", "gap", "grow", "slow callback", "jump wall clock",
    "stranger", "pause", "stuck write", "ledger fails", "dead letters fail",
)  # fmt: skip
#: Those that cost a process its session, or its life.
ROUGH = ("kill", "freeze", "cut off", "expire", "expire all", "restart", "double")
#: Those that move positions from outside.
MOVING = ("retain", "reposition", "gate", "owner deleted", "recreate")
#: Those that take the offset out of its node, or the right to use a node.
HANDS = ("offset emptied", "offset deleted", "offset garbled", "offset refused", "epoch refused")
EVERYTHING = (*GENTLE, *ROUGH, *MOVING, *HANDS)
#: Kinds that reach deep together: identity, requests on their way, interference from outside, zombies, logs.
THEMES = (
    ("restart", "double", "expire", "freeze", "cut off", "slow network", "kill"),
    ("stuck write", "drop requests", "lose answers", "disconnect", "join", "leave"),
    ("reposition", "gate", "owner deleted", "slow network", "slow callback", "join"),
    ("freeze", "slow callback", "slow network", "expire", "cut off"),
    ("freeze", "slow network", "join"),
    ("retain", "gap", "grow", "recreate", "leader lost", "brokers down"),
    (*HANDS, "join", "leave", "restart", "kill", "expire", "gate", "owner deleted"),
)
#: What resets are played with: who changes positions, gates or topics beside them is left out.
BESIDE_RESETS = (
    "join", "leave", "disconnect", "lose answers", "drop requests", "lag", "slow network", "outage", "brokers down",
    "leader lost", "gap", "grow", "slow callback", "stranger", "pause", "stuck write", "ledger fails", "dead letters fail",
    "retain",
    "kill", "freeze", "cut off", "expire", "expire all", "restart", "crowd", "offset refused", "epoch refused",
)  # fmt: skip
#: What is done to resets, and to whoever carries them out.
RESETS = ("reset", "reset other group", "cancel", "delete command", "leader", "at step")
#: Of the seeds of both kinds, every so-manieth plays resets.
SHARE_OF_RESETS = 10
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
    #: Answers other than advance: partial advances, reverts, next, errors.
    moody: bool = False
    #: How long a callback takes, at most: seconds.
    work: float = 0.0
    #: When the storm begins: before the group has come to rest, or after. Seconds.
    begins: float = 2.0
    #: These answer as coroutines do, each batch of many partitions at once.
    later: bool = False
    #: What becomes of records that fail: "skip", "dead-letter"; else they are tried for ever.
    gives_up: str = ""
    #: How often another thread of a process goes on first, where one may be stopped: of 1.
    preempted: float = 0.0
    #: How long sending a dead letter takes where processors answer later. Seconds.
    letters_take: float = 0.0
    #: `shutdown_timeout`: how long a reset waits for a callback. Seconds.
    patience: float = 25.0
    #: Seconds between two publications to some partition, while the storm lasts.
    traffic: float = 0.2
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
        moody=rng.random() < 0.3,
        traffic=rng.choice((0.05, 0.1, 0.3, 2.0)),
    )
    setup = _livelier(setup, rng)
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


def plan_of(seed: int, kind: str = "mixed") -> Plan:
    """Return the plan of a seed: `faults` without resets, `reset` with them, or `mixed`: every tenth one with."""
    if kind == "reset" or (kind == "mixed" and seed % SHARE_OF_RESETS == SHARE_OF_RESETS - 1):
        return make_reset_plan(seed)
    return make_plan(seed)


def _livelier(setup: Setup, rng: random.Random) -> Setup:
    """Let processors of some plans take their time, answer all kinds of things, give records up; and threads be stopped."""
    setup = replace(
        setup,
        work=rng.choice((0.0, 0.0, 0.02, 0.2)),
        begins=round(rng.choice((2.0, rng.uniform(2.5, 6.0))), 3),
        preempted=rng.choice((0.0, 0.01, 0.1)),
    )
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
    return replace(setup, letters_take=rng.choice((0.0, 0.3, 3.0)) if setup.gives_up == "dead-letter" else 0.0)


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

"""A plan says what happens in one simulated run.

It has everything but the interleaving. A plan is a value: its repr is Python that makes it again, and it can be cut down to
what still fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
#: Those that take an offset out of its node, or the right to use a node.
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
#: Faults beside resets; none of them changes positions, gates or topics, too.
BESIDE_RESETS = (
    "join", "leave", "disconnect", "lose answers", "drop requests", "lag", "slow network", "outage", "brokers down",
    "leader lost", "gap", "grow", "slow callback", "stranger", "pause", "stuck write", "ledger fails", "dead letters fail",
    "client fails", "other client", "retain", "cut",
    "kill", "dies writing", "freeze", "hang", "cut off", "expire", "expire all", "restart", "crowd", "offset refused",
    "epoch refused",
)  # fmt: skip
#: Resets, and faults of resets and of their leaders.
RESETS = ("reset", "reset other group", "cancel", "delete command", "leader", "at step")
#: A process gets another configuration, or one that it cannot use.
RELOADS = ("reload", "bad reload")
#: Faults beside reloads. Two processes of one id end each other.
BESIDE_RELOADS = tuple(kind for kind in EVERYTHING if kind != "double")
#: Faults of the subscriber that events are posted to, of the receiver of its replies, and of the dead letter sink.
SUBSCRIBERS = (
    "subscriber refuses", "subscriber fails", "subscriber busy", "subscriber hangs", "subscriber late", "subscriber cuts",
    "subscriber dead", "replies refuses", "replies fails", "replies cuts", "dead letters fail",
)  # fmt: skip
#: Faults after which events are posted again.
MOVES = ("kill", "expire", "freeze", "restart", "leave", "join")
#: Faults beside dispatch: no tool moves offsets, as events that it passes over need not be posted.
BESIDE_DISPATCH = tuple(kind for kind in EVERYTHING if kind not in ("reposition", "recreate", "dead letters fail"))
#: Faults of the coordinator of the Kafka group that offsets are mirrored to; and faults beside them.
MIRRORS = ("groups hang", "groups down", "groups load", "groups live", "groups denied")
BESIDE_MIRRORS = tuple(kind for kind in EVERYTHING if kind not in ("double", "owner deleted"))
#: Faults of processors that own their offsets; a deleted topic would take those, too.
BESIDE_OWNED = (*(kind for kind in EVERYTHING if kind not in ("double", "recreate", "dead letters fail")), "hang")
#: Probes of the settled group; each must change no more than it has to.
PROBES = ("join", "leave", "blink", "outage", "expire all", "pause")


@dataclass(frozen=True)
class Action:
    """One thing that happens, `wait` seconds after the previous one."""

    wait: float
    kind: str
    who: int = 0  # modulo the processes
    where: int = 0  # modulo the partitions, resets or steps
    size: int = 1
    seconds: float = 0.0
    flag: bool = False


@dataclass(frozen=True)
class Dispatch:
    """How the group's events are posted to a subscriber; see `subscribers`."""

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
    #: Coordinators of the first members, others are dynamic; see `resting_group.make`.
    others: tuple[str, ...] = ()
    latest: bool = False
    #: What members do about logs that were cut below the commit.
    on_truncation: str = "hold"
    #: `max_uncommitted_records`, and `commit_interval` in seconds.
    window: int = 10_000
    interval: float = 0.02
    #: Workers poll, as in production; else a separate part does, as beside an event loop.
    leads: bool = False
    #: Answers other than advance: partial advances, reverts, next, errors.
    moody: bool = False
    #: How long a callback takes at most, in seconds.
    work: float = 0.0
    #: When the storm begins: before the group has come to rest, or after. Seconds.
    begins: float = 2.0
    #: Processors answer as coroutines, for batches of many partitions at once.
    later: bool = False
    #: The policy for records that fail: "skip", "dead-letter"; else they are retried without end.
    gives_up: str = ""
    #: The probability that another thread of a process goes first, where one may be stopped.
    preempted: float = 0.0
    #: A process that cannot write its ledger continues without it, instead of delivering nothing.
    degrade: bool = False
    #: How long sending a dead letter takes where processors answer later. Seconds.
    letters_take: float = 0.0
    #: `shutdown_timeout`: how long a callback may take where a reset or a shutdown waits for it. Seconds.
    patience: float = 25.0
    #: Seconds between two publications to some partition, while the storm lasts.
    traffic: float = 0.2
    #: How many further channels processes may run, each in its own group; see `channels`.
    channels: int = 0
    #: Events are posted to a subscriber, instead of being handed to a processor of the simulator's own.
    dispatch: Dispatch | None = None
    #: Processors keep their offsets beside their results.
    owns: bool = False
    #: Offsets go to a Kafka group, too.
    mirror: bool = False
    #: Each process carries resets out.
    resets: bool = False
    #: A separate transaction moves each partition of a reset, as if all together were too large for one.
    chunked: bool = False


@dataclass(frozen=True)
class Plan:
    """One run: a storm of actions, then calm, then probes."""

    seed: int
    setup: Setup = field(default_factory=Setup)
    storm: tuple[Action, ...] = ()
    probes: tuple[str, ...] = ()
    #: The number of first steps of the storm whose events happen in random order; the others are in a fixed one.
    shuffled: int = 1 << 30

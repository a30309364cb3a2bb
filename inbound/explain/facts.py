"""What an explanation is made of: facts about one partition, its channel and the session, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """A partition that this process holds. Times are in seconds; `None` means that there is no such thing."""

    topic: str
    partition: int
    place: str = "scheduled"  # see `inbound.channel.partition.Place`
    fate: str = "keep"  # keep, release or drop
    epoch: int = 0
    position: int = 0  # next offset to hand out
    committed: int | None = None
    end: int | None = None  # where what can be read ends, as far as is known
    buffered: int = 0  # records read ahead
    buffered_bytes: int = 0
    advanced_for: float = 0.0  # since a commit landed, or records were handed out that were not before
    still_for: float = 0.0  # since that, or since there was nothing to do, or somebody wanted it to rest
    rate: float = 0.0  # records a second, of late
    held_for: float = 0.0  # since the claim
    settling_for: float | None = None  # since its commit is on its way
    uncommitted: int = 0  # records that were answered for, and whose commit is on its way
    commit_problem: str | None = None  # why ZooKeeper refuses it
    callback_for: float | None = None  # since on_next_batch was called with the batch in hand, or another callback
    callback: str = "on_next_batch"  # which one that is
    batch: tuple[int, int] | None = None  # its offsets: first, next
    stack: str | None = None  # where its thread or coroutine is
    rest_for: float = 0.0  # until the next read, as the processor's answer or a back-off says
    attempts: int = 0  # failures in a row
    failing: tuple[int, int] | None = None  # offsets of what fails: first, next
    last_error: str | None = None
    held: str | None = None  # why nothing is read before somebody acts
    held_cause: str | None = None
    dead_letter_problem: str | None = None
    read_error: str | None = None  # what the brokers said of the last fetch
    refused: bool = False  # and whether it is a matter of rights
    out_of_range: str | None = None
    no_room: bool = False  # the processor's `room` says 0
    reverts: int = 0  # how often in a row one went back to `reverted_to`
    reverted_to: int | None = None
    waits: tuple[str, str] | None = None  # what the processor says of it: see BatchEventProcessor.waits
    opened: bool = True  # the reader reads it
    reader_paused: bool = False  # the reader fetches nothing of it: it has enough, or must not
    led: bool = True  # its leader answers
    #: Records up to the end that the client does not fetch: as found when it was asked, twice in a row.
    unread: int = 0

    @property
    def lag(self) -> int | None:
        """Records in the log that are not committed; None while the end is not known."""
        return (
            None
            if self.end is None
            else max(0, self.end - (self.position if self.committed is None else self.committed))
        )

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFacts:
    """The channel that holds it."""

    name: str = "channel"
    group: str = "group"
    consumer: str = "consumer"
    pauses: tuple[str, ...] = ()  # who paused, since when, and how it ends
    #: Resets that have closed a gate: topic, name, step (empty: not known), and seconds since then (None: not known).
    resets: tuple[tuple[str, str, str, float | None], ...] = ()
    kafka_problem: str | None = None
    kafka_refused: bool = False  # the brokers do not let us in
    ledger_problem: str | None = None
    degrade: bool = False  # it goes on without its ledger
    topic_exists: bool = True
    workers: int = 1
    event_loop: bool = False  # instead of workers: all callbacks share it
    busy: tuple[tuple[str, float], ...] = ()  # partitions in callbacks, the longest first, with seconds
    prefetch: tuple[int, int] = (0, 0)  # bytes read ahead in all, and how many may be
    fullest: tuple[tuple[str, int], ...] = ()  # partitions with most of it, and bytes
    silent: tuple[str, ...] = ()  # internal threads that are dead or stuck, with where they are
    commits_waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """The ZooKeeper session."""

    connected: bool = True
    certain: bool = True  # of this partition's owner node
    away_for: float | None = None
    known_pauses: bool = True  # the pauses were read on this connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it."""

    partition: PartitionFacts
    channel: ChannelFacts = field(default_factory=ChannelFacts)
    session: SessionFacts = field(default_factory=SessionFacts)

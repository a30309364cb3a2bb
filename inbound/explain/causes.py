"""Why a partition does what it does: one cause, always. Pure; the order of the rules is the order of precedence.

First what stops everything (session, pause), then what somebody must act on (held, out of range), then who has the
partition at the moment, and last, if nobody has it, what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from inbound.explain.cause import Cause, Explanation, duration
from inbound.explain.facts import Facts

#: A partition that moves is catching up, and not just healthy, while it has so many seconds of work before it.
FAR_BEHIND = 5.0


def explain(facts: Facts, patience: float) -> Explanation:
    """Return the cause. `patience` is how long, in seconds, something may take before it counts as standing still."""
    for rule in _RULES:
        found = rule(facts, patience)
        if found is not None:
            return found
    return _idle(facts)


Rule = Callable[[Facts, float], Explanation | None]


# -- what stops everything -----------------------------------------------------------------------------------------


def _gone(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.place in {"abandoned", "gone"}:
        return Explanation(
            Cause.ABANDONED,
            "this process gave it up, but a callback of it still runs; until that ends it is not claimed again here",
            "let the callback end, or restart this process; others may take the partition meanwhile",
            p.callback_for,
        )
    if p.fate == "drop":
        return Explanation(
            Cause.LOST,
            "another consumer has claimed it, or its topic was made anew; this process drops it without a commit",
            "nothing: ask again for the new owner; if it comes again, look why this process was away (pauses, overload)",
        )
    return None


def _session(facts: Facts, patience: float) -> Explanation | None:
    s = facts.session
    ask = "bring ZooKeeper back, or the network to it; partitions are kept meanwhile, and go on by themselves"
    if not s.certain:
        return Explanation(
            Cause.IN_DOUBT,
            "the ZooKeeper session may have expired: nothing is handed out or committed before that is known",
            ask,
            s.away_for,
            ("no answer for two thirds of the session's timeout",),
        )
    if not s.connected:
        return Explanation(
            Cause.SESSION_SUSPENDED,
            "there is no connection to ZooKeeper: batches in hand end, nothing new is handed out or committed",
            ask,
            s.away_for,
        )
    return None


def _threads(facts: Facts, patience: float) -> Explanation | None:
    silent = facts.channel.silent
    if not silent:
        return None
    return Explanation(
        Cause.INTERNAL,
        f"an internal thread does not go on: {silent[0].splitlines()[0]}",
        "restart this process; others take over what it held; please report this with the log",
        evidence=silent,
    )


def _commit_refused(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.commit_problem is None:
        return None
    return Explanation(
        Cause.COMMIT_WAITS,
        f"ZooKeeper refuses its commit: {p.commit_problem}",
        "let this process write the node, or make what is missing; the commit is sent again within a minute",
        p.settling_for,
    )


def _gate(facts: Facts, patience: float) -> Explanation | None:
    p, c = facts.partition, facts.channel
    for topic, name, step, since in c.resets:
        if topic == p.topic:
            far = f" (it is {step})" if step else ""
            hangs = p.callback_for is not None and p.callback_for >= patience
            return Explanation(
                Cause.RESET,
                f"reset {name} has closed the gate{far}: partitions are given up, moved, and taken again"
                + (f"; it waits for the batch in hand, since {duration(p.callback_for or 0.0)}" if hangs else ""),
                "wait for the reset to end; `inbound status` tells how far it is",
                since,
                (p.stack,) if hangs and p.stack else (),
            )
    if p.fate == "release" or p.place == "leaving":
        if p.callback_for is not None and p.callback_for >= patience:
            return _slow(facts, "it is being given up, and waits for the callback in hand: ")
        return Explanation(
            Cause.RELEASING,
            "it is being given up: the batch in hand ends and is committed, then another member takes it",
        )
    return None


def _paused(facts: Facts, patience: float) -> Explanation | None:
    pauses = facts.channel.pauses
    if not pauses:
        return None
    return Explanation(
        Cause.PAUSED,
        pauses[0],
        f"resume it when what it was paused for is done: `inbound resume {facts.channel.name}`",
        evidence=pauses[1:],
    )


# -- what somebody must act on -------------------------------------------------------------------------------------


def _held(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.held is None:
        return None
    try:
        cause = Cause(p.held_cause)
    except ValueError:
        cause = Cause.PROCESSOR_FAILS
    return Explanation(
        cause, f"held: {p.held}", "do what the line above says; nothing is read before that", p.still_for
    )


def _out_of_range(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.out_of_range is None or p.buffered:
        return None
    return Explanation(
        Cause.OUT_OF_RANGE,
        p.out_of_range,
        "wait some seconds: it goes on, or it is held, and then this says what to do",
    )


def _ledger(facts: Facts, patience: float) -> Explanation | None:
    c = facts.channel
    if c.ledger_problem is None or c.degrade:
        return None
    return Explanation(
        Cause.LEDGER,
        f"the ledger cannot be written, so nothing is handed out or committed: {c.ledger_problem}",
        "make room for the ledger, or give rights to its folder; `ledger.on_failure: degrade` goes on without it, and then "
        "nothing can be proven",
    )


# -- who has it ----------------------------------------------------------------------------------------------------


def _in_callback(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.callback_for is None:
        return None
    if p.callback_for >= patience:
        return _slow(facts, "")
    if p.callback != "on_next_batch":
        return None
    troubled = p.attempts or p.reverts > 1 or p.dead_letter_problem is not None
    return None if troubled else _moving(facts)


def _slow(facts: Facts, before: str) -> Explanation:
    p = facts.partition
    if p.callback != "on_next_batch":
        return Explanation(
            Cause.SLOW_PROCESSOR,
            f"{before}the processor's {p.callback} has not returned for {duration(p.callback_for or 0.0)}",
            "look at where it is, below: what it waits for has to answer; nothing of the partition is delivered before it returns",
            p.callback_for,
            (p.stack,) if p.stack else (),
        )
    batch = f"offsets {p.batch[0]} to {p.batch[1] - 1}" if p.batch else "its batch"
    return Explanation(
        Cause.SLOW_PROCESSOR,
        f"{before}the processor has had {batch} for {duration(p.callback_for or 0.0)}",
        "look at where it is, below: what it waits for has to answer; smaller batches (reader.max_batch_records) and time-outs "
        "in the processor keep one call from holding its partition up",
        p.callback_for,
        (p.stack,) if p.stack else (),
    )


def _committing(facts: Facts, patience: float) -> Explanation | None:
    p, c = facts.partition, facts.channel
    if p.settling_for is None or p.settling_for < patience:
        return None
    if p.place != "settling" and p.rate > 0 and p.advanced_for < patience:
        return None  # it moves: the window has room
    waiting = "1 commit waits" if c.commits_waiting == 1 else f"{c.commits_waiting} commits wait"
    records = f": {p.uncommitted:,} records are answered for and not committed" if p.uncommitted else ""
    window = "; its next batch waits for that (max_uncommitted_records)" if records and p.place == "settling" else ""
    return Explanation(
        Cause.COMMIT_WAITS,
        f"its commit waits for ZooKeeper's answer ({waiting}){records}{window}",
        "look at ZooKeeper: its disk and its load; the commit is sent again by itself",
        p.settling_for,
    )


def _failing(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.dead_letter_problem is not None:
        return Explanation(
            Cause.DEAD_LETTERS,
            f"a record that was given up waits for the dead-letter topic: {p.dead_letter_problem}",
            "make the dead-letter topic writable; it is tried again by itself",
            p.still_for,
        )
    if not p.attempts:
        return None
    times = f"{p.attempts} time{'s' if p.attempts > 1 else ''} in a row"
    wait = f", tried again in {duration(p.rest_for)}" if p.rest_for > 0 else ""
    if p.failing is None:
        return Explanation(
            Cause.PROCESSOR_FAILS,
            f"the processor fails before it is handed a batch, {times}{wait}: {p.last_error}",
            "look at the error: correct the processor, or bring back what it needs",
            p.still_for,
        )
    first, end = p.failing
    if end - first == 1:
        return Explanation(
            Cause.POISON_EVENT,
            f"the record at offset {first} fails, {times}{wait}: {p.last_error}",
            "correct the processor; or let `on_error.then` skip the record or send it to a dead-letter topic",
            p.still_for,
        )
    return Explanation(
        Cause.PROCESSOR_FAILS,
        f"the processor fails on offsets {first} to {end - 1}, {times}{wait}: {p.last_error}",
        "look at the error: what the processor needs may be away; after `on_error.max_attempts` the records are tried one by one",
        p.still_for,
    )


#: What a dispatcher's partition waits for: the cause, what is said before its own words, and what to do.
_WAITS = {
    "dead-letters": (
        Cause.DEAD_LETTERS,
        "",
        "make the dead letter sink take events; they are sent again by themselves",
    ),
    "retry-topic": (
        Cause.DEAD_LETTERS,
        "",
        "create the topic, or make it writable; the event is sent there again by itself",
    ),
    "limit": (Cause.SUBSCRIBER_LIMIT, "", "raise the subscription's `limits` if that is too slow"),
    "delayed": (Cause.DELAYED_RETRY, "", "nothing, if that is meant; else see `delayed_retry` of the subscription"),
    "undecodable": (Cause.POISON_EVENT, "", "set delivery.deadLetterSink, or on_undecodable: skip; it goes on at once"),
    "window": (
        Cause.SUBSCRIBER_SLOW,
        "",
        "look at how long the subscriber takes to answer; a larger `window` sends more at a time",
    ),
    "subscriber": (
        Cause.SUBSCRIBER_DOWN,
        "the subscriber does not take an event: ",
        "bring the subscriber back; what waits is sent again by itself. With delivery.deadLetterSink events are given up "
        "after delivery.retry attempts",
    ),
}


def _dispatch(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.waits is None or (p.still_for < patience / 2 and p.rate > 0):
        return None
    kind, text = p.waits
    if kind not in _WAITS:
        return None
    cause, what, to_do = _WAITS[kind]
    return Explanation(cause, what + text, to_do, p.still_for)


def _reverting(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.reverts < 2 or p.still_for < patience:
        return None
    return Explanation(
        Cause.REVERT_LOOP,
        f"the processor has gone back to offset {p.reverted_to} {p.reverts} times in a row without getting further",
        "look at why the processor answers revert there (its log): it is asked with the same records again and again",
        p.still_for,
    )


# -- it moves, or waits --------------------------------------------------------------------------------------------


def _moves(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    return _moving(facts) if p.rate > 0 and p.advanced_for < patience else None


def _moving(facts: Facts) -> Explanation:
    p = facts.partition
    lag = p.lag
    if lag is None or p.rate <= 0 or lag < FAR_BEHIND * p.rate:
        return Explanation(Cause.HEALTHY, f"it moves, {_rate(p.rate)}{_behind(lag)}")
    return Explanation(
        Cause.CATCHING_UP,
        f"it moves, {_rate(p.rate)}{_behind(lag)}; at this rate, and with nothing new, at the end in {duration(lag / p.rate)}",
    )


def _rate(rate: float) -> str:
    return f"{rate:,.0f} records/s" if rate >= 10 else f"{rate:.1f} records/s"


def _behind(lag: int | None) -> str:
    return "" if lag is None else f", {lag:,} records behind the end of the log" if lag else ", at the end of the log"


def _resting(facts: Facts, patience: float) -> Explanation | None:
    p = facts.partition
    if p.rest_for <= 0:
        return None
    if p.waits is not None and p.waits[0] == "rate":
        return Explanation(
            Cause.RATE,
            f"{p.waits[1]}: it reads again in {duration(p.rest_for)}",
            "raise max_read_rate if that is too slow",
        )
    return Explanation(
        Cause.WAITING,
        f"the processor asked to wait: it reads again in {duration(p.rest_for)}",
        "nothing, if that is meant; else see what `wait` the processor answers with",
    )


def _starting(facts: Facts, patience: float) -> Explanation | None:
    p, c = facts.partition, facts.channel
    if p.place != "starting":
        return None
    if c.kafka_problem is None and p.led and p.held_for < patience:
        return Explanation(Cause.STARTING, "it was claimed a moment ago; where to begin is being found out")
    return _kafka(facts, patience) or Explanation(
        Cause.BROKER_AWAY,
        "its leader does not say where the log begins and ends, so it is not known where to read",
        "look at the broker that leads it; it goes on by itself",
        p.held_for,
    )


def _no_worker(facts: Facts, patience: float) -> Explanation | None:
    p, c = facts.partition, facts.channel
    if not p.buffered or p.callback_for is not None or p.place != "scheduled":
        return None
    if not facts.session.known_pauses:
        return Explanation(
            Cause.SESSION_SUSPENDED,
            "whether the group is paused has not been read on this connection yet; nothing is handed out before",
            "look at ZooKeeper if it lasts: it does not answer",
            p.still_for,
        )
    if p.still_for < patience:
        return _moving(facts)
    if p.no_room:
        return Explanation(
            Cause.SLOW_PROCESSOR,
            f"{p.buffered} records are read ahead and the processor has no room for them: its `room` says 0",
            "see why it does not finish what it has taken: it is asked again when another commit of the partition has landed",
            p.still_for,
        )
    busy = ", ".join(f"{name} for {duration(seconds)}" for name, seconds in c.busy[:3])
    if c.event_loop:
        return Explanation(
            Cause.WORKERS_BUSY,
            f"{p.buffered} records are read ahead and a callback does not let go of the event loop"
            + (f" ({busy})" if busy else ""),
            "see where that is (`inbound explain` of those partitions): what blocks there has to be awaited, or run with "
            "asyncio.to_thread",
            p.still_for,
        )
    return Explanation(
        Cause.WORKERS_BUSY,
        f"{p.buffered} records are read ahead and no worker is free: all {c.workers} are in callbacks"
        + (f" ({busy})" if busy else ""),
        "raise `workers`, or see why the callbacks take so long: `inbound explain` of those partitions",
        p.still_for,
    )


def _kafka(facts: Facts, patience: float) -> Explanation | None:
    """Nothing is read ahead: what of Kafka, or of the reader, could be the reason?"""
    p, c = facts.partition, facts.channel
    if c.kafka_problem is not None and c.kafka_refused:
        return Explanation(
            Cause.NOT_ALLOWED, f"Kafka lets us not in: {c.kafka_problem}", "correct the credentials under `kafka`"
        )
    if p.read_error is not None and p.refused:
        return Explanation(
            Cause.NOT_ALLOWED, f"it must not be read: {p.read_error}", "give this user the right to read the topic"
        )
    if c.kafka_problem is not None:
        return Explanation(
            Cause.BROKER_AWAY,
            f"Kafka does not answer: {c.kafka_problem}",
            "bring the brokers back; it goes on by itself",
        )
    if not c.topic_exists:
        return Explanation(
            Cause.TOPIC_MISSING, "the topic does not exist on these brokers", "create it, or correct `topics`"
        )
    if not p.led:
        return Explanation(
            Cause.BROKER_AWAY,
            "its leader does not answer, and no other is elected",
            "bring the broker back that leads it, or let the cluster elect another; partitions of other brokers go on",
        )
    if p.read_error is not None:
        return Explanation(
            Cause.READ_FAILS,
            f"it cannot be read: {p.read_error}",
            "look at the brokers' logs; it is tried again by itself",
        )
    return None


def _reader(facts: Facts, patience: float) -> Explanation | None:
    p, c = facts.partition, facts.channel
    if p.reader_paused and not p.buffered:
        used, most = c.prefetch
        if used < most // 2:
            return None  # it is resumed with the reader's next step
        names = ", ".join(f"{name} ({size:,} bytes)" for name, size in c.fullest[:3])
        most_of_it = f"most of it has {names}" if names else "the Kafka client has put it aside"
        return Explanation(
            Cause.BUFFER_FULL,
            f"what others have read ahead takes the room: {used:,} of {most:,} bytes (prefetch_bytes); {most_of_it}",
            "see why those are not drained (`inbound explain` of the first), or raise reader.prefetch_bytes",
            p.still_for,
        )
    if not p.unread:
        return None
    return Explanation(
        Cause.NOT_FETCHING,
        f"it is assigned, and the Kafka client does not fetch it: {p.unread:,} records wait at offset {p.position}",
        "restart this process, or release the partition, so that another client reads it; please report this with the log",
        evidence=("nothing is buffered; no fetch of it failed; its leader says that there is more",),
    )


def _idle(facts: Facts) -> Explanation:
    p = facts.partition
    where = (
        f"its position {p.position} is the end of what can be read" if p.end is not None else "no record has come yet"
    )
    return Explanation(Cause.IDLE, f"there is nothing to read: {where}")


_RULES: tuple[Rule, ...] = (
    _gone, _session, _commit_refused, _gate, _paused, _held, _ledger, _in_callback, _failing, _committing, _starting, _reverting,
    _dispatch, _moves, _threads, _out_of_range, _resting, _no_worker, _kafka, _reader,
)  # fmt: skip

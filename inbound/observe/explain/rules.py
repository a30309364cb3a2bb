"""The rules find the one cause of a partition's state. Pure.

Their order is the order of precedence: causes that stop the whole partition (session, reset, pause, held), then the callback
or commit that has it now, then the wait of a partition without either.
"""

from __future__ import annotations

from collections.abc import Iterator

from inbound.observe.explain.facts import (
    Cause,
    ChannelFacts,
    Explanation,
    PartitionFacts,
    SessionFacts,
    duration,
)

#: A partition is catching up, not healthy, while it has more than this many seconds of work before it.
FAR_BEHIND = 5.0

#: By the kind of a dispatcher's wait: its cause, the text before the dispatcher's own words, and what to do.
_WAITS = {
    "dead-letters": (
        Cause.DEAD_LETTERS,
        "",
        "make the dead letter sink take events; the dispatcher retries them",
    ),
    "retry-topic": (
        Cause.DEAD_LETTERS,
        "",
        "create the topic, or make it writable; the dispatcher retries the event",
    ),
    "limit": (Cause.SUBSCRIBER_LIMIT, "", "raise the subscription's `limits` if that is too slow"),
    "delayed": (Cause.DELAYED_RETRY, "", "nothing, if that is meant; else see `delayed_retry` of the subscription"),
    "undecodable": (Cause.POISON_EVENT, "", "set delivery.deadLetterSink, or on_undecodable: skip; it goes on at once"),
    "window": (
        Cause.SUBSCRIBER_SLOW,
        "",
        "look at how long the subscriber takes to answer; a larger `max_in_flight` sends more at a time",
    ),
    "subscriber": (
        Cause.SUBSCRIBER_DOWN,
        "the subscriber does not take an event: ",
        "bring the subscriber back; the dispatcher retries the event. With delivery.deadLetterSink events are given up "
        "after delivery.retry attempts",
    ),
}


def explain(p: PartitionFacts, c: ChannelFacts, s: SessionFacts, patience: float) -> Explanation:
    """Return the cause; a step that takes `patience` seconds counts as stalled."""
    return next(_causes(p, c, s, patience))


def _causes(p: PartitionFacts, c: ChannelFacts, s: SessionFacts, patience: float) -> Iterator[Explanation]:
    """Yield the causes, in the order of precedence."""
    moves = p.rate > 0 and p.advanced_for < patience
    yield from _stopped(p, c, s, patience)
    yield from _processing(p, c, moves, patience)
    if moves:
        yield _moving(p)
    yield from _waiting(p, c, s, patience)
    where = (
        f"its position {p.position} is the end of what can be read" if p.end is not None else "no record has come yet"
    )
    yield Explanation(Cause.IDLE, f"there is nothing to read: {where}")


def _stopped(p: PartitionFacts, c: ChannelFacts, s: SessionFacts, patience: float) -> Iterator[Explanation]:
    """Yield the causes that stop the whole partition."""
    if p.place in {"abandoned", "gone"}:
        yield Explanation(
            Cause.ABANDONED,
            "this process gave it up, but a callback of it still runs; until that ends it is not claimed again here",
            "let the callback end, or restart this process; until then other members may take the partition",
            p.callback_for,
        )
    if p.fate == "drop":
        yield Explanation(
            Cause.LOST,
            "another consumer has claimed it, or its topic was recreated; this process drops it without a commit",
            "nothing: ask again for the new owner; if it comes again, look why this process was away (pauses, overload)",
        )
    ask = "bring ZooKeeper back, or the network to it; until then partitions are kept, and then they go on"
    if not s.certain:
        yield Explanation(
            Cause.IN_DOUBT,
            "the ZooKeeper session may have expired: nothing is delivered or committed before that is known",
            ask,
            s.away_for,
            ("no answer for two thirds of the session's timeout",),
        )
    if not s.connected:
        yield Explanation(
            Cause.SESSION_SUSPENDED,
            "there is no connection to ZooKeeper: running batches end, nothing new is delivered or committed",
            ask,
            s.away_for,
        )
    if p.commit_problem is not None:
        yield Explanation(
            Cause.COMMIT_WAITS,
            f"ZooKeeper refuses its commit: {p.commit_problem}",
            "let this process write the node, or make what is missing; the commit is sent again within a minute",
            p.settling_for,
        )
    hangs = p.callback_for is not None and p.callback_for >= patience
    for _, name, step, since in (reset for reset in c.resets if reset[0] == p.topic):
        far = f" (it is {step})" if step else ""
        waits = f"; it waits for the batch in hand, since {duration(p.callback_for or 0.0)}" if hangs else ""
        yield Explanation(
            Cause.RESET,
            f"reset {name} has closed the gate{far}: partitions are given up, moved, and taken again{waits}",
            "wait for the reset to end; `inbound status` tells how far it is",
            since,
            (p.stack,) if hangs and p.stack else (),
        )
    if p.fate == "release" or p.place == "leaving":
        if hangs:
            yield _slow(p, "it is being given up, and waits for the callback in hand: ")
        yield Explanation(
            Cause.RELEASING,
            "it is being given up: the batch in hand ends and is committed, then another member takes it",
        )
    if c.pauses:
        yield Explanation(
            Cause.PAUSED,
            c.pauses[0],
            f"resume it when the reason for the pause is gone: `inbound resume {c.name}`",
            evidence=c.pauses[1:],
        )
    if p.held is not None:
        yield Explanation(
            next((cause for cause in Cause if cause.value == p.held_cause), Cause.PROCESSOR_FAILS),
            f"held: {p.held}",
            "do what the line above says; nothing is read before that",
            p.still_for,
        )
    if c.ledger_problem is not None and not c.degrade:
        yield Explanation(
            Cause.LEDGER,
            f"the ledger cannot be written, so nothing is delivered or committed: {c.ledger_problem}",
            "make room for the ledger, or give rights to its folder; `ledger.on_failure: degrade` goes on without it, and then "
            "nothing can be proven",
        )


# -- the processor has it ------------------------------------------------------------------------------------------


def _processing(p: PartitionFacts, c: ChannelFacts, moves: bool, patience: float) -> Iterator[Explanation]:
    """Yield the causes in the processor, or in its commit."""
    if p.callback_for is not None:
        if p.callback_for >= patience:
            yield _slow(p, "")
        troubled = p.attempts or p.reverts > 1 or p.dead_letter_problem is not None
        if p.callback == "on_next_batch" and not troubled:
            yield _moving(p)
    if p.dead_letter_problem is not None:
        yield Explanation(
            Cause.DEAD_LETTERS,
            f"a record that was given up waits for the dead-letter topic: {p.dead_letter_problem}",
            "make the dead-letter topic writable; the record is sent again within a minute",
            p.still_for,
        )
    if p.attempts:
        yield _failing(p)
    if p.settling_for is not None and p.settling_for >= patience and (p.place == "settling" or not moves):
        waiting = "1 commit waits" if c.commits_waiting == 1 else f"{c.commits_waiting} commits wait"
        records = f": {p.uncommitted:,} records are answered for and not committed" if p.uncommitted else ""
        window = (
            "; its next batch waits for that (max_uncommitted_records)" if records and p.place == "settling" else ""
        )
        yield Explanation(
            Cause.COMMIT_WAITS,
            f"its commit waits for ZooKeeper's answer ({waiting}){records}{window}",
            "look at ZooKeeper: its disk and its load; the commit is sent again when it answers",
            p.settling_for,
        )
    if p.place == "starting":
        if c.kafka_problem is None and p.led and p.held_for < patience:
            yield Explanation(Cause.STARTING, "it was claimed a moment ago; where to begin is being found out")
        yield from _kafka(p, c)
        yield Explanation(
            Cause.BROKER_AWAY,
            "its leader does not say where the log begins and ends, so it is not known where to read",
            "look at the broker that leads it; it goes on when that answers",
            p.held_for,
        )
    if p.reverts >= 2 and p.still_for >= patience:
        yield Explanation(
            Cause.REVERT_LOOP,
            f"the processor has gone back to offset {p.reverted_to} {p.reverts} times in a row without getting further",
            "look at why the processor answers revert there (its log): it is asked with the same records again and again",
            p.still_for,
        )
    kind, text = p.waits or ("", "")
    if kind in _WAITS and (p.still_for >= patience / 2 or p.rate <= 0):
        cause, before, todo = _WAITS[kind]
        yield Explanation(cause, before + text, todo, p.still_for)


def _slow(p: PartitionFacts, before: str) -> Explanation:
    lasting = duration(p.callback_for or 0.0)
    if p.callback == "on_next_batch":
        batch = f"offsets {p.batch[0]} to {p.batch[1] - 1}" if p.batch else "its batch"
        text = f"the processor has had {batch} for {lasting}"
        todo = (
            "smaller batches (reader.max_batch_records) and time-outs in the processor keep one call from holding its "
            "partition up"
        )
    else:
        text = f"the processor's {p.callback} has not returned for {lasting}"
        todo = "nothing of the partition is delivered before it returns"
    return Explanation(
        Cause.SLOW_PROCESSOR,
        before + text,
        f"look at its stack, below: the call in which it waits has to return; {todo}",
        p.callback_for,
        (p.stack,) if p.stack else (),
    )


def _failing(p: PartitionFacts) -> Explanation:
    times = f"{p.attempts} time{'s' if p.attempts > 1 else ''} in a row"
    wait = f", tried again in {duration(p.rest_for)}" if p.rest_for > 0 else ""
    cause, todo = (
        Cause.PROCESSOR_FAILS,
        "look at the error: correct the processor, or bring back the server that it needs",
    )
    if p.failing is None:
        text = "the processor fails before a batch is delivered"
    elif p.failing[1] - p.failing[0] == 1:
        cause, text = Cause.POISON_EVENT, f"the record at offset {p.failing[0]} fails"
        todo = "correct the processor; or let `on_error.then` skip the record or send it to a dead-letter topic"
    else:
        text = f"the processor fails on offsets {p.failing[0]} to {p.failing[1] - 1}"
        todo = (
            "look at the error: a server that the processor needs may be unavailable; after `on_error.max_attempts` the "
            "records are tried one by one"
        )
    return Explanation(cause, f"{text}, {times}{wait}: {p.last_error}", todo, p.still_for)


# -- it moves, or waits --------------------------------------------------------------------------------------------


def _moving(p: PartitionFacts) -> Explanation:
    lag, rate = p.lag, f"{p.rate:,.0f} records/s" if p.rate >= 10 else f"{p.rate:.1f} records/s"
    behind = "" if lag is None else f", {lag:,} records behind the end of the log" if lag else ", at the end of the log"
    if lag is None or p.rate <= 0 or lag < FAR_BEHIND * p.rate:
        return Explanation(Cause.HEALTHY, f"it moves, {rate}{behind}")
    ends = f"at this rate, and with nothing new, at the end in {duration(lag / p.rate)}"
    return Explanation(Cause.CATCHING_UP, f"it moves, {rate}{behind}; {ends}")


def _waiting(p: PartitionFacts, c: ChannelFacts, s: SessionFacts, patience: float) -> Iterator[Explanation]:
    """Yield the waits of a partition that the processor does not have."""
    if c.silent:
        yield Explanation(
            Cause.INTERNAL,
            f"an internal thread does not go on: {c.silent[0].splitlines()[0]}",
            "restart this process; other members take over its partitions; please report this with the log",
            evidence=c.silent,
        )
    if p.out_of_range is not None and not p.buffered:
        yield Explanation(
            Cause.OUT_OF_RANGE,
            p.out_of_range,
            "wait some seconds: it goes on, or it is held, and then this says what to do",
        )
    if p.rest_for > 0:
        again = f"it reads again in {duration(p.rest_for)}"
        if p.waits is not None and p.waits[0] == "rate":
            yield Explanation(Cause.RATE, f"{p.waits[1]}: {again}", "raise max_read_rate if that is too slow")
        yield Explanation(
            Cause.WAITING,
            f"the processor asked to wait: {again}",
            "nothing, if that is meant; else see what `wait` the processor answers with",
        )
    if p.buffered and p.callback_for is None and p.place == "scheduled":
        yield _no_worker(p, c, s, patience)
    yield from _kafka(p, c)
    if p.reader_paused and not p.buffered:
        used, most = c.prefetch
        names = ", ".join(f"{name} ({size:,} bytes)" for name, size in c.fullest[:3])
        holders = f"most of it has {names}" if names else "the Kafka client has put it aside"
        if used >= most // 2:  # else the reader resumes it with its next step
            yield Explanation(
                Cause.BUFFER_FULL,
                f"what others have read ahead takes the room: {used:,} of {most:,} bytes (prefetch_bytes); {holders}",
                "see why those are not drained (`inbound explain` of the first), or raise reader.prefetch_bytes",
                p.still_for,
            )
    elif p.unread:
        yield Explanation(
            Cause.NOT_FETCHING,
            f"it is assigned, and the Kafka client does not fetch it: {p.unread:,} records wait at offset {p.position}",
            "restart this process, or release the partition, so that another client reads it; please report this with the log",
            evidence=("nothing is buffered; no fetch of it failed; its leader says that there is more",),
        )


def _no_worker(p: PartitionFacts, c: ChannelFacts, s: SessionFacts, patience: float) -> Explanation:
    if not s.known_pauses:
        return Explanation(
            Cause.SESSION_SUSPENDED,
            "whether the group is paused has not been read on this connection yet; nothing is delivered before",
            "look at ZooKeeper if it lasts: it does not answer",
            p.still_for,
        )
    if p.still_for < patience:
        return _moving(p)
    ahead = f"{p.buffered} records are read ahead and"
    if p.no_room:
        return Explanation(
            Cause.SLOW_PROCESSOR,
            f"{ahead} the processor has no room for them: its `room` says 0",
            "see why it does not finish the records that it has: it is asked again when another commit of the partition has landed",
            p.still_for,
        )
    names = ", ".join(f"{name} for {duration(seconds)}" for name, seconds in c.busy[:3])
    busy = f" ({names})" if names else ""
    if c.event_loop:
        return Explanation(
            Cause.WORKERS_BUSY,
            f"{ahead} a callback does not let go of the event loop{busy}",
            "see where that is (`inbound explain` of those partitions): what blocks there has to be awaited, or run with "
            "asyncio.to_thread",
            p.still_for,
        )
    return Explanation(
        Cause.WORKERS_BUSY,
        f"{ahead} no worker is free: all {c.workers} are in callbacks{busy}",
        "raise `workers`, or see why the callbacks take so long: `inbound explain` of those partitions",
        p.still_for,
    )


def _kafka(p: PartitionFacts, c: ChannelFacts) -> Iterator[Explanation]:
    """Yield the problems of Kafka that stop the reads of the partition."""
    problems = (
        (
            c.kafka_problem is not None and c.kafka_refused,
            Cause.NOT_ALLOWED,
            f"Kafka refuses the connection: {c.kafka_problem}",
            "correct the credentials under `kafka`",
        ),
        (
            p.read_error is not None and p.refused,
            Cause.NOT_ALLOWED,
            f"it must not be read: {p.read_error}",
            "give this user the right to read the topic",
        ),
        (
            c.kafka_problem is not None,
            Cause.BROKER_AWAY,
            f"Kafka does not answer: {c.kafka_problem}",
            "bring the brokers back; then it goes on",
        ),
        (
            not c.topic_exists,
            Cause.TOPIC_MISSING,
            "the topic does not exist on these brokers",
            "create it, or correct `topics`",
        ),
        (
            not p.led,
            Cause.BROKER_AWAY,
            "its leader does not answer, and no other is elected",
            "bring the broker back that leads it, or let the cluster elect another; partitions of other brokers go on",
        ),
        (
            p.read_error is not None,
            Cause.READ_FAILS,
            f"it cannot be read: {p.read_error}",
            "look at the brokers' logs; the fetch is retried",
        ),
    )
    yield from (Explanation(cause, text, todo) for is_so, cause, text, todo in problems if is_so)

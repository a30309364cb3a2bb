"""The status of processes as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from inbound.cli.shared.output import Cell, count, number, one_line, table
from inbound.config.units import format_duration
from inbound.controller.kafka_controller import SessionState
from inbound.coordinators.subscriber_status import SubscriberStatus
from inbound.kafka.base import BrokerFigures
from inbound.mirror.plan import MirrorStatus
from inbound.observe.status.status import (
    ChannelStatus,
    IngressStatus,
    ManifestStatus,
    PartitionStatus,
    ProcessStatus,
    ResetStatus,
    SessionStatus,
)
from inbound.runtime.instruments import SECONDS

#: So many members are named; the others are counted.
MEMBERS_NAMED = 8
#: So many topics that do not acknowledge, and partitions with unusable nodes, are named.
_NAMED = 8

_HEADERS = ("TOPIC", "PARTITION", "STATE", "EPOCH", "POSITION", "COMMITTED", "LAG", "LAST BATCH", "NOTE")
#: What became of offsets that were committed without being processed, by reason.
_PASSED_OVER = {
    "skip": "given up (on_error: skip)",
    "dead-letter": "dead-lettered",
    "processor": "passed over by the processor",
    "truncation": "passed over when the log was cut (on_truncation: latest)",
}
_NOT_A_MEMBER = {
    SessionState.DOWN.value: "not connected yet: nothing is read before ZooKeeper answers; see zookeeper.hosts",
    SessionState.JOINING.value: "joining: partitions are claimed when that is done",
    SessionState.SUSPENDED.value: "no connection: no new batches and no commits until it answers; partitions are kept",
    SessionState.CLOSED.value: "closed: the process has left its groups",
}


def shown(processes: Sequence[ProcessStatus], now: float) -> str:
    """Return the text of `inbound status`; `now` is Unix time."""
    if not processes:
        return "no process answers yet"
    return "\n\n".join("\n".join(_process(process, now)) for process in processes)


def age(seconds: float) -> str:
    """Return a time span in its largest unit, such as `12 min`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _process(process: ProcessStatus, now: float) -> Iterator[str]:
    stopping = ", stopping" if process.stopping else ""
    up = f"up {_uptime(process.started, now)}" if process.started else "says nothing yet"  # a child that starts
    yield one_line(f"inbound {process.version}, pid {process.pid} on {process.host}, {up}{stopping}")
    if process.session is not None:
        yield one_line(_session(process.session))
    if process.ingress is not None:
        yield one_line(_ingress(process.ingress))
        yield from _brokers(process.ingress.brokers)
    yield from _brokers(process.brokers, "Kafka, for all subscriptions")
    for channel in process.channels:
        yield ""
        yield from _channel(channel, now)
    if process.reset_manifests:
        yield ""
        yield from (one_line(_manifest(one)) for one in process.reset_manifests)
    reasons = list(_why_not_moving(process, now))
    if reasons:
        yield ""
        yield "Why not moving:"
        yield from (f"  {one_line(reason)}" for reason in reasons)


def _uptime(started: str, now: float) -> str:
    try:
        return age(now - datetime.fromisoformat(started).timestamp())
    except ValueError:
        return f"since {started}"


def _session(session: SessionStatus) -> str:
    text = f"ZooKeeper: {session.state}"
    if session.id is not None:
        text += f", session {session.id}"
    if session.timeout is not None:
        text += f" of {session.timeout:g} s"
    if session.certain_for > 0:
        text += f", certain for {session.certain_for:.1f} s"
    elif session.id is not None:
        text += ", in doubt"
    text += f", session number {session.sessions_total}" if session.sessions_total > 1 else ""
    return text + (f"; {session.problem}" if session.problem is not None else "")


def _ingress(ingress: IngressStatus) -> str:
    answers = ", ".join(f"{number:,} x {status}" for status, number in ingress.answers.items()) or "nothing asked yet"
    text = (
        f"ingress: {ingress.url}, {count(ingress.connections, 'connection')}, "
        f"{ingress.accepted_events_total:,} events accepted, {ingress.in_flight_events:,} in flight; answers: {answers}"
    )
    times = ingress.request_seconds
    if times is None or not times.count:
        return text
    return f"{text}, half of them {_within(times.within(0.5))}, 99% {_within(times.within(0.99))}"


def _within(bound: float) -> str:
    if bound == float("inf"):
        return f"in more than {SECONDS[-1]:g} s"
    return f"within {bound * 1000:g} ms" if bound < 1 else f"within {bound:g} s"


def _channel(channel: ChannelStatus, now: float) -> Iterator[str]:
    yield one_line(f"Channel {channel.name}: group {channel.group} as {channel.consumer_id} ({channel.coordinator})")
    named = ", ".join(channel.members[:MEMBERS_NAMED])
    more = len(channel.members) - MEMBERS_NAMED
    yield one_line(f"{count(len(channel.members), 'member')}: {named or '-'}{f' and {more} more' if more > 0 else ''}")
    if channel.partitions:
        yield table(_HEADERS, [_row(partition, now) for partition in channel.partitions])
    lags = [partition.lag for partition in channel.partitions]
    known = [lag for lag in lags if lag is not None]
    lag = f"lag {sum(known):,}" if known else "lag unknown"
    if known and len(known) < len(lags):
        lag += f" in {len(known)} of {len(lags)}"
    yield (
        f"Total: {len(channel.partitions):,} of {count(sum(channel.topics.values()), 'partition')} (share "
        f"{channel.share:,}), {count(channel.records_total, 'record')} in {count(channel.batches_total, 'batch')}, "
        f"{count(channel.commits_total, 'commit')} ({channel.commits_waiting:,} waiting, "
        f"{channel.commits_fenced_total:,} fenced)" + (f", {lag}" if lags else "")
    )
    if given_up := _given_up(channel):
        yield f"Offsets not processed: {given_up}; `inbound spark validate` names them"
    yield from _brokers(channel.brokers)
    yield from (one_line(f"Notice: {notice}") for notice in channel.notices)
    if channel.mirror is not None:
        yield one_line(_mirror(channel.mirror))
    if "subscriber" in channel.processor:
        yield one_line(_dispatch(channel.processor))
    if channel.subscriber is not None:
        yield one_line(_subscriber(channel.subscriber))


def _given_up(channel: ChannelStatus) -> str:
    """Return the counts of offsets that were committed without being processed."""
    meters = channel.meters
    told = [(meters.passed_over.get(reason, 0), what) for reason, what in _PASSED_OVER.items()]
    told.append((meters.retention_lost, "lost to retention"))
    return ", ".join(f"{number:,} {what}" for number, what in told if number)


def _brokers(brokers: Sequence[BrokerFigures], whose: str = "Kafka") -> Iterator[str]:
    """Yield a line with a Kafka client's figures about its brokers."""
    if not brokers:
        return
    requests = sum(one.requests_per_second for one in brokers)
    received = sum(one.received_bytes_per_second for one in brokers) / 2**20
    sent = sum(one.sent_bytes_per_second for one in brokers) / 2**20
    line = (
        f"{whose}: {count(len(brokers), 'broker')}, {number(requests)} requests/s, {number(received)} MiB/s received, "
        f"{number(sent)} MiB/s sent"
    )
    failed = sum(n for one in brokers for kind, n in one.failures.items() if kind != "disconnect")
    if failed:
        line += f", {count(failed, 'failed request')}"
    throttled = [
        f"broker {one.broker} by {format_duration(round(one.throttle_seconds['mean'], 3) or 0.001)}"
        for one in brokers
        if one.throttle_seconds.get("mean")
    ]
    yield line + (f"; answers are throttled: {', '.join(throttled)}" if throttled else "")


def _dispatch(said: Mapping[str, Any]) -> str:
    answers = ", ".join(
        f"{number:,} x {'no answer' if status == '0' else status}" for status, number in said["answers"].items()
    )
    line = (
        f"Dispatch to {said['subscriber']}: {said['delivered_total']:,} events delivered, "
        f"{said['in_flight']:,} requests in flight, {said['retries_total']:,} sent again"
    )
    for name, words in (
        ("dead_lettered", "dead-lettered"),
        ("delayed", "delayed"),
        ("filtered", "filtered out"),
        ("undecodable", "no events"),
        ("replied", "replies posted"),
    ):
        if found := said.get(f"{name}_total", 0):
            line += f", {found:,} {words}"
    return f"{line}; answers: {answers or 'none yet'}"


def _manifest(manifest: ManifestStatus) -> str:
    said = f"does nothing: {manifest.problem}" if manifest.problem is not None else manifest.state
    return f"ResetOffset {manifest.name}: {said}{f': {manifest.message}' if manifest.message else ''}"


def _mirror(mirror: MirrorStatus) -> str:
    problem = f": {mirror.problem}" if mirror.problem else ""
    return (
        f"Mirror: {mirror.state}, Kafka group {mirror.group}, {count(mirror.offsets_total, 'offset')} "
        f"({mirror.waiting:,} waiting){problem}"
    )


def _subscriber(subscriber: SubscriberStatus) -> str:
    generation = "" if subscriber.observedGeneration is None else f", generation {subscriber.observedGeneration}"
    ready = {"True": "ready", "False": "not ready"}.get(subscriber.ready, "not known whether ready")
    return f"Subscriber {subscriber.uid}{generation}: {ready}{f': {subscriber.message}' if subscriber.message else ''}"


def _row(partition: PartitionStatus, now: float) -> list[Cell]:
    last = None if partition.last_batch_at is None else age(now - partition.last_batch_at)
    place = "paused" if partition.paused and partition.place == "scheduled" else partition.place
    state = f"{place}, leaving" if partition.leaving and place != "leaving" else place
    return [
        partition.topic,
        partition.partition,
        state,
        partition.epoch,
        partition.position,
        partition.committed,
        partition.lag,
        last,
        _note(partition),
    ]


def _note(partition: PartitionStatus) -> str:
    notes = []
    if partition.held is not None:
        notes.append("held")
    if partition.in_doubt:
        notes.append("in doubt")
    if partition.attempts:
        notes.append(f"failed {partition.attempts:,}x")
    elif partition.last_error is not None and partition.held is None:
        notes.append(f"earlier: {_short(partition.last_error)}")
    return ", ".join(notes)


def _short(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _why_not_moving(process: ProcessStatus, now: float) -> Iterator[str]:
    yield from (f"{problem}: a defect of inbound, please report it with the log" for problem in process.stuck())
    if process.ingress is not None and process.ingress.away is not None:
        yield f"ingress: Kafka is unavailable: {process.ingress.away}; events are answered with 503 until it is back"
    for topic, problem in list(process.ingress.doubted.items() if process.ingress is not None else ())[:_NAMED]:
        yield (
            f"ingress: topic {topic}: Kafka does not acknowledge: {problem}; its events are answered with 503 until it takes one; "
            "check that its partitions have leaders and enough replicas in sync"
        )
    if process.session is not None and process.session.state in _NOT_A_MEMBER:
        yield f"ZooKeeper: {_NOT_A_MEMBER[process.session.state]}"
    for problem in (process.config_problem or "").splitlines():
        yield f"the configuration has changed, and cannot be used; the old one stays in effect: {problem}"
    for refused in process.refused_manifests:
        goes_on = f"{', '.join(refused.kept)} goes on as before" if refused.kept else "it does not run"
        yield from (
            f"{refused.subject} cannot be used, and {goes_on}: {problem}" for problem in refused.problem.splitlines()
        )
    if process.ledger_shipping is not None and process.ledger_shipping.problem is not None:
        yield f"ledger: not shipped: {process.ledger_shipping.problem}"
    for channel in process.channels:
        yield from (f"{channel.name}: {reason}" for reason in _of_channel(channel, now))


def _of_channel(channel: ChannelStatus, now: float) -> Iterator[str]:
    if channel.removed:
        yield f"taken out of the configuration: it leaves group {channel.group} when what is in flight has ended"
    elif not channel.registered:
        yield f"not yet a member of group {channel.group}"
    yield from (_reset(reset, now) for reset in channel.resets)
    yield from (pause.told(channel.name) for pause in channel.paused)
    for where, why in sorted(channel.processor.get("partitions", {}).items()):  # of a dispatcher
        yield f"{where}: {why}"
    if channel.kafka_problem is not None:
        yield f"Kafka: {channel.kafka_problem}"
    if channel.ledger_problem is not None:
        yield f"ledger: {channel.ledger_problem}"
    if not channel.provable:
        yield "ledger: entries are missing; what happened in that time cannot be proven from it"
    stopped = {reset.topic for reset in channel.resets}
    if channel.registered and not channel.partitions and not (stopped and stopped.issuperset(channel.topics)):
        yield _without_partitions(channel)
    for name, problem in list(channel.bad_nodes.items())[:_NAMED]:
        yield f"{name}: its nodes cannot be used: {problem}; tried again at least once a minute"
    if (more := len(channel.bad_nodes) - _NAMED) > 0:
        yield f"the nodes of {count(more, 'more partition')} cannot be used either"
    for name in channel.abandoned:
        yield f"{name}: released, but its callback still runs; this process claims it again only after the callback has ended"
    for partition in channel.partitions:
        where = f"{partition.topic}/{partition.partition}"
        if partition.held is not None:
            yield f"{where}: held: {partition.held}"
        if partition.in_doubt:
            yield f"{where}: in doubt: the ZooKeeper session may have expired; it goes on, or is dropped, once that is known"
        if partition.stalled is not None:
            yield f"{where}: stalled: {partition.cause}; `inbound explain {partition.topic} {partition.partition}` says more"
        if partition.attempts and partition.held is None:
            yield f"{where}: failed {partition.attempts:,}x in a row, will be retried: {partition.last_error or 'unknown'}"


def _reset(reset: ResetStatus, now: float) -> str:
    since = f", for {age(now - reset.since)}" if reset.since else ""
    return (
        f"reset {reset.name}: {reset.step or 'its step is not known'}{since}; nothing of topic {reset.topic} is read before its "
        "end, and operations until then (resume, rebalance, reload) take effect after it"
    )


def _without_partitions(channel: ChannelStatus) -> str:
    if not sum(channel.topics.values()):
        return "no partitions: Kafka does not know its topics yet"
    if channel.share == 0 and len(channel.members) > 1:
        return f"no partitions: the {count(len(channel.members), 'member')} of the group have them all"
    return "no partitions yet"

"""What `inbound status` prints, compared whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inbound.cli.inspect.status_text import age, shown
from inbound.cli.shared.output import count, table
from inbound.coordinators.pauses import Pause
from inbound.coordinators.subscriber_status import SubscriberStatus
from inbound.kafka.base import BrokerFigures
from inbound.observe.status.status import RefusedManifestStatus, ResetStatus, ThreadStatus, process_status
from inbound.partition.meters import MetersStatus
from tests.observe.jmx.made_jmx import everything
from tests.observe.status.made_status import NOW, channel, partition, process, session
from tests.observe.status.rich_status import seen


def test_all_is_well() -> None:
    """Who, where, how far, how much; nothing about trouble where there is none."""
    busy = partition(1, place="running", position=1234567, committed=None, high_watermark=None, lag=None)

    text = shown([process(channels=[channel(partitions=[partition(0), replace(busy, last_batch_at=None)])])], NOW)

    assert text.splitlines() == [
        "inbound 0.1.0, pid 4711 on host, up 1 min",
        "ZooKeeper: member, session 0x1000ab of 10 s, certain for 6.2 s",
        "",
        "Channel orders: group orders-svc as host-1 (dynamic)",
        "2 members: host-1, host-2",
        "TOPIC   PARTITION  STATE      EPOCH   POSITION  COMMITTED  LAG  LAST BATCH  NOTE",
        "orders          0  scheduled      7      1,500      1,400  600  4 s",
        "orders          1  running        7  1,234,567          -    -  -",
        "Total: 2 of 4 partitions (share 2), 1,234 records in 12 batches, 11 commits (1 waiting, 0 fenced), "
        "lag 600 in 1 of 2",
    ]


def test_subscriptions_and_a_configuration_that_cannot_be_used() -> None:
    """Whether each is served, and why not; through JSON, as another process gives it."""
    served = SubscriberStatus(uid="u-1", observedGeneration=3, ready="True", message="the subscriber: 503")
    lacking = SubscriberStatus(uid="u-2", observedGeneration=None, ready="False", message="no owner for 1 of 4")
    away = SubscriberStatus(uid="u-3", observedGeneration=None, ready="Unknown", message="")
    channels = [
        channel(
            name=said.uid, partitions=[partition(0)], subscriber=said, removed=said is away, registered=said is not away
        )
        for said in (served, lacking, away)
    ]
    told = process_status(process(channels=channels, config_problem="a.yaml:3: x\na.yaml:4: y").as_dict())

    lines = shown([told], NOW).splitlines()

    assert [line for line in lines if line.startswith("Subscriber ")] == [
        "Subscriber u-1, generation 3: ready: the subscriber: 503",
        "Subscriber u-2: not ready: no owner for 1 of 4",
        "Subscriber u-3: not known whether ready",
    ]
    assert lines[lines.index("Why not moving:") + 1 :] == [
        "  the configuration has changed, and cannot be used; the old one stays in effect: a.yaml:3: x",
        "  the configuration has changed, and cannot be used; the old one stays in effect: a.yaml:4: y",
        "  u-3: taken out of the configuration: it leaves group orders-svc when what is in flight has ended",
    ]
    assert told.ready() == []  # one that is leaving for good does not make the process unready


def test_offsets_that_were_given_up_are_counted() -> None:
    """By why, below the totals."""
    meters = MetersStatus(
        passed_over={"skip": 10, "dead-letter": 0, "processor": 5, "truncation": 7}, retention_lost=1200
    )

    lines = shown([process(channels=[channel(meters=meters)])], NOW).splitlines()

    assert lines[-1] == (
        "Offsets not processed: 10 given up (on_error: skip), 5 passed over by the processor, 7 passed over when the log was "
        "cut (on_truncation: latest), 1,200 lost to retention; `inbound spark validate` names them"
    )


def test_partitions_whose_nodes_cannot_be_used_are_named() -> None:
    """No member reads them, so no table has them; of many the number is printed."""
    bad = {f"orders/{n}": "/consumers/g/offsets: holds b'x', not an offset" for n in range(10)}

    lines = shown([process(channels=[channel(bad_nodes=bad)])], NOW).splitlines()

    assert lines[-3:] == [
        "  orders: orders/6: its nodes cannot be used: /consumers/g/offsets: holds b'x', not an offset; tried again at least once "
        "a minute",
        "  orders: orders/7: its nodes cannot be used: /consumers/g/offsets: holds b'x', not an offset; tried again at least once "
        "a minute",
        "  orders: the nodes of 2 more partitions cannot be used either",
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([], ""),
        ([0.004] * 9 + [0.7], ", half of them within 5 ms, 99% within 1 s"),
        ([400.0], ", half of them in more than 300 s, 99% in more than 300 s"),
    ],
)
def test_an_ingress_says_how_fast_it_answers(values: list[float], told: str) -> None:
    """As far as the bounds of its histogram say."""
    found = everything().ingress
    assert found is not None
    lines = shown([process(ingress=replace(found, request_seconds=seen(*values)))], NOW).splitlines()

    assert [line for line in lines if line.startswith("ingress: ")] == [
        f"ingress: http://127.0.0.1:8080, 1 connection, 7 events accepted, 0 in flight; answers: 7 x 202{told}"
    ]


def test_a_topic_that_does_not_acknowledge_is_named() -> None:
    """Kafka answers, so the ingress is ready; through JSON, as another process gives it."""
    ingress = everything().ingress
    assert ingress is not None
    told = process_status(process(ingress=replace(ingress, doubted={"orders": "_MSG_TIMED_OUT"})).as_dict())

    assert shown([told], NOW).splitlines()[-1] == (
        "  ingress: topic orders: Kafka does not acknowledge: _MSG_TIMED_OUT; its events are answered with 503 until it takes "
        "one; check that its partitions have leaders and enough replicas in sync"
    )


def test_all_that_can_be_wrong() -> None:
    """A short word beside the partition, and below it why, and what happens next."""
    partitions = [
        partition(0, held="the commit 9 is beyond\nthe log's end 5. Move the offset", last_error="x"),
        partition(1, in_doubt=True, leaving=True),
        partition(2, attempts=3, last_error="KeyError: 'id'"),
        partition(3, last_error="ValueError: " + "a" * 99),
    ]
    troubled = channel(
        partitions=partitions, registered=False, abandoned=["orders/9"], kafka_problem="no broker answers",
        ledger_problem="disk full", provable=False,
    )  # fmt: skip
    dead = ThreadStatus(name="reader", alive=False, last_step_age=1.0, failures=1)
    suspended = session(state="suspended", certain_for=0.0, sessions_total=2)

    text = shown([process(channels=[troubled], threads=[dead], session=suspended, stopping=True)], NOW)

    assert text.splitlines() == [
        "inbound 0.1.0, pid 4711 on host, up 1 min, stopping",
        "ZooKeeper: suspended, session 0x1000ab of 10 s, in doubt, session number 2",
        "",
        "Channel orders: group orders-svc as host-1 (dynamic)",
        "2 members: host-1, host-2",
        "TOPIC   PARTITION  STATE               EPOCH  POSITION  COMMITTED  LAG  LAST BATCH  NOTE",
        "orders          0  scheduled               7     1,500      1,400  600  4 s         held",
        "orders          1  scheduled, leaving      7     1,500      1,400  600  4 s         in doubt",
        "orders          2  scheduled               7     1,500      1,400  600  4 s         failed 3x",
        "orders          3  scheduled               7     1,500      1,400  600  4 s         earlier: ValueError: "
        + "a" * 45
        + "...",
        "Total: 4 of 4 partitions (share 2), 1,234 records in 12 batches, 11 commits (1 waiting, 0 fenced), lag 2,400",
        "",
        "Why not moving:",
        "  thread reader is dead: a defect of inbound, please report it with the log",
        "  ZooKeeper: no connection: no new batches and no commits until it answers; partitions are kept",
        "  orders: not yet a member of group orders-svc",
        "  orders: Kafka: no broker answers",
        "  orders: ledger: disk full",
        "  orders: ledger: entries are missing; what happened in that time cannot be proven from it",
        "  orders: orders/9: released, but its callback still runs; this process claims it again only after the callback has ended",
        "  orders: orders/0: held: the commit 9 is beyond the log's end 5. Move the offset",
        "  orders: orders/1: in doubt: the ZooKeeper session may have expired; it goes on, or is dropped, once that is known",
        "  orders: orders/2: failed 3x in a row, will be retried: KeyError: 'id'",
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topics": {}}, "no partitions: Kafka does not know its topics yet"),
        ({"share": 0}, "no partitions: the 2 members of the group have them all"),
        ({}, "no partitions yet"),
    ],
)
def test_a_member_without_partitions_says_why(changes: dict[str, object], reason: str) -> None:
    """Idle is not stuck, but an operator will wonder."""
    text = shown([process(channels=[channel(partitions=[], **changes)])], NOW)

    assert text.splitlines()[-2:] == ["Why not moving:", f"  orders: {reason}"]


def test_several_processes_one_below_the_other() -> None:
    """Each with its own header; one that has just been started has said nothing yet."""
    text = shown([process(pid=1, channels=[]), process(pid=2, channels=[], started="")], NOW)

    assert [line for line in text.splitlines() if "pid" in line or not line] == [
        "inbound 0.1.0, pid 1 on host, up 1 min",
        "",
        "inbound 0.1.0, pid 2 on host, says nothing yet",
    ]


def test_no_process() -> None:
    """The parent of several answers before its first child does."""
    assert shown([], NOW) == "no process answers yet"


def test_a_manifest_that_cannot_be_used() -> None:
    """The manifest, the channels that go on, and the file and line to correct."""
    refused = [
        RefusedManifestStatus(
            kind="KafkaChannel", namespace="shop", name="orders", subscriber="u-1", file="a.yaml", where="a.yaml:8",
            problem="a.yaml:8: no", kept=["shop.orders.u-1"],
        ),
        RefusedManifestStatus(
            kind=None, namespace=None, name=None, subscriber=None, file="b.yaml", where="b.yaml:1", problem="b.yaml:1: not YAML"
        ),
    ]  # fmt: skip

    told = process_status(process(channels=[], refused_manifests=refused).as_dict())

    assert shown([told], NOW).splitlines()[-3:] == [
        "Why not moving:",
        "  KafkaChannel shop/orders, subscriber u-1 cannot be used, and shop.orders.u-1 goes on as before: a.yaml:8: no",
        "  b.yaml cannot be used, and it does not run: b.yaml:1: not YAML",
    ]


def test_a_large_group_is_not_listed_whole() -> None:
    """Eight names, and how many more."""
    text = shown([process(channels=[channel(members=[f"m{n}" for n in range(30)])])], NOW)

    assert "30 members: m0, m1, m2, m3, m4, m5, m6, m7 and 22 more\n" in text


def test_before_the_first_session() -> None:
    """Nothing is invented about a session that there is not yet."""
    down = session(state="down", id=None, timeout=None, certain_for=0.0, sessions_total=0)

    lines = shown([process(session=down, channels=[])], NOW).splitlines()

    assert lines[1] == "ZooKeeper: down"
    assert lines[-1] == "  ZooKeeper: not connected yet: nothing is read before ZooKeeper answers; see zookeeper.hosts"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (7300, "2 h"), (86400 * 400, "400 d")],
)
def test_ages(seconds: float, text: str) -> None:
    """The largest unit is exact enough; a clock that runs ahead gives no negative age."""
    assert age(seconds) == text


def test_a_paused_channel() -> None:
    """Who, since when, why, and what ends it, a line for each pause; a batch in hand is still seen to run."""
    pauses = [
        Pause("operator", None, "2025-02-01T00:00:00.000+00:00", "ann@host", "new\ndisk"),
        Pause("operator", "host-1"),
        Pause("reset-monday", None, "2025-02-01T00:00:00.000+00:00", "bob@host"),
    ]
    partitions = [partition(0, paused=True), partition(1, paused=True, place="running")]

    lines = shown([process(channels=[channel(partitions=partitions, paused=pauses)])], NOW).splitlines()

    assert [line.split()[2] for line in lines if line.startswith("orders ")] == ["paused", "running"]
    assert lines[lines.index("Why not moving:") + 1 :] == [
        "  orders: paused since 2025-02-01T00:00:00.000+00:00 by ann@host (new disk); goes on with `inbound resume orders`",
        "  orders: member host-1 paused; goes on with `inbound resume orders --consumer host-1`",
        "  orders: paused since 2025-02-01T00:00:00.000+00:00 by bob@host, held by reset-monday, which ends it when it is done",
    ]


def test_a_channel_that_a_reset_has_stopped() -> None:
    """Which one, how far it is, since when; that it has no partitions then needs no other word."""
    resets = [ResetStatus(name="one", topic="orders", step="stopping", since=NOW - 12)]

    text = shown([process(channels=[channel(partitions=[], resets=resets)])], NOW)

    assert text.splitlines()[-2:] == [
        "Why not moving:",
        "  orders: reset one: stopping, for 12 s; nothing of topic orders is read before its end, and operations until "
        "then (resume, rebalance, reload) take effect after it",
    ]


# -- tables ---------------------------------------------------------------------------------------------------------------


def test_numbers_right_and_text_left() -> None:
    """Digits are grouped, None is a dash, and no line ends in blanks."""
    text = table(["TOPIC", "LAG", "RATE", "NOTE"], [["orders", 1234567, 0.25, ""], ["a", None, 1000.0, "held"]])

    assert text.splitlines() == [
        "TOPIC         LAG     RATE  NOTE",
        "orders  1,234,567      0.2",
        "a               -  1,000.0  held",
    ]


def test_without_rows() -> None:
    """The headers stand alone."""
    assert table(["A", "LONG"], []) == "A  LONG"


def test_text_cannot_break_the_table_or_steer_the_terminal() -> None:
    """Errors hold line breaks, and bytes of records may hold escape sequences."""
    assert table(["NOTE"], [["two\n  lines\x1b[2J"]]) == "NOTE\ntwo lines?[2J"


@pytest.mark.parametrize(("n", "text"), [(0, "0 batches"), (1, "1 batch"), (1234, "1,234 batches")])
def test_counted(n: int, text: str) -> None:
    """One is singular."""
    assert count(n, "batch") == text


def test_what_a_channels_kafka_client_measures_is_one_line() -> None:
    """Over all brokers; problems are printed of each. Nothing before anything is known."""
    figures = BrokerFigures(
        broker=1, requests_per_second=30.0, sent_bytes_per_second=0.0, received_bytes_per_second=1.5 * 2**20,
        throttle_seconds={"mean": 0.0, "max": 0.0}, failures={"disconnect": 2, "timeout": 1},
    )  # fmt: skip
    throttled = replace(figures, broker=2, throttle_seconds={"mean": 0.25, "max": 0.5}, failures={})
    channels = [channel(), channel(brokers=[replace(figures, failures={})]), channel(brokers=[figures, throttled])]

    lines = shown([process(channels=channels, brokers=[figures])], NOW).splitlines()

    assert [line for line in lines if line.startswith("Kafka")] == [
        "Kafka, for all subscriptions: 1 broker, 30.0 requests/s, 1.5 MiB/s received, 0.0 MiB/s sent, 1 failed request",
        "Kafka: 1 broker, 30.0 requests/s, 1.5 MiB/s received, 0.0 MiB/s sent",
        "Kafka: 2 brokers, 60.0 requests/s, 3.0 MiB/s received, 0.0 MiB/s sent, 1 failed request; answers are throttled: "
        "broker 2 by 250ms",
    ]

"""What Prometheus reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as prometheus

from inbound.controller.kafka_controller import SessionState
from inbound.coordinators.pauses import Pause
from inbound.observe.metrics import Exposition
from inbound.observe.status.status import ProcessStatus, ReloadStatus, stalled
from tests.observe.status.made_status import channel, partition, process, session
from tests.waiting import patient

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(found: ProcessStatus | Sequence[ProcessStatus]) -> Series:
    """Return every sample of one scrape, as a Prometheus server reads it."""
    body, _ = Exposition(lambda: found).render()
    series: Series = {}
    for family in prometheus(body.decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in series, f"{key} is there twice"
            series[key] = sample.value
    return series


def of(series: Series, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of one metric by the values of its labels, the labels in alphabetical order."""
    return {tuple(value for _, value in labels): number for (found, labels), number in series.items() if found == name}


def test_every_metric_of_a_process() -> None:
    """A snapshot gives exactly these series of inbound; nothing else is made up. What has its own tests is left out."""
    only = channel(partitions=[partition(0)], consumed={"orders/0": 500}, buffer_limit_bytes=65536)
    series = scrape(process(channels=[only], session=session(state="suspended", certain_for=0.5, suspensions_total=1)))

    ours = {key: value for key, value in series.items() if not key[0].startswith(("python_", "process_"))}

    group = (("channel", "orders"), ("group", "orders-svc"))
    part = (*group, ("partition", "0"), ("topic", "orders"))
    states = {"down": 0, "joining": 0, "member": 0, "suspended": 1, "closed": 0}
    expected: Series = {
        ("inbound_build_info", (("version", "0.1.0"),)): 1,
        ("inbound_ready", ()): 1,
        ("inbound_stuck_threads", ()): 0,
        ("inbound_config_in_force", ()): 1,
        **{("inbound_zookeeper_session_state", (("state", state),)): value for state, value in states.items()},
        ("inbound_zookeeper_session_certain_seconds", ()): 0.5,
        ("inbound_zookeeper_sessions_total", ()): 1,
        ("inbound_zookeeper_suspensions_total", ()): 1,
        ("inbound_evaluations_total", ()): 30,
        ("inbound_thread_alive", (("thread", "controller"),)): 1,
        ("inbound_thread_alive", (("thread", "orders-worker-0"),)): 1,
        ("inbound_thread_failures_total", (("thread", "controller"),)): 0,
        ("inbound_thread_failures_total", (("thread", "orders-worker-0"),)): 2,
        ("inbound_thread_last_step_age_seconds", (("thread", "controller"),)): 0.2,
        ("inbound_thread_last_step_age_seconds", (("thread", "orders-worker-0"),)): 300,
        ("inbound_group_members", group): 2,
        ("inbound_group_share", group): 2,
        ("inbound_channel_registered", group): 1,
        ("inbound_channel_paused", group): 0,
        ("inbound_channel_abandoned_partitions", group): 0,
        ("inbound_channel_kafka_available", group): 1,
        ("inbound_channel_buffered_bytes", group): 4096,
        ("inbound_channel_buffer_limit_bytes", group): 65536,
        ("inbound_ledger_available", group): 1,
        ("inbound_ledger_provable", group): 1,
        ("inbound_commits_waiting", group): 1,
        ("inbound_batches_total", group): 12,
        ("inbound_commits_total", group): 11,
        ("inbound_commits_fenced_total", group): 0,
        ("inbound_retention_lost_offsets_total", group): 0,
        ("inbound_not_sent_total", group): 3,
        ("inbound_zookeeper_transactions_total", group): 9,
        ("inbound_partition_records_total", part): 500,
        ("inbound_partition_state", tuple(sorted((*part, ("state", "ok"))))): 1,
        ("inbound_partition_position", part): 1500,
        ("inbound_partition_committed_offset", part): 1400,
        ("inbound_partition_lag", part): 600,
        ("inbound_partition_buffered_bytes", part): 4096,
        (
            "eventing_kafka_consumed_msg_count",
            (("consumer", "host-1"), ("partition", "0"), ("topic", "orders")),
        ): 500,
    }
    assert ours == expected


def test_the_gauge_of_the_ancestor_is_there_from_0_on() -> None:
    """Each owned partition has its series before the first record, in the very words of the ancestor."""
    idle = channel(consumed={})

    body, content_type = Exposition(lambda: process(channels=[idle])).render()

    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert [line for line in body.decode().splitlines() if "consumed_msg_count" in line] == [
        "# HELP eventing_kafka_consumed_msg_count Consumed Message Count",
        "# TYPE eventing_kafka_consumed_msg_count gauge",
        'eventing_kafka_consumed_msg_count{consumer="host-1",partition="0",topic="orders"} 0.0',
        'eventing_kafka_consumed_msg_count{consumer="host-1",partition="1",topic="orders"} 0.0',
    ]


def test_channels_with_one_consumer_id_stay_apart() -> None:
    """Two groups may use the same consumer id on the same topic; the ancestor's labels alone would collide."""
    both = [channel(), channel(name="audit", group="audit")]

    series = scrape(process(channels=both))

    assert of(series, "eventing_kafka_consumed_msg_count") == {
        ("host-1#orders", "0", "orders"): 500,
        ("host-1#orders", "1", "orders"): 0,
        ("host-1#audit", "0", "orders"): 500,
        ("host-1#audit", "1", "orders"): 0,
    }


def test_a_counter_does_not_go_back_when_its_partition_leaves_and_returns() -> None:
    """Records are counted per process: gone partitions keep their series, and a new claim does not start at 0."""
    counts = []
    held = channel(partitions=[partition(0, records_total=500)], consumed={"orders/0": 500})
    gone = replace(held, partitions=[])
    back = replace(held, partitions=[partition(0, records_total=3)], consumed={"orders/0": 503})
    for step in (held, gone, back):
        series = scrape(process(channels=[step]))
        counts.append(of(series, "inbound_partition_records_total"))

    assert counts == [{("orders", "orders-svc", "0", "orders"): n} for n in (500, 500, 503)]


def test_what_is_not_known_has_no_series() -> None:
    """Before Kafka has told the log's end there is no lag, and no lag of 0."""
    young = partition(committed=None, high_watermark=None, lag=None)

    series = scrape(process(channels=[channel(partitions=[young])]))

    names = {name for name, _ in series}
    assert "inbound_partition_position" in names
    assert not names & {
        "inbound_partition_committed_offset",
        "inbound_partition_lag",
    }


@pytest.mark.parametrize(
    ("trouble", "state"),
    [
        ({}, "ok"),
        ({"attempts": 3}, "failing"),
        ({"paused": True, "attempts": 3}, "paused"),
        ({"leaving": True, "paused": True}, "leaving"),
        ({"held": "see the log", "leaving": True}, "held"),
        ({"in_doubt": True, "held": "see the log"}, "in_doubt"),
    ],
)
def test_a_partition_is_in_one_state(trouble: dict[str, Any], state: str) -> None:
    """The most serious one is shown; the number of these series is the number of partitions that are owned."""
    series = scrape(process(channels=[channel(partitions=[partition(**trouble)])]))

    assert of(series, "inbound_partition_state") == {("orders", "orders-svc", "0", state, "orders"): 1}


def test_a_stalled_partition_says_why() -> None:
    """The cause is a label; while it moves there is no series."""
    stands = partition(0, cause="subscriber-down", stalled=stalled("subscriber-down", 100.0))

    series = scrape(process(channels=[channel(partitions=[stands, partition(1)])]))

    assert of(series, "inbound_partition_stalled") == {("subscriber-down", "orders", "orders-svc", "0", "orders"): 1}


def test_trouble_shows() -> None:
    """Servers away, a ledger with a gap, and who is no member each have a metric to alert on."""
    troubled = channel(kafka_problem="no brokers", ledger_problem="disk full", provable=False)

    series = scrape(
        process(channels=[replace(troubled, registered=False, abandoned=["orders/9"], paused=[Pause("operator")])])
    )

    group = ("orders", "orders-svc")
    assert of(series, "inbound_channel_kafka_available") == {group: 0}
    assert of(series, "inbound_ledger_available") == {group: 0}
    assert of(series, "inbound_ledger_provable") == {group: 0}
    assert of(series, "inbound_channel_registered") == {group: 0}
    assert of(series, "inbound_channel_paused") == {group: 1}
    assert of(series, "inbound_channel_abandoned_partitions") == {group: 1}
    assert of(series, "inbound_ready") == {(): 0}


def test_a_configuration_that_is_not_in_force_shows() -> None:
    """Refused as it stands, or read and not started; and what became of the changes so far."""
    refused = process(config_problem="inbound.yaml:3: no such key")
    rolled_back = ReloadStatus(digest="d", applied_total=2, rolled_back_total=1, last_at=100.0, problem="did not start")

    assert of(scrape(refused), "inbound_config_in_force") == {(): 0}
    series = scrape(process(reload=rolled_back))
    assert of(series, "inbound_config_in_force") == {(): 0}
    assert of(series, "inbound_config_reloads_total") == {("applied",): 2, ("refused",): 0, ("rolled_back",): 1}
    assert of(series, "inbound_config_last_reload_timestamp_seconds") == {(): 100}


@pytest.mark.parametrize("state", list(SessionState))
def test_the_session_is_in_one_state(state: SessionState) -> None:
    """Every state that the session has is shown, one of them as 1."""
    series = scrape(process(session=session(state=state.value)))

    assert of(series, "inbound_zookeeper_session_state") == {(s.value,): float(s is state) for s in SessionState}


def test_several_processes_behind_one_port() -> None:
    """Series of different processes do not collide: all but the ancestor's gauge say whose they are, from 0 on."""
    first = process(pid=1, channels=[channel(consumer_id="host-0", partitions=[partition(0)], consumed={})])
    second = process(
        pid=2, channels=[channel(consumer_id="host-1", partitions=[partition(1)], consumed={"orders/0": 8})]
    )

    series = scrape([first, second])

    assert of(series, "inbound_partition_records_total") == {
        ("orders", "orders-svc", "0", "1", "orders"): 0,
        ("orders", "orders-svc", "0", "2", "orders"): 8,
        ("orders", "orders-svc", "1", "2", "orders"): 0,
    }
    assert of(series, "eventing_kafka_consumed_msg_count") == {
        ("host-0", "0", "orders"): 0,
        ("host-1", "1", "orders"): 0,
    }


def test_no_process_answers() -> None:
    """While all children start, there are the metrics of the parent and none of inbound."""
    assert {name.split("_")[0] for name, _ in scrape([])} == {"process", "python"}


def test_a_thousand_partitions_cost_little() -> None:
    """A scrape of 1,000 partitions takes a few hundredths of a second of a quiet core; here the bound is wide."""
    many = channel(partitions=[partition(n) for n in range(1000)], consumed={f"orders/{n}": n for n in range(1000)})
    page = Exposition(lambda: process(channels=[many]))

    def cost() -> float:
        before = time.thread_time()
        body, _ = page.render()
        assert body.count(b"\ninbound_partition_lag{") == 1000
        return time.thread_time() - before

    assert min(cost(), cost()) < patient(0.15)

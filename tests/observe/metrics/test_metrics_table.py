"""The table of metrics against what is really exposed, its conventions, and the pages and files made with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from inbound.observe.metrics import SECTIONS, Exposition
from inbound.observe.metrics.definition import AnySection
from inbound.observe.metrics.processes import PRODUCED
from inbound.observe.status.status import ProcessStatus, process_status, stalled
from inbound.runtime.instruments import KINDS, OTHER, Histogram, HistogramStatus, Kinds
from scripts.document_metrics import ALERTS, DASHBOARD, DOCUMENT, documented, renewed
from tests.observe.status.made_status import partition, process
from tests.observe.status.rich_status import meters, rich_channel, rich_process

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
METRICS = {metric.name: (section, metric) for section in SECTIONS for metric in section.metrics}
#: Endings of the samples of one histogram.
PARTS = ("_bucket", "_sum", "_count")


def families(found: ProcessStatus | Sequence[ProcessStatus], accept: str | None = None) -> dict[str, Any]:
    """Return what a Prometheus server reads, without what is of Python: the families by name."""
    body, _ = Exposition(lambda: found).render(accept)
    parse: Callable[[str], Iterable[Any]] = prometheus if accept is None else openmetrics
    return {f.name: f for f in parse(body.decode()) if not f.name.startswith(("python_", "process_"))}


def test_every_metric_of_the_table_is_exposed_and_no_other() -> None:
    """With type and help in both formats, with its unit in OpenMetrics; the document is made of the same table."""
    for accept in (None, OPENMETRICS):
        found = families(rich_process(), accept)

        # The parser of the older format takes `_total` off, as OpenMetrics does.
        told = {name: (family.type, family.documentation) for name, family in found.items()}
        assert told == {metric.family: (metric.kind, metric.help) for _, metric in METRICS.values()}
    assert {name: family.unit for name, family in found.items()} == {m.family: m.unit for _, m in METRICS.values()}
    assert {family.unit for family in found.values()} == {"", "seconds", "bytes"}


def test_both_formats_say_the_same() -> None:
    """Every series has the same value, whichever format the scraper asks for."""

    def samples(accept: str | None) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (s.name, tuple(sorted(s.labels.items()))): s.value
            for family in families(rich_process(), accept).values()
            for s in family.samples
        }

    assert samples(None) == samples(OPENMETRICS)


@pytest.mark.parametrize("version", ["x", "1.x", "1.0.0-rc1"])
def test_a_version_that_is_none_gets_the_plain_text(version: str) -> None:
    """For clients that ask for it."""
    found = Exposition(rich_process).render(f"application/openmetrics-text;version={version}")

    assert found[1] == Exposition(rich_process).render("")[1]


def test_openmetrics_is_named_when_it_is_asked_for() -> None:
    """By a scraper that would rather have it."""
    _, content_type = Exposition(rich_process).render(f"{OPENMETRICS},text/plain;version=0.0.4;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")


def test_names_follow_the_conventions() -> None:
    """Base units, `_total` for counters and nothing else, and one name with one meaning."""
    for section, metric in METRICS.values():
        ancestor = metric.name.startswith("eventing_kafka_")
        assert ancestor or re.fullmatch(r"inbound(_[a-z]+)+", metric.name), metric.name
        assert (metric.kind == "counter") == metric.name.endswith("_total"), metric.name
        assert metric.kind != "histogram" or metric.name.endswith(("_seconds", "_bytes")), metric.name
        assert ancestor or not re.search(r"_(ms|milliseconds?|minutes?|kb|mb|percent)(_|$)", metric.name), metric.name
        assert re.fullmatch(r"[A-Z01].*[^.]", metric.help), metric.name
        labels = [*section.labels, *([metric.label] if metric.label else [])]
        assert len(set(labels)) == len(labels)
        assert {"le", "pid", "quantile"}.isdisjoint(labels)
        assert metric.label is None or metric.values > 0, metric.name
    assert len(METRICS) == sum(len(section.metrics) for section in SECTIONS), "a name stands twice"
    family_names = Counter(metric.family for _, metric in METRICS.values())
    assert max(family_names.values()) == 1


def test_a_partition_has_at_most_eight() -> None:
    """Thousands of them must not drown a Prometheus; what can be worked out of others has no series of its own."""
    of_partitions = [section for section in SECTIONS if "partition" in section.labels and section is not PRODUCED]

    assert sum(section.most for section in of_partitions) <= 8
    for state in (
        {},
        {"held": "x", "stalled": stalled("poison-event", 1.0)},
        {"in_doubt": True, "attempts": 3},
        {"paused": True},
        {"leaving": True},
    ):
        one = rich_channel(partitions=[partition(0, **state)], consumed={})
        found = families(rich_process(channels=[one], offsets=None, ingress=None))
        series = [s for f in found.values() for s in f.samples if "partition" in s.labels]
        assert len(series) <= 8, series


def bound(found: ProcessStatus) -> int:
    """The most series that a process with these channels, partitions and threads may have in any case."""

    def subjects(section: AnySection) -> int:
        return sum(1 for _ in section.subjects(found, [found]))

    return sum(section.most * subjects(section) for section in SECTIONS)


def test_the_number_of_series_is_bounded() -> None:
    """With any exceptions and any answers: the bound follows from channels, partitions and threads alone."""
    raised, answered = Kinds(), Kinds(most=40)
    for n in range(5000):
        raised.add(f"Error{n}")
        answered.add(str(n))
    one = rich_channel()
    wild = rich_channel(
        meters=meters(exceptions=raised.counts()), processor={**one.processor, "answers": answered.counts()}
    )
    several = [
        rich_channel(
            name=f"channel-{n}", meters=wild.meters, processor=wild.processor, consumed={},
            partitions=[partition(p, stalled=stalled(f"cause-{p}", 1.0)) for p in range(100)],
        )
        for n in range(3)
    ]  # fmt: skip
    found = rich_process(channels=several)

    series = [sample for family in families(found).values() for sample in family.samples]

    per_partition = sum(section.most for section in SECTIONS if "partition" in section.labels)
    assert len(series) <= bound(found)
    assert bound(found) <= 3 * 100 * per_partition + 3 * 400 + 100
    assert raised.counts()[OTHER] == 5000 - KINDS


def test_a_histogram_is_read_as_one() -> None:
    """Buckets add up to the count; what is above all bounds is in the last."""
    family = families(rich_process())["inbound_batch_duration_seconds"]

    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    rest = {s.name.rpartition("_")[2]: s.value for s in family.samples if not s.name.endswith("_bucket")}
    assert (buckets["0.0025"], buckets["0.005"], buckets["0.25"], buckets["300.0"], buckets["+Inf"]) == (0, 2, 3, 3, 4)
    assert rest == {"count": 4, "sum": pytest.approx(1000.206)}


@pytest.mark.parametrize("accept", [None, OPENMETRICS])
def test_the_parent_of_several_processes_shows_them_as_they_show_themselves(accept: str | None) -> None:
    """It has their status as JSON only; types, help and histograms come through it, and each series says whose it is."""
    mine = rich_process(pid=7)
    heard = process_status(json.loads(json.dumps(mine.as_dict())))

    alone, behind_one_port = families(mine, accept), families([heard], accept)

    for name, family in alone.items():
        other = behind_one_port[name]
        assert (other.type, other.documentation) == (family.type, family.documentation)
        pid = {} if name.endswith("_msg_count") else {"pid": "7"}
        told = [(s.name, s.labels | pid, s.value) for s in family.samples]
        assert [(s.name, s.labels, s.value) for s in other.samples] == told
    assert process_status(json.loads(json.dumps(heard.as_dict()))) == heard


def test_a_process_that_knows_nothing_yet_exposes_no_histogram_and_no_made_up_value() -> None:
    """A child of another version may know less: missing values have no series."""
    body = process().as_dict()
    for channel in body["channels"]:
        del channel["meters"], channel["ledger"], channel["buffer_limit_bytes"]

    found = families(process_status(body))

    assert not [name for name, family in found.items() if family.type == "histogram"]
    assert "inbound_exceptions" not in found


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
def test_any_value_of_a_label_comes_back(group: str, exception: str) -> None:
    """Also quotes, backslashes and ends of lines of every kind."""
    one = rich_channel(group=group, meters=meters(exceptions={exception: 3}))

    body, _ = Exposition(lambda: rich_process(channels=[one])).render()

    # By `\n` alone, as Prometheus does; Python's parser would end lines at other characters too.
    (line,) = [line for line in body.decode().split("\n") if line.startswith("inbound_exceptions_total{")]
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    group_text, exception_text = ("".join(escaped.get(c, c) for c in text) for text in (group, exception))
    assert line == (
        f'inbound_exceptions_total{{channel="orders",group="{group_text}",exception="{exception_text}"}} 3.0'
    )


def test_a_histogram_counts_a_value_at_a_bound_below_it() -> None:
    """Prometheus' `le`: less or equal."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)

    status = histogram.status()

    assert (status.counts, status.sum, status.count) == ((2, 2, 1), 7.5, 5)


@pytest.mark.parametrize(("share", "bound"), [(0.0, 1.0), (0.4, 1.0), (0.5, 2.0), (0.8, 2.0), (0.99, float("inf"))])
def test_a_share_of_a_histogram_is_within_a_bound(share: float, bound: float) -> None:
    """The least of its bounds; infinity where some are above all of them."""
    assert HistogramStatus((1.0, 2.0), (2, 2, 1), 7.5).within(share) == bound


def test_what_the_ingress_has_written_is_there_under_the_ancestors_name() -> None:
    """The producer is another one in each process, so one port can show several."""
    several = [rich_process(pid=pid) for pid in (7, 8)]

    body, _ = Exposition(lambda: several).render()

    assert [line for line in body.decode().splitlines() if "produced_msg_count" in line] == [
        "# HELP eventing_kafka_produced_msg_count Produced Message Count",
        "# TYPE eventing_kafka_produced_msg_count gauge",
        *(
            f'eventing_kafka_produced_msg_count{{partition="{p}",producer="inbound-ingress#producer-{pid}",topic="orders"}} {count}'
            for pid in (7, 8)
            for p, count in ((0, 4.0), (1, 6.0))
        ),
    ]


# -- what is made with the table ---------------------------------------------------------------------------------------


def test_the_document_is_up_to_date() -> None:
    """A new metric, or a new help text, is not in the document until `make docs` has run."""
    text = DOCUMENT.read_text()
    assert text == renewed(text), "run `make docs`"


def test_the_document_lists_every_metric_once() -> None:
    """By its name and with its labels."""
    assert Counter(documented(DOCUMENT.read_text())) == Counter(METRICS.keys())


def series_named(expression: str) -> set[str]:
    """Return the names of series in a PromQL expression."""
    return set(re.findall(r"\b(?:inbound|eventing_kafka)_[a-z_]+", expression))


def unknown(names: Iterable[str]) -> list[str]:
    """Return those that no metric exposes."""
    histograms = {f"{name}{part}" for name, (_, m) in METRICS.items() if m.kind == "histogram" for part in PARTS}
    exposed = {name for name, (_, m) in METRICS.items() if m.kind != "histogram"} | histograms
    return sorted(name for name in names if name not in exposed)


def test_each_alert_says_for_whom_it_is_and_what_to_do() -> None:
    """With a name of its own; its expression is read in test_dashboards.py."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 10
    for rule in rules:
        assert series_named(rule["expr"]), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    """Each has a title and a query, which is read in test_dashboards.py."""
    dashboard = json.loads(DASHBOARD.read_text())

    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) >= 12
    for panel in panels:
        assert all(
            [panel["title"], panel["description"], *(series_named(target["expr"]) for target in panel["targets"])]
        )
    taken = Counter(
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert max(taken.values()) == 1
    assert all(x < 24 for x, _ in taken)


def test_pages_name_metrics_that_there_are() -> None:
    """In every document, also where no table is made."""
    pages = [*DOCUMENT.parent.glob("*.md"), DOCUMENT.parent.parent / "README.md"]

    named = {page.name: unknown(re.findall(r"`(inbound_[a-z_]+[a-z])[`{]", page.read_text())) for page in pages}

    bare = {name for name, (_, metric) in METRICS.items() if metric.kind == "histogram"}
    assert {page: set(names) - bare for page, names in named.items() if set(names) - bare} == {}

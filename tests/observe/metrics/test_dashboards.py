"""The alert rules and the Grafana dashboard against the metrics that there are: each expression, and each label it uses."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
import yaml

from inbound.observe.metrics import SECTIONS
from inbound.observe.metrics.definition import PID
from scripts.document_metrics import ALERTS, DASHBOARD
from tests.observe.metrics.promql import PromqlError, labels_of

#: The labels that Prometheus puts on every series.
TARGET = frozenset({"job", "instance"})
#: Of Python's own client library; no section of ours has them.
OTHERS = ("process_cpu_seconds_total", "process_resident_memory_bytes")
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
BOARD: dict[str, Any] = json.loads(DASHBOARD.read_text())
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"] for variable in BOARD["templating"]["list"]}


def exposed() -> dict[str, frozenset[str]]:
    """Return the labels of every series by its name, as a Prometheus has them."""
    found = dict.fromkeys(OTHERS, TARGET)
    for section in SECTIONS:
        # `pid` only behind one port of several processes; who sums must not be surprised by it.
        labels = TARGET | frozenset(section.labels) | (frozenset({PID}) if section.has_pid else frozenset())
        for metric in section.metrics:
            own = labels | (frozenset({metric.label}) if metric.label else frozenset())
            if metric.kind == "histogram":
                found |= {f"{metric.name}_bucket": own | {"le"}, f"{metric.name}_sum": own, f"{metric.name}_count": own}
            else:
                found[metric.name] = own
    return found


EXPOSED = exposed()


def read(expression: str) -> frozenset[str]:
    """Return the labels that an expression of ours ends with, with Grafana's variables filled in."""
    filled = expression.replace("$__rate_interval", "5m")
    used = set(re.findall(r"\$([a-z_]+)", filled))
    assert used <= VARIABLES, f"{expression}: uses a variable that the dashboard does not have"
    return labels_of(re.sub(r"\$[a-z_]+", ".*", filled), EXPOSED.__getitem__)


def placeholders(text: str) -> set[str]:
    """Return the labels that a legend or an annotation wants."""
    return set(re.findall(r"\{\{ *(?:\$labels\.)?([a-z_]+) *\}\}", text))


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_can_fire_and_say_which(rule: dict[str, Any]) -> None:
    """Its expression is PromQL of metrics and labels that there are, and what its words name is left at the end of it."""
    labels = read(rule["expr"])

    words = " ".join(rule["annotations"].values())
    assert placeholders(words) <= labels
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"[0-9]+[smhd]", rule.get("for", "0s"))


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
def test_a_panel_asks_for_what_there_is(panel: dict[str, Any]) -> None:
    """Of the Prometheus that was chosen; its legends name labels that its series have."""
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        assert target["datasource"] == panel["datasource"]
        assert placeholders(target.get("legendFormat", "")) <= read(target["expr"]), target["expr"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_the_variables_of_the_dashboard_are_labels_that_there_are() -> None:
    """The Prometheus is chosen first; what is asked of it are values of a label of a metric of ours."""
    first, *others = BOARD["templating"]["list"]

    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    for variable in others:
        match = re.fullmatch(r"label_values\((.*), ([a-z]+)\)", variable["query"]["query"])
        assert match is not None
        assert match[2] in read(match[1])
        assert variable["definition"] == variable["query"]["query"]


def test_the_panels_have_numbers_of_their_own_and_stand_in_rows() -> None:
    """Grafana renumbers, and moves, what is not so: each edit would be a diff of everything."""
    ids = [panel["id"] for panel in BOARD["panels"]]
    tops = [panel["gridPos"]["y"] for panel in BOARD["panels"]]

    assert max(Counter(ids).values()) == 1
    assert tops == sorted(tops)
    assert BOARD["panels"][0]["type"] == "row"
    assert max(Counter(panel["title"] for panel in BOARD["panels"]).values()) == 1
    assert all(panel["gridPos"]["w"] == 24 for panel in BOARD["panels"] if panel["type"] == "row")


def test_what_can_stall_unseen_has_a_rule_and_a_panel() -> None:
    """A mirror that is refused, a reset that does not end, a gate that stays closed, spans that go nowhere."""
    asked = {where: " ".join(found) for where, found in (
        ("rules", [rule["expr"] for rule in RULES]),
        ("panels", [target["expr"] for panel in PANELS for target in panel["targets"]]),
    )}  # fmt: skip

    for name in (
        "inbound_mirror_refused", "inbound_mirror_waiting_partitions", "inbound_resets_unfinished",
        "inbound_tracing_collector_available", "inbound_tracing_spans_dropped_total",
    ):  # fmt: skip
        assert name in asked["rules"]
        assert name in asked["panels"]
    assert "inbound_offsets_closed_gates" in asked["rules"]


# -- what reads them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "labels"),
    [
        ("inbound_ready", {*TARGET, PID}),
        ('sum by (group) (rate(inbound_batches_total{channel=~"a|b"}[5m]))', {"group"}),
        ("sum(inbound_ready) by (job)", {"job"}),
        ("max without (pid, instance) (inbound_resets_unfinished) > 0", {"job"}),
        ("count(inbound_ready == 0) or vector(0)", set()),
        (
            "histogram_quantile(0.9, sum by (le, group) (rate(inbound_batch_duration_seconds_bucket[1h30m])))",
            {"group"},
        ),
        ("topk(3, inbound_resets_unfinished)", {*TARGET, PID}),
        ("process_cpu_seconds_total and on (instance) inbound_build_info", TARGET),
        ("max by (group) (inbound_group_share) - on (group) max by (group) (inbound_group_members) >= 1", {"group"}),
    ],
)
def test_labels_follow_from_the_expression(expression: str, labels: set[str]) -> None:
    """As Prometheus works them out."""
    assert labels_of(expression, EXPOSED.__getitem__) == labels


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum by (group) (inbound_ready", "unclosed left parenthesis"),
        ("inbound_readi > 0", "no metric is called inbound_readi"),
        ("inbound_batch_duration_seconds", "no metric is called"),
        ('inbound_ready{grup="a"}', "inbound_ready has no label grup"),
        ("sum by (topic) (inbound_group_share)", r"\(topic\): there is no such label"),
        ("rate(inbound_batches_total)", "expected type matrix"),
        ("inbound_batches_total[5m]", "is no instant vector"),
        ("histogram_quantile(0.9, inbound_ready)", "takes something else"),
        ("inbound_group_share == inbound_ready", "never match: only one has channel, group"),
        (
            "inbound_group_share unless on (topic) inbound_partition_lag",
            r"on \(topic\): a side of unless has no such label",
        ),
        ("1 + 1", "is no instant vector"),
        ("predict_linear(inbound_partition_lag[5m], 60)", "predict_linear is not known"),
    ],
)
def test_what_prometheus_would_refuse_or_never_answer_is_found(expression: str, problem: str) -> None:
    """And a function that is not known here is an error too."""
    with pytest.raises(PromqlError, match=problem):
        labels_of(expression, EXPOSED.__getitem__)

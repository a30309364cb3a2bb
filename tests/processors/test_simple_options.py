"""Wrong options of `simple` and its sinks: each is refused before anything starts, with file, line and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.config import load
from inbound.errors import ConfigError
from inbound.plan.plan import plan_channels
from inbound.processors.simple import SimpleOptions
from inbound.processors.sinks.base import EventSink

HERE = __name__
HEAD = """channels:
  orders:
    topics: [orders]
    group: g
    processor:
      type: simple
      options:
"""
ALLOWED = "log, jsonl, http, or module:Class for one of your own"
DURATION = "need a duration such as 10s (units: ms, s, m, h, d), got "
RATE = "need events per second, such as 1000 or 1000/s, got "
URL = "need a URL of printable ASCII such as http://host:8080/path (http or https)"


class NoOptions(EventSink):
    """A sink without options."""

    def send(self, event: Any) -> None:
        raise AssertionError


class NoSink:
    """Something else."""


def planned(text: str) -> SimpleOptions:
    """Return the options that are written below `options`."""
    lines = "".join(f"        {line}\n" for line in text.splitlines())
    options = plan_channels(load(HEAD + lines, filename="inbound.yaml"))["orders"].options
    assert isinstance(options, SimpleOptions)
    return options


def refusals(text: str) -> list[str]:
    """Return the problems with what is written below `options`: line, path, problem."""
    with pytest.raises(ConfigError) as caught:
        planned(text)
    return [
        line.replace("inbound.yaml:", "").replace(" channels.orders.processor.options.", " ")
        for line in str(caught.value).splitlines()
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("mode: perodic", "mode: need one of every-batch, periodic, got 'perodic'; did you mean periodic?"),
        ("mode: on", "mode: need one of every-batch, periodic, got on, which YAML reads as true"),
        ("period: 30s", "period: is used only with mode: periodic, but mode is every-batch; change one of the two"),
        ("period: 30", f"period: {DURATION}30"),
        ("period: 0s", "period: need more than 0s, got 0s"),
        ("period: -1s", "period: need more than 0s, got -1s"),
        ("no_duplication: maybe", "no_duplication: need true or false, got 'maybe'"),
        ("max_read_rate: 0", "max_read_rate: need more than 0/s, got 0/s"),
        ("max_read_rate: 0/s", "max_read_rate: need more than 0/s, got 0/s"),
        ("max_read_rate: -5", "max_read_rate: need more than 0/s, got -5/s"),
        ("max_read_rate: -0.5/s", "max_read_rate: need more than 0/s, got -0.5/s"),
        ("max_read_rate: 10/m", f"max_read_rate: {RATE}'10/m'"),
        ("max_read_rate: 10s", f"max_read_rate: {RATE}'10s'"),
        ("max_read_rate: .nan", f"max_read_rate: {RATE}nan"),
        ("max_read_rate: .inf", f"max_read_rate: {RATE}inf"),
        ("max_read_rate: true", f"max_read_rate: {RATE}true"),
        ("undecodable: drop", "undecodable: need one of fail, skip, got 'drop'"),
        ("read_rate: 5", "read_rate: unknown key; did you mean max_read_rate? allowed: max_read_rate, mode, "
         "no_duplication, period, sinks, undecodable"),
    ],
)  # fmt: skip
def test_a_bad_option_is_refused(line: str, problem: str) -> None:
    """At its line."""
    assert refusals(f"sinks: [log]\n{line}") == [f"9: {problem}"]


def test_at_most_once_and_periodic_commits_exclude_each_other() -> None:
    """One commits before it sends, the other long after it."""
    assert refusals("sinks: [log]\nmode: periodic\nno_duplication: true") == [
        "10: no_duplication: cannot be true with mode: periodic, which sends before it commits, so that a crash repeats; "
        "use mode: every-batch, or no_duplication: false"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mode: periodic", "7: sinks: missing; this key is required"),
        ("sinks: []", "8: sinks: need at least 1, got 0"),
        ("sinks: log", "8: sinks: need a list, got 'log'"),
        ("sinks: [5]", "8: sinks[0]: need a mapping, got 5"),
        ("sinks: [{path: x}]", f"8: sinks[0]: a sink needs a `type`: {ALLOWED}"),
        ("sinks: [htp]", f"8: sinks[0].type: there is no sink 'htp'; allowed: {ALLOWED}"),
        ("sinks: [':Sink']", f"8: sinks[0].type: there is no sink ':Sink'; allowed: {ALLOWED}"),
        ("sinks:\n- {type: log, level: x}", "9: sinks[0].level: sink 'log' takes no options"),
        (f"sinks:\n- type: {HERE}:NoOptions\n  x: 1", f"10: sinks[0].x: sink '{HERE}:NoOptions' takes no options"),
        ("sinks: [log, jsonl]", "8: sinks[1].path: missing; this key is required"),
        ("sinks:\n- type: jsonl\n  path: x\n  fsinc: 1",
         "11: sinks[0].fsinc: sink 'jsonl': unknown key; did you mean fsync? allowed: fsync, path"),
        ("sinks:\n- type: jsonl\n  path: x\n  fsync: often", "11: sinks[0].fsync: need true or false, got 'often'"),
        ("sinks: ['no_such_module:Sink']", "8: sinks[0].type: sink 'no_such_module:Sink': importing no_such_module failed: "
         "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"sinks: ['{HERE}:Missing']", f"8: sinks[0].type: sink '{HERE}:Missing': module {HERE} has no Missing"),
        (f"sinks: ['{HERE}:NoSink']", f"8: sinks[0].type: sink '{HERE}:NoSink': NoSink must be a class made from "
         "BatchEventSink or EventSink"),
        (f"sinks: ['{HERE}:planned']", f"8: sinks[0].type: sink '{HERE}:planned': planned must be a class made from "
         "BatchEventSink or EventSink"),
    ],
)  # fmt: skip
def test_a_sink_that_cannot_be_is_refused(text: str, problem: str) -> None:
    """With what is allowed."""
    assert refusals(text) == [problem]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("url: ftp://h/", f"url: {URL}"),
        ("url: h:8080", f"url: {URL}"),
        ("url: 'http:///x'", f"url: {URL}"),
        ("url: 'http://h/ä'", f"url: {URL}"),
        ("url: 'http://h:99999/'", "url: need a URL such as http://host:8080/path"),
        ("url: http://me:s3cret@h/", "url: holds a user or password; put them in `headers`: {authorization: {file: path}}"),
        ("url: http://h/#x", "url: holds a # part, which is never sent; remove it"),
        ("url: 5", 'url: need text, got 5; put it in quotes: "5"'),
        ("mode: batch", "mode: need one of binary, structured, got 'batch'"),
        ("batch: 5", "batch: need true or false, got 5"),
        ("timeout: 5", f"timeout: {DURATION}5"),
        ("timeout: 0s", "timeout: need more than 0s, got 0s"),
        ("connect_timeout: 0s", "connect_timeout: need more than 0s, got 0s"),
        ("redirects: true", "redirects: sink 'http': unknown key; allowed: batch, ca_file, client_cert, client_key, "
         "connect_timeout, headers, mode, timeout, url"),
        ("ca_file: x", "ca_file: is used only where url is https; change one of the two"),
        ("client_cert: x", "client_cert: is used only where url is https; change one of the two"),
        ("client_key: x", "client_key: is used only with client_cert; give that too"),
        ("headers: 5", "headers: need a mapping, got 5"),
        ("headers: {content-type: x}", "headers.content-type: is a header that inbound sets itself; remove it"),
        ("headers: {CE-id: x}", "headers.CE-id: is a header that inbound sets itself; remove it"),
        ("headers: {'a b': x}", "headers.'a b': cannot be the name of a header"),
        ("headers: {a: 5}", "headers.a: need text in quotes, or {file: path} for a secret"),
        ('headers: {a: "s3cret\\r\\nx: y"}', "headers.a: need printable ASCII without blanks at its ends"),
        ("headers: {a: {fil: x, file: y}}", "headers.a.fil: sink 'http': unknown key; did you mean file? allowed: file"),
    ],
)  # fmt: skip
def test_a_bad_option_of_the_http_sink_is_refused(line: str, problem: str) -> None:
    """At its line; no secret is ever shown."""
    url = [] if line.startswith("url") else ["  url: http://h/"]
    text = "\n".join(["sinks:", "- type: http", *url, f"  {line}"])
    assert refusals(text) == [f"{10 + len(url)}: sinks[0].{problem}"]


def test_a_batch_has_no_mode_for_single_events() -> None:
    """Both were given, and only one can be meant."""
    assert refusals("sinks:\n- {type: http, url: 'http://h/', batch: true, mode: binary}") == [
        "9: sinks[0].mode: is for single events, but batch is true; remove one of the two"
    ]


def test_good_options_are_read_with_their_units() -> None:
    """Durations as everywhere, rates with or without `/s`."""
    one = planned("sinks: [log]\nmode: periodic\nperiod: 5m\nmax_read_rate: 1000/s")
    two = planned("sinks:\n- {type: http, url: 'https://h/', timeout: 500ms}\nno_duplication: true\nmax_read_rate: 0.5")
    assert (one.mode, one.period, one.max_read_rate, one.no_duplication) == ("periodic", 300.0, 1000.0, False)
    assert (two.mode, two.max_read_rate, two.no_duplication, two.sinks[0].options.timeout) == (
        "every-batch",
        0.5,
        True,
        0.5,
    )

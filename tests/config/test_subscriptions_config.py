"""Subscriptions in the configuration: each becomes a channel of its own, and what is wrong has file and line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from inbound.cli.main import main
from inbound.config import load, render
from inbound.errors import ConfigError
from inbound.plan.plan import plan_channels
from inbound.plan.subscriptions import channels_of, read_subscriptions
from inbound.processors.dispatch.options import DispatchOptions

EXAMPLES = Path(__file__).parent.parent.parent / "config" / "examples"
CHANNEL = "mynamespace.my-kafkachannel"
FIRST, SECOND = "5c3f9e0a-5f0e-4f6f-9c43-0d6f0a4c2b11", "9a1d7c52-7a0e-4f0b-8a51-6d5f6b0c8e22"
HEAD = """\
channels:
  orders:
    topics: [orders]
    group: posted
    reader: {batch_bytes: 500kB}
    subscriptions:
"""
TWO = """\
      billing: {subscriberUri: "http://billing:8080", delivery: {retry: 3, backoffDelay: PT2S}, uid: u-1, generation: 4}
      audit:
        subscriberUri: "http://audit:8080"
        group: auditors
        ordering: key
        batch: {max_events: 10}
"""


def refusal(text: str) -> str:
    """Return the message that the configuration is refused with."""
    with pytest.raises(ConfigError) as caught:
        plan_channels(load(text, filename="inbound.yaml"))
    return str(caught.value)


def test_each_subscription_is_a_channel_with_a_group_of_its_own() -> None:
    """What the channel says of reading counts for all of them; their own part is the dispatcher's."""
    text = HEAD + TWO + "  plain: {topics: [x], group: g, processor: {type: simple, options: {sinks: [log]}}}\n"
    loaded = load(text, filename="f")

    found = read_subscriptions(loaded).found
    planned = plan_channels(loaded)

    assert {name: (made.config.group, made.ref.uid, made.ref.generation) for name, made in found.items()} == {
        "orders.billing": ("posted.billing", "u-1", 4),
        "orders.audit": ("auditors", "orders.audit", None),
    }
    assert {made.config.reader.batch_bytes for made in found.values()} == {500_000}
    billing, audit = (made.options for made in found.values())
    assert (billing.delivery.retry, billing.delivery.backoffDelay, billing.window) == (3, 2.0, 500)
    assert (audit.ordering, audit.window) == ("key", 500)
    assert type(audit) is DispatchOptions
    assert {name: plan.processor.__name__ for name, plan in planned.items()} == {
        "plain": "SimpleProcessor",
        "orders.billing": "DispatchProcessor",
        "orders.audit": "DispatchProcessor",
    }
    assert set(channels_of(loaded)) == set(planned)


def test_members_can_tell_whose_options_differ_where_no_generation_is_given() -> None:
    """The digest is of what the dispatcher gets, however it is written."""
    texts = [
        '      audit: {subscriberUri: "http://a", delivery: {timeout: 30s}}\n',
        '      audit: {delivery: {timeout: PT30S}, subscriberUri: "http://a", generation: 7}\n',
        '      audit: {subscriberUri: "http://a", delivery: {timeout: 31s}}\n',
    ]
    first, same, other = (
        read_subscriptions(load(HEAD + text, filename="f")).found["orders.audit"].ref.digest for text in texts
    )
    assert (first == same, first == other) == (True, False)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("      {}\n", "6: channels.orders.subscriptions: need at least one subscription, or a processor instead"),
        (
            '      a: {subscriberUri: "http://a"}\n    processor: {type: simple}\n',
            "8: channels.orders.processor: give processor or subscriptions, not both",
        ),
        ("      a: {}\n", "7: channels.orders.subscriptions.a.subscriberUri: missing; this key is required"),
        (
            "      a:\n        subscriberUri: billing:80\n",
            "8: channels.orders.subscriptions.a.subscriberUri: need a URL of printable ASCII such as "
            "http://host:8080/path (http or https)",
        ),
        (
            '      a: {subscriberUri: "http://a", subscribeUri: x}\n',
            "7: channels.orders.subscriptions.a.subscribeUri: unknown key; did you mean subscriberUri? allowed: batch, "
            "ca_file, ceOverrides, client_cert, client_key, connect_timeout, connections, delayed_retry, delivery, filters, "
            "generation, group, headers, limits, max_in_flight, mode, on_undecodable, ordering, pass_headers, replyAudience, "
            "replyCACerts, replyUri, subscriberAudience, subscriberCACerts, subscriberUri, token_file, transport, uid",
        ),
        (
            '      a: {subscriberUri: "http://a", delivery: {retry: -1}}\n',
            "7: channels.orders.subscriptions.a.delivery.retry: need at least 0, got -1",
        ),
        (
            '      a: {subscriberUri: "http://a", group: same}\n      b: {subscriberUri: "http://b", group: same}\n',
            "8: subscription orders.a has group 'same' already; each subscription needs its own, for a group shares its "
            "events out",
        ),
        (
            '      a: {subscriberUri: "http://a", group: g}\n'
            "  plain: {topics: [x], group: g, processor: {type: simple, options: {sinks: [log]}}}\n",
            "7: channel plain has group 'g' already; each subscription needs its own, for a group shares its events out",
        ),
        (
            '      a: {subscriberUri: "http://a"}\n'
            "  orders.a: {topics: [x], group: g, processor: {type: simple, options: {sinks: [log]}}}\n",
            "7: another channel is called orders.a already; rename one of the two",
        ),
        (
            '      a/b: {subscriberUri: "http://a"}\n',
            "7: channels.orders.subscriptions.a/b: need a channel name (1 to 100 of a-z A-Z 0-9 . _ -, first a letter or "
            "digit), got 'a/b'",
        ),
        (
            '      a: {subscriberUri: "http://a", uid: x/y}\n',
            "7: channels.orders.subscriptions.a.uid: 'x/y' holds '/', which cannot be part of a ZooKeeper path; choose "
            "another name",
        ),
    ],
)
def test_an_error_names_its_line(lines: str, problem: str) -> None:
    """And with the path, as for every other key."""
    assert refusal(HEAD + lines) == f"inbound.yaml:{problem}"


def test_variables_and_flags_reach_into_a_subscription() -> None:
    """A variable has no case, so Knative's names are found in theirs."""
    environ = {"INBOUND__CHANNELS__ORDERS__SUBSCRIPTIONS__AUDIT__DELIVERY__BACKOFFDELAY": "PT9S"}
    flags = {"channels.orders.subscriptions.billing.subscriberUri": "http://other"}

    found = read_subscriptions(load(HEAD + TWO, filename="f", environ=environ, overrides=flags)).found

    assert found["orders.audit"].options.delivery.backoffDelay == 9.0
    assert found["orders.billing"].options.subscriberUri == "http://other"


def test_check_shows_each_subscription_with_its_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As YAML that loads again; a password in a URL is not shown."""
    monkeypatch.chdir(tmp_path)
    Path("inbound.yaml").write_text(HEAD + TWO.replace("audit:8080", "audit:8080/?token=hunter2"))

    assert main(["check", "--show"]) == 0

    shown = capsys.readouterr().out
    assert "# channel orders.audit: group auditors reads orders with dispatch (" in shown
    assert "hunter2" not in shown
    body = yaml.safe_load(shown)["channels"]["orders"]
    assert (body["subscriptions"]["billing"]["delivery"]["retry"], body["workers"]) == (3, 1)
    assert body["subscriptions"]["billing"]["max_in_flight"] == 500
    assert "processor" not in body
    plan_channels(load(shown, filename="again"))


def test_the_example_and_its_manifests_can_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they come with inbound."""
    monkeypatch.chdir(EXAMPLES)

    assert main(["check", "-c", "subscriptions.yaml"]) == 0

    groups = re.findall(r"(?m)^channel (\S+): group (\S+) reads (.+?) with dispatch", capsys.readouterr().out)
    assert groups == [
        ("orders.billing", "orders-svc.billing", "orders"),
        ("orders.search", "orders-svc.search", "orders, orders-search.10s, orders-search.1h"),
        (f"{CHANNEL}.{FIRST}", f"kafka.{FIRST}", CHANNEL),
        (f"{CHANNEL}.{SECOND}", f"kafka.{SECOND}", CHANNEL),
    ]


def test_what_is_rendered_loads_as_the_same_configuration() -> None:
    """Subscriptions and manifests too."""
    text = (
        HEAD + TWO + 'manifests: {paths: [a, b], group: "x.{uid}", options: {ordering: key}, settings: {workers: 2}}\n'
    )
    config = load(text, filename="f").config

    assert load(render(config), filename="g").config == config

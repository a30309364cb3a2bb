"""Knative's KafkaChannel manifests: what they say, what they may leave out, and what is wrong with them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from inbound.config import Loaded, load, parse_manifests
from inbound.errors import ConfigError
from inbound.planning import plan_channels
from inbound.subscriptions import subscriptions_of

CONFIG = "manifests: {paths: [channels]}\n"
HEAD = """\
apiVersion: messaging.knative.dev/v1beta1
kind: KafkaChannel
metadata:
  name: orders
  namespace: shop
"""
FULL = (
    HEAD
    + """\
  uid: 7c9e6679-7425-40de-944b-e07fc1f90ae7
  generation: 12
  resourceVersion: "4711"
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {team: shop}
  annotations:
    messaging.knative.dev/subscribable: v1
    inbound.dev/ordering: key
    inbound.dev/max_in_flight: "200"
spec:
  numPartitions: 8
  replicationFactor: 3
  retentionDuration: PT168H
  delivery:
    retry: 5
    backoffPolicy: linear
    backoffDelay: PT0.5S
    deadLetterSink: {uri: "http://dead:8080"}
  subscribers:
  - uid: u-1
    generation: 3
    subscriberUri: http://billing.shop.svc.cluster.local
    replyUri: http://replies.shop.svc.cluster.local
    delivery:
      retry: 9
      timeout: PT10S
      retryAfterMax: PT30S
      format: JSON
  - uid: u-2
    subscriberUri: http://audit.shop.svc.cluster.local
    delivery: null
status: {conditions: [{type: Ready, status: "True"}]}
"""
)


def loaded(*texts: str, config: str = CONFIG) -> Loaded:
    """Return a configuration and what its manifests say."""
    manifests = parse_manifests({f"channels/{n}.yaml": text for n, text in enumerate(texts)})
    return replace(load(config, filename="inbound.yaml"), manifests=manifests.channels)


def refusal(*texts: str, config: str = CONFIG) -> str:
    """Return the message that the manifests are refused with."""
    with pytest.raises(ConfigError) as caught:
        subscriptions_of(loaded(*texts, config=config))
    return str(caught.value)


def spec(*lines: str) -> str:
    """Return a manifest with these lines below `spec`, which is line 6."""
    return HEAD + "spec:\n" + "".join(f"  {line}\n" for line in lines)


SUBSCRIBER = ("subscribers:", '- {uid: u, subscriberUri: "http://a"}')


def test_a_manifest_as_it_is_printed_by_kubectl() -> None:
    """Topic and group are those of eventing-kafka; the subscriber's delivery goes before the channel's, key by key."""
    found = subscriptions_of(loaded(FULL))

    assert {name: (made.config.topics, made.config.group, made.ref.generation) for name, made in found.items()} == {
        "shop.orders.u-1": (("shop.orders",), "kafka.u-1", 3),
        "shop.orders.u-2": (("shop.orders",), "kafka.u-2", None),
    }
    first, second = (made.options for made in found.values())
    sink = first.delivery.deadLetterSink
    assert sink is not None
    assert (first.delivery.retry, first.delivery.backoffPolicy, first.delivery.backoffDelay) == (9, "linear", 0.5)
    assert (first.delivery.timeout, sink.uri, first.mode) == (10.0, "http://dead:8080", "structured")
    assert (first.replyUri, first.ordering, first.max_in_flight) == (
        "http://replies.shop.svc.cluster.local",
        "key",
        200,
    )
    assert (second.delivery.retry, second.delivery.timeout, second.mode, second.replyUri) == (5, 30.0, "binary", None)


def test_the_channels_are_planned_with_the_settings_of_the_configuration() -> None:
    """And with the names that it gives to topics and groups."""
    config = """
manifests:
  paths: [channels]
  topic: "knative-{name}"
  group: "{namespace}-{name}-{uid}"
  options: {ordering: none, delivery: {retry: 1, timeout: 7s}}
  settings: {auto_offset_reset: latest, reader: {batch_bytes: 500kB}}
"""
    found = plan_channels(loaded(spec("delivery: {retry: 2}", *SUBSCRIBER), config=config))["shop.orders.u"]

    read = (found.config.topics, found.config.group, found.config.auto_offset_reset, found.config.workers)
    assert read == (("knative-orders",), "shop-orders-u", "latest", 1)
    options = found.options
    assert (options.ordering, options.delivery.retry, options.delivery.timeout) == ("none", 2, 7.0)  # type: ignore[attr-defined]


def test_other_documents_are_left_out_and_lists_are_looked_into() -> None:
    """Several documents in a file, `kubectl get` of several objects, JSON; each other kind is named."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [json_of("one"), {"kind": "Secret"}]}, indent=1)
    files = {
        "a.yaml": f"---\nkind: Service\napiVersion: v1\n---\n{spec(*SUBSCRIBER)}---\n",
        "b.json": listed,
        "c.yaml": "# nothing\n",
    }
    manifests = parse_manifests(files)

    assert [manifest.name for manifest in manifests.channels] == ["shop.orders", "shop.one"]
    assert manifests.notes == (
        "a.yaml:2: a Service (v1) is ignored",
        "b.json:24: a Secret is ignored",
    )


def json_of(name: str) -> dict[str, object]:
    """Return a channel as an object."""
    return {
        "apiVersion": "messaging.knative.dev/v1",
        "kind": "KafkaChannel",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"subscribable": {"subscribers": [{"uid": "u-9", "subscriberUri": "http://a"}]}},
    }


def test_one_that_is_being_deleted_has_no_subscribers_any_more() -> None:
    """Kubernetes keeps it until its finalizers have run."""
    text = spec(*SUBSCRIBER).replace("  name: orders", '  name: orders\n  deletionTimestamp: "2026-01-01T00:00:00Z"')
    assert subscriptions_of(loaded(text)) == {}


def test_a_dead_letter_sink_may_be_another_channel_of_the_manifests() -> None:
    """Its events go to that channel's topic."""
    sink = "deadLetterSink: {ref: {apiVersion: messaging.knative.dev/v1beta1, kind: KafkaChannel, name: lost}}"
    lost = HEAD.replace("orders", "lost")

    made = subscriptions_of(loaded(spec("delivery:", f"  {sink}", *SUBSCRIBER), lost))["shop.orders.u"]

    assert made.options.delivery.deadLetterSink is not None
    assert made.options.delivery.deadLetterSink.topic == "shop.lost"


ROUND = (
    "shop.orders is read by this channel (topics: shop.orders); a record that fails would go round for ever; choose a topic "
    "that it does not read"
)


def test_a_dead_letter_sink_that_is_the_channel_itself_is_refused() -> None:
    """Each event that the subscriber does not take came back to it, for ever."""
    sink = "deadLetterSink: {ref: {apiVersion: messaging.knative.dev/v1beta1, kind: KafkaChannel, name: orders}}"
    assert refusal(spec("delivery:", f"  {sink}", *SUBSCRIBER)) == (
        f"channels/0.yaml:10: subscription shop.orders.u: delivery.deadLetterSink: {ROUND}"
    )


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ("processor: {type: dispatch, options: OPTIONS}", "channels.a.processor.options."),
        ("subscriptions: {u: OPTIONS}", "subscription a.u: "),
    ],
)
def test_a_dead_letter_sink_that_the_channel_reads_is_refused(given: str, where: str) -> None:
    """Of a subscription, and of a dispatcher as a channel's processor."""
    options = '{subscriberUri: "http://a", delivery: {deadLetterSink: shop.orders}}'
    text = f"channels:\n  a:\n    topics: [shop.orders]\n    group: g\n    {given.replace('OPTIONS', options)}\n"
    with pytest.raises(ConfigError) as caught:
        plan_channels(load(text, filename="inbound.yaml"))
    assert str(caught.value) == f"inbound.yaml:5: {where}delivery.deadLetterSink: {ROUND}"


REF = "delivery: {deadLetterSink: {ref: {kind: %s, name: x}}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (spec("subscriber: []"), "0.yaml:7: spec.subscriber: unknown key; did you mean subscribers? allowed: delivery, "
                                 "numPartitions, replicationFactor, retentionDuration, subscribable, subscribers"),
        (spec("subscribers: {}"), "0.yaml:7: spec.subscribers: need a list, got a mapping"),
        (spec("subscribers:", "- {uid: u}"), "0.yaml:8: spec.subscribers[0].subscriberUri: missing; this key is required"),
        (spec("subscribers:", '- {subscriberUri: "http://a"}'),
         "0.yaml:8: spec.subscribers[0].uid: missing; this key is required"),
        (spec("subscribers:", '- {uid: u, subscriberUri: "ftp://a"}'),
         "0.yaml:8: spec.subscribers[0].subscriberUri: need a URL of printable ASCII such as "
         "http://host:8080/path (http or https)"),
        (spec("subscribers:", "- uid: u", '  subscriberUri: "http://a"', "  delivery:", "    retry: many"),
         "0.yaml:11: spec.subscribers[0].delivery.retry: need a whole number, got 'many'"),
        (spec("delivery: {backoffDelay: P1Y}", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.backoffDelay: need an ISO 8601 duration such as PT0.2S, without years and months, got "
         "'P1Y'"),
        (spec("delivery: {backofDelay: PT1S}", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.backofDelay: unknown key; did you mean backoffDelay? allowed: backoffDelay, "
         "backoffPolicy, deadLetterSink, format, retry, retryAfterMax, timeout"),
        (spec("delivery: {format: xml}", *SUBSCRIBER), "0.yaml:7: spec.delivery.format: need one of json, binary, got 'xml'"),
        (spec(REF % "Service", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.deadLetterSink: the Service shop.x is not in the manifests, so where it listens is not "
         "known; give its uri"),
        (spec(REF % "KafkaChannel", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.deadLetterSink: the KafkaChannel shop.x is not in the manifests, so where it listens is "
         "not known; give its uri"),
        (spec("delivery: {deadLetterSink: {}}", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.deadLetterSink: needs a uri with http:// or https://, or a ref to a KafkaChannel of the "
         "manifests"),
        (spec(*SUBSCRIBER).replace("v1beta1", "v2"),
         "0.yaml:1: apiVersion: need one of messaging.knative.dev/v1beta1, messaging.knative.dev/v1, got "
         "'messaging.knative.dev/v2'; did you mean messaging.knative.dev/v1?"),
        (spec(*SUBSCRIBER).replace("  name: orders\n", ""), "0.yaml:3: metadata.name: missing; this key is required"),
        (spec(*SUBSCRIBER, *SUBSCRIBER[1:]),
         "0.yaml:9: another channel is called shop.orders.u already; rename one of the two"),
        (spec(*SUBSCRIBER).replace("spec:", "  annotations: {inbound.dev/order: key}\nspec:"),
         "0.yaml:6: metadata.annotations.inbound.dev/order: unknown; allowed: batch, connect_timeout, connections, "
         "max_in_flight, mode, on_undecodable, ordering"),
        (spec(*SUBSCRIBER).replace("spec:", "  annotations: {inbound.dev/ca_file: /etc/passwd}\nspec:"),
         "0.yaml:6: metadata.annotations.inbound.dev/ca_file: unknown; allowed: batch, connect_timeout, connections, "
         "max_in_flight, mode, on_undecodable, ordering"),
        (spec(*SUBSCRIBER).replace("spec:", "  annotations: {inbound.dev/ordering: keys}\nspec:"),
         "0.yaml:6: spec.subscribers[0].ordering: need one of partition, key, none, got 'keys'; did you mean key?"),
        (spec(*SUBSCRIBER) + "  subscribers: []\n", "0.yaml:9: spec.subscribers: given twice, also in line 7; keep one"),
        ("a: [", "0.yaml:1: not YAML: expected the node content, but found '<stream end>' (while parsing a flow node, line 1)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(text: str, problem: str) -> None:
    """And with the path of the field, as Kubernetes writes it."""
    assert refusal(text) == f"channels/{problem}"


def test_a_channel_stands_in_one_file_only() -> None:
    """Else which of the two counts would depend on the order of the files."""
    assert refusal(spec(*SUBSCRIBER), HEAD) == (
        "channels/1.yaml:4: metadata.name: KafkaChannel shop.orders is given twice, also in channels/0.yaml:4; keep one"
    )


def test_options_of_the_configuration_are_refused_there() -> None:
    """Not in the manifest, which is none the wiser."""
    config = "manifests:\n  paths: [x]\n  options: {orderin: key}\n"
    assert refusal(spec(*SUBSCRIBER), config=config).startswith(
        "inbound.yaml:3: spec.subscribers[0].orderin: unknown key; did you mean ordering?"
    )

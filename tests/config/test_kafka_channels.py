"""Knative's KafkaChannel manifests: what they say, what they may leave out, and what is wrong with them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from inbound.config import Loaded, load, parse_manifests
from inbound.config.manifest_models import Subscriber
from inbound.errors import ConfigError
from inbound.plan.destinations import posted_to
from inbound.plan.plan import plan_channels
from inbound.plan.subscriptions import read_subscriptions
from inbound.processors.dispatch.options import DeadLetterSink
from tests.http_receiver import CERTIFICATES

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
    return replace(load(config, filename="inbound.yaml"), manifests=manifests.channels, refused=manifests.refused)


def refusal(*texts: str) -> str:
    """Return what the manifests are refused with, of which nothing can be used."""
    found = read_subscriptions(loaded(*texts))
    assert found.found == {}
    return "\n".join(one.problem for one in found.refused)


def spec(*lines: str) -> str:
    """Return a manifest with these lines below `spec`, which is line 6."""
    return HEAD + "spec:\n" + "".join(f"  {line}\n" for line in lines)


SUBSCRIBER = ("subscribers:", '- {uid: u, subscriberUri: "http://a"}')


def test_a_manifest_as_it_is_printed_by_kubectl() -> None:
    """Topic and group are those of eventing-kafka; the subscriber's delivery goes before the channel's, key by key."""
    found = read_subscriptions(loaded(FULL)).found

    assert {name: (made.config.topics, made.config.group, made.ref.generation) for name, made in found.items()} == {
        "shop.orders.u-1": (("shop.orders",), "kafka.u-1", 3),
        "shop.orders.u-2": (("shop.orders",), "kafka.u-2", None),
    }
    first, second = (made.options for made in found.values())
    sink = first.delivery.deadLetterSink
    assert sink is not None
    assert (first.delivery.retry, first.delivery.backoffPolicy, first.delivery.backoffDelay) == (9, "linear", 0.5)
    assert (first.delivery.timeout, sink.uri, first.mode) == (10.0, "http://dead:8080", "structured")
    assert (first.delivery.retryAfterMax, second.delivery.retryAfterMax) == (30.0, None)
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


NEEDS_PEM = "need certificates in PEM: -----BEGIN CERTIFICATE----- and so on, nothing broken"
PEM = (CERTIFICATES / "ca.pem").read_text()
#: What Knative resolves of whom it sends to, beside the URI.
RESOLVED = spec(
    "subscribers:",
    "- uid: u",
    '  subscriberUri: "https://a"',
    f"  subscriberCACerts: {json.dumps(PEM)}",
    "  subscriberAudience: shop/a",
    '  replyUri: "https://b"',
    f"  replyCACerts: {json.dumps(PEM)}",
    "  replyAudience: shop/b",
    f'  delivery: {{deadLetterSink: {{uri: "https://c", CACerts: {json.dumps(PEM)}, audience: shop/c}}}}',
)


@pytest.mark.parametrize(
    ("options", "audiences"),
    [
        ("{}", (None, None, None)),
        ("{token_file: /tokens/one}", (None, None, None)),
        ('{token_file: "/tokens/{audience}"}', ("shop/a", "shop/b", "shop/c")),
    ],
)
def test_certificates_and_audiences_of_receivers_are_kept(
    options: str, audiences: tuple[str | None, str | None, str | None]
) -> None:
    """Audiences where the configuration says in which folder their tokens are: a manifest cannot say that."""
    text = f"manifests: {{paths: [channels], options: {options}}}\n"
    made = read_subscriptions(loaded(RESOLVED, config=text)).found["shop.orders.u"].options

    sink = made.delivery.deadLetterSink
    assert sink is not None
    assert (made.subscriberAudience, made.replyAudience, sink.audience) == audiences
    assert (made.subscriberCACerts, made.replyCACerts, sink.CACerts, sink.uri) == (PEM, PEM, PEM, "https://c")


def test_what_is_no_certificate_is_refused_with_its_line() -> None:
    """And not repeated."""
    assert refusal(RESOLVED.replace("BEGIN CERT", "BEGIN NO CERT", 1)) == (
        f"channels/0.yaml:10: spec.subscribers[0].subscriberCACerts: {NEEDS_PEM}"
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (spec("delivery:", "  deadLetterSink:", '    uri: "http://a"', "    CACerts: x", *SUBSCRIBER),
         "10: spec.delivery.deadLetterSink.CACerts"),
        (spec("delivery: {deadLetterSink: {ref: {kind: Broker, name: x}}}", *SUBSCRIBER)
         + 'status:\n  deadLetterSinkUri: "http://a"\n  deadLetterSinkCACerts: x\n', "12: status.deadLetterSinkCACerts"),
        (spec("subscribers:", '- {uid: u, replyUri: "http://a", replyCACerts: x}'), "8: spec.subscribers[0].replyCACerts"),
    ],
)  # fmt: skip
def test_a_certificate_is_refused_where_it_stands(text: str, place: str) -> None:
    """Also where what the dispatcher is given has another name."""
    assert refusal(text) == f"channels/0.yaml:{place}: {NEEDS_PEM}"


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
    assert read_subscriptions(loaded(text)).found == {}


def test_a_dead_letter_sink_may_be_another_channel_of_the_manifests() -> None:
    """Its events go to that channel's topic."""
    sink = "deadLetterSink: {ref: {apiVersion: messaging.knative.dev/v1beta1, kind: KafkaChannel, name: lost}}"
    lost = HEAD.replace("orders", "lost")

    made = read_subscriptions(loaded(spec("delivery:", f"  {sink}", *SUBSCRIBER), lost)).found["shop.orders.u"]

    assert made.options.delivery.deadLetterSink is not None
    assert made.options.delivery.deadLetterSink.topic == "shop.lost"


ROUND = (
    "shop.orders is read by this channel (topics: shop.orders); a record that fails would go round without end; choose a topic "
    "that it does not read"
)


def test_a_dead_letter_sink_that_is_the_channel_itself_is_refused() -> None:
    """Each event that the subscriber does not take came back to it, without end."""
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


UNKNOWN = (
    "0.yaml:7: spec.delivery.deadLetterSink: only the cluster knows where the %s shop.x listens; give its uri, or leave the "
    "status of the KafkaChannel in the manifest: its deadLetterSinkUri has the address"
)
REF = "delivery: {deadLetterSink: {ref: {kind: %s, name: x}}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (spec("subscriber: []"), "0.yaml:7: spec.subscriber: unknown key; did you mean subscribers? allowed: delivery, "
                                 "numPartitions, replicationFactor, retentionDuration, subscribable, subscribers"),
        (spec("subscribers: {}"), "0.yaml:7: spec.subscribers: need a list, got a mapping"),
        (spec("subscribers:", "- {uid: u}"),
         "0.yaml:8: spec.subscribers[0]: needs a subscriberUri, or a replyUri, which events themselves are posted to"),
        (spec("subscribers:", '- {uid: u, replyUri: "ftp://a"}'),
         "0.yaml:8: spec.subscribers[0].replyUri: need a URL of printable ASCII such as http://host:8080/path (http or https)"),
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
        (spec("subscribers:", "- uid: u", '  subscriberUri: "http://a"', "  delivery: {retryAfterMax: 30}"),
         "0.yaml:10: spec.subscribers[0].delivery.retryAfterMax: need a duration such as 10s (units: ms, s, m, h, d), got 30"),
        (spec("delivery: {retryAfterMax: PT-1S}", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.retryAfterMax: need an ISO 8601 duration such as PT0.2S, without years and months, got "
         "'PT-1S'"),
        (spec("delivery: {backofDelay: PT1S}", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.backofDelay: unknown key; did you mean backoffDelay? allowed: backoffDelay, "
         "backoffPolicy, deadLetterSink, format, retry, retryAfterMax, timeout"),
        (spec("delivery: {format: xml}", *SUBSCRIBER), "0.yaml:7: spec.delivery.format: need one of json, binary, got 'xml'"),
        (spec(REF % "Broker", *SUBSCRIBER), UNKNOWN % "Broker"),
        (spec(REF % "KafkaChannel", *SUBSCRIBER), UNKNOWN % "KafkaChannel"),
        (spec(REF % "Broker", *SUBSCRIBER) + "status: {deadLetterSinkUri: somewhere}\n",
         "0.yaml:10: status.deadLetterSinkUri: need a URL of printable ASCII such as http://host:8080/path (http or https)"),
        (spec("delivery: {deadLetterSink: {uri: dead/letters}}", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.deadLetterSink: the uri 'dead/letters' has no http:// or https:// before it, nor a ref beside "
         "it; give it one of them"),
        (spec("delivery: {deadLetterSink: {}}", *SUBSCRIBER),
         "0.yaml:7: spec.delivery.deadLetterSink: needs a uri with http:// or https://, or a ref to a Service or a KafkaChannel"),
        (spec(*SUBSCRIBER).replace("v1beta1", "v2"),
         "0.yaml:1: apiVersion: need one of messaging.knative.dev/v1beta1, messaging.knative.dev/v1, got "
         "'messaging.knative.dev/v2'; did you mean messaging.knative.dev/v1?"),
        (spec(*SUBSCRIBER).replace("  name: orders\n", ""), "0.yaml:3: metadata.name: missing; this key is required"),
        (spec(*SUBSCRIBER).replace("kind: KafkaChannel", "kind: KafkaChanel"),
         "0.yaml:2: kind: need KafkaChannel, got 'KafkaChanel'"),
        (spec(*SUBSCRIBER).replace("spec:", "  annotations: {inbound.dev/order: key}\nspec:"),
         "0.yaml:6: metadata.annotations.inbound.dev/order: unknown; allowed: batch, connect_timeout, connections, filters, "
         "limits, max_in_flight, mode, on_undecodable, ordering"),
        (spec(*SUBSCRIBER).replace("spec:", "  annotations: {inbound.dev/ca_file: /etc/passwd}\nspec:"),
         "0.yaml:6: metadata.annotations.inbound.dev/ca_file: unknown; allowed: batch, connect_timeout, connections, filters, "
         "limits, max_in_flight, mode, on_undecodable, ordering"),
        (spec(*SUBSCRIBER).replace("spec:", "  annotations: {inbound.dev/ordering: keys}\nspec:"),
         "0.yaml:6: spec.subscribers[0].ordering: need one of partition, key, none, got 'keys'; did you mean key?"),
        (spec(*SUBSCRIBER) + "  subscribers: []\n", "0.yaml:9: spec.subscribers: given twice, also in line 7; keep one"),
        ("a: [", "0.yaml:1: not YAML: expected the node content, but found '<stream end>' (while parsing a flow node, line 1)"),
    ],
)  # fmt: skip
def test_an_error_names_its_line(text: str, problem: str) -> None:
    """And with the path of the field, as Kubernetes writes it."""
    assert refusal(text) == f"channels/{problem}"


FILTERS = """  annotations:
    inbound.dev/filters: '[{"exact": {"type": "a"}}]'
    inbound.dev/filters.u: '[{"prefix": {"type": "b"}}]'
    inbound.dev/filters.w: '%s'
spec:"""
THREE = ("subscribers:", *(f'- {{uid: {uid}, subscriberUri: "http://a"}}' for uid in "uvw"))


def test_an_annotation_with_a_uid_counts_for_that_subscriber_alone() -> None:
    """In place of the one for all subscribers."""
    made = read_subscriptions(loaded(spec(*THREE).replace("spec:", FILTERS % "[]"))).found
    found = {one.ref.uid: [each.model_dump(exclude_none=True) for each in one.options.filters] for one in made.values()}
    assert found == {"u": [{"prefix": {"type": "b"}}], "v": [{"exact": {"type": "a"}}], "w": []}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('[{"cesql": "true"}]',
         "channels/0.yaml:9: spec.subscribers[2].filters[0].cesql: no maintained Python library evaluates CESQL; say it by "
         "exact, prefix, suffix, all, any and not"),
        ("[{", "channels/0.yaml:9: metadata.annotations.inbound.dev/filters.w: need YAML"),
    ],
)  # fmt: skip
def test_an_annotation_of_one_subscriber_stops_that_one_alone(written: str, problem: str) -> None:
    """The others have their own, or the one for all."""
    found = read_subscriptions(loaded(spec(*THREE).replace("spec:", FILTERS % written)))
    assert [made.ref.uid for made in found.found.values()] == ["u", "v"]
    assert [(one.uid, one.problem[: len(problem)]) for one in found.refused] == [("w", problem)]


def test_an_annotation_of_a_subscriber_that_is_not_there_is_noted() -> None:
    """It may have been removed; one that cannot be used is there."""
    text = spec("subscribers:", '- {uid: u, subscriberUri: "http://a"}', "- {uid: v, subscribeUri: x}")
    more = FILTERS.replace("filters.w", "filters.v") + "\n"
    found = parse_manifests({"0.yaml": text.replace("spec:\n", more.replace("filters.u", "filters.gone") % "[]")})
    assert found.notes == (
        "0.yaml:8: metadata.annotations.inbound.dev/filters.gone: no subscriber has the uid gone; this is ignored",
    )


def test_options_of_the_configuration_are_refused_there() -> None:
    """Not in the manifests, which are none the wiser: all of it, as for everything that the configuration says itself."""
    config = "manifests:\n  paths: [x]\n  options: {orderin: key}\n"
    with pytest.raises(
        ConfigError, match=r"^inbound\.yaml:3: manifests\.options\.orderin: unknown key; did you mean ordering\?"
    ):
        read_subscriptions(loaded(spec(*SUBSCRIBER), config=config))


# -- where Knative says that events go ---------------------------------------------------------------------------------


def sink(delivery: str, own: str = "", status: str = "") -> str | None:
    """Return the URL that dead letters go to: `delivery` is the channel's, `own` what the subscriber says besides its URL."""
    subscriber = f'- {{uid: u, subscriberUri: "http://a"{own}}}'
    text = spec(f"delivery: {{deadLetterSink: {{{delivery}}}}}", "subscribers:", subscriber)
    (made,) = read_subscriptions(loaded(f"{text}status: {{{status}}}\n")).found.values()
    assert made.options.delivery.deadLetterSink is not None
    return made.options.delivery.deadLetterSink.uri


BROKER = "ref: {apiVersion: eventing.knative.dev/v1, kind: Broker, name: x}"
SERVICE = "ref: {apiVersion: v1, kind: Service, name: dead, namespace: ops}"
STATUS = 'deadLetterSinkUri: "http://broker/shop/x"'


@pytest.mark.parametrize(
    ("delivery", "own", "status", "uri"),
    [
        ('uri: "http://dead"', "", "", "http://dead"),
        ('uri: "//dead"', "", "", "http://dead"),
        (f'{SERVICE}, uri: "//dead:8080/letters"', "", "", "http://dead:8080/letters"),
        ('uri: "http://dead"', ', deadLetterSinkUri: "//own"', "", "http://own"),
        (BROKER, "", 'deadLetterSinkUri: "//broker/shop/x"', "http://broker/shop/x"),
        (SERVICE, "", "", "http://dead.ops.svc.cluster.local"),
        (f"{SERVICE}, uri: '/letters?from=shop'", "", "", "http://dead.ops.svc.cluster.local/letters?from=shop"),
        ("ref: {apiVersion: serving.knative.dev/v1, kind: Service, name: dead}", "", "", "http://dead.shop.svc.cluster.local"),
        (BROKER, "", STATUS, "http://broker/shop/x"),
        (SERVICE, "", STATUS, "http://broker/shop/x"),  # the cluster knows better: it may have another domain
        (BROKER, ', delivery: {deadLetterSink: {uri: "http://own"}}', "", "http://own"),
        (BROKER, f', delivery: {{deadLetterSink: {{{BROKER}, uri: "http://own"}}}}', "", "http://own"),
        (BROKER, f", delivery: {{deadLetterSink: {{{BROKER}}}}}", STATUS, "http://broker/shop/x"),
        (BROKER, ', deadLetterSinkUri: "http://own"', STATUS, "http://own"),
    ],
)  # fmt: skip
def test_a_dead_letter_sink_is_where_the_cluster_has_resolved_it_to(
    delivery: str, own: str, status: str, uri: str
) -> None:
    """What the subscriber says itself goes first; then what the channel's status says; a Service has its name."""
    assert sink(delivery, own, status) == uri


def test_of_a_sink_that_the_cluster_has_resolved_the_certificates_and_the_audience_are_kept() -> None:
    """They stand beside the address in the channel's status."""
    text = spec(f"delivery: {{deadLetterSink: {{{BROKER}}}}}", *SUBSCRIBER)
    status = f"{STATUS}, deadLetterSinkCACerts: {json.dumps(PEM)}, deadLetterSinkAudience: shop/x"
    config = 'manifests: {paths: [channels], options: {token_file: "/tokens/{audience}"}}\n'

    (made,) = read_subscriptions(loaded(f"{text}status: {{{status}}}\n", config=config)).found.values()

    assert made.options.delivery.deadLetterSink == DeadLetterSink(
        uri="http://broker/shop/x", CACerts=PEM, audience="shop/x"
    )


def test_a_sink_that_is_not_needed_need_not_be_known() -> None:
    """The channel's, where each subscriber has its own."""
    subscribers = (
        '- {uid: u, subscriberUri: "http://a", delivery: {deadLetterSink: {uri: "http://own"}}}',
        '- {uid: v, subscriberUri: "http://a"}',
    )

    found = read_subscriptions(loaded(spec(REF % "Broker", "subscribers:", *subscribers)))

    assert (list(found.found), [one.uid for one in found.refused]) == (["shop.orders.u"], ["v"])


def test_a_subscriber_with_a_reply_alone_gets_the_events_there() -> None:
    """As Knative's dispatcher posts them; with the certificates and audience of the reply's receiver, and no reply."""
    text = spec("subscribers:", '- {uid: u, replyUri: "http://next"}', '- {uid: v, subscriberUri: "http://host"}')

    made = read_subscriptions(loaded(text)).found

    assert [(one.options.subscriberUri, one.options.replyUri) for one in made.values()] == [
        ("http://next", None),
        ("http://host", None),
    ]
    reply = Subscriber(uid="u", replyUri="http://next", replyCACerts="PEM", replyAudience="them")
    assert posted_to(reply) == Subscriber(
        uid="u", subscriberUri="http://next", subscriberCACerts="PEM", subscriberAudience="them"
    )

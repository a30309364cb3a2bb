"""The Kubernetes objects that run one channel each.

A channel has a ConfigMap, a Deployment (or StatefulSet), a Service, a disruption budget and a network policy.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import yaml

import inbound
from inbound.config import ChannelManifest, Manifests, RefusedManifest, load
from inbound.config.manifest_models import ANNOTATION, KIND, SUBSCRIBERS
from inbound.errors import ConfigError
from inbound.kubernetes.plan import CHANNEL_FILE, CONFIG_FILE, CONSUMER_ID, PodPlan, Wishes
from inbound.kubernetes.pods import INGRESS, LEDGER, METRICS, pod_template, selector
from inbound.plan.subscriptions import read_subscriptions

#: The longest name. A Service's is a DNS label of at most 63 characters; a StatefulSet appends a dash and ten digits of a
#: revision to its own in such a label.
LONGEST = 52
#: Hexadecimal digits at the end of a changed name.
DIGEST = 8
#: The prefix of names: a KafkaChannel's may begin with a digit, a Service's may not.
PREFIX = "inbound-"


def object_name(manifest: ChannelManifest, *, with_namespace: bool) -> str:
    """Return the name of a channel's objects, a DNS label."""
    metadata = manifest.channel.metadata
    plain = PREFIX + (f"{metadata.namespace}-{metadata.name}" if with_namespace else metadata.name)
    label = re.sub(r"[^a-z0-9-]", "-", plain.lower()).rstrip("-")
    if label == plain and len(label) <= LONGEST:
        return label
    digest = hashlib.sha256(f"{metadata.namespace}/{metadata.name}".encode()).hexdigest()[:DIGEST]
    return f"{label[: LONGEST - DIGEST - 1].rstrip('-')}-{digest}"


def object_names(manifests: Iterable[ChannelManifest], namespace: str | None) -> Mapping[str, tuple[str, str]]:
    """Return namespace and name of the objects, by channel (`namespace.name`).

    Without `namespace`, objects are in the namespace of their channel.

    Raises:
        ConfigError: the objects of two channels would have the same name.
    """
    found: dict[str, tuple[str, str]] = {}
    taken: dict[tuple[str, str], ChannelManifest] = {}
    problems = []
    for manifest in manifests:
        place = namespace or manifest.channel.metadata.namespace
        key = (place, object_name(manifest, with_namespace=namespace is not None))
        other = taken.setdefault(key, manifest)
        if other is not manifest:
            problems.append(
                f"{where(manifest)}: metadata.name: the objects of {manifest.name} would be called {key[1]}, like those of "
                f"{other.name} ({where(other)}); leave out --namespace, or rename one of the two"
            )
        found[manifest.name] = key
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def where(manifest: ChannelManifest) -> str:
    """Return file and line of a channel's name."""
    return manifest.places.locate(manifest.at("metadata.name"))


#: The largest ConfigMap of Kubernetes.
MOST_BYTES = 2**20
#: Says which KafkaChannel an object is for: names of channels can be longer than labels.
FOR_CHANNEL = "inbound.dev/kafkachannel"
#: Of each kind of object, the version of its API.
VERSIONS = {
    "ConfigMap": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Service": "v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}


@dataclass(frozen=True)
class Objects:
    """The printed objects, and the refused manifests."""

    printed: list[dict[str, Any]]
    refused: tuple[RefusedManifest, ...]


def objects_of(manifests: Manifests, plan: PodPlan, wishes: Wishes, *, text: str, filename: str) -> Objects:
    """Return the objects of all usable channels, by namespace and name.

    `text` is the configuration, which goes into the ConfigMaps unless `wishes` name one. An unusable subscriber stays in the
    manifest of its pods: they stop it alone, or keep its last usable form.

    Raises:
        ConfigError: names collide.
    """
    ordered = sorted(manifests.channels, key=lambda one: (one.channel.metadata.namespace, one.channel.metadata.name))
    environ = {**plan.variables, CONSUMER_ID: "pod-0"}
    loaded = load(text, filename=filename, environ=environ)
    subscriptions = read_subscriptions(replace(loaded, manifests=tuple(ordered), refused=manifests.refused))
    refused = list(subscriptions.refused)
    usable: dict[str, set[str]] = {}  # with the audiences of the receivers
    for made in subscriptions.found.values():
        if made.manifest is not None:
            usable.setdefault(made.manifest.channel, set()).update(made.options.audiences)
    bad = {one.channel for one in refused}
    chosen = [one for one in ordered if one.name in usable or one.name not in bad]
    names = object_names(chosen, wishes.namespace)
    found: list[dict[str, Any]] = []
    for manifest in chosen:
        namespace, name = names[manifest.name]
        if name == wishes.config_map:
            raise ConfigError(
                f"--config-map {name}: {manifest.name} ({where(manifest)}) needs that name; rename the ConfigMap"
            )
        data = {} if wishes.config_map else {CONFIG_FILE: text}
        data[CHANNEL_FILE] = as_yaml(channel_documents(manifest, ordered))
        if (size := sum(len(one.encode()) for one in data.values())) > MOST_BYTES:
            refused.append(_too_large(manifest, size))
            continue
        specs = _objects(manifest, namespace, name, plan, wishes, usable.get(manifest.name, ()))
        contents = {"ConfigMap": {"data": data}, **{kind: {"spec": spec} for kind, spec in specs.items()}}
        found += [
            {
                "apiVersion": VERSIONS[kind],
                "kind": kind,
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "labels": _labels(name),
                    "annotations": {
                        FOR_CHANNEL: f"{manifest.channel.metadata.namespace}/{manifest.channel.metadata.name}"
                    },
                },
                **content,
            }
            for kind, content in contents.items()
        ]
    return Objects(found, tuple(refused))


def _too_large(manifest: ChannelManifest, size: int) -> RefusedManifest:
    metadata = manifest.channel.metadata
    return RefusedManifest(
        kind=KIND, file=manifest.places.filename, where=where(manifest), namespace=metadata.namespace, name=metadata.name,
        problem=f"{where(manifest)}: {manifest.name}: its configuration has {size} bytes, and a ConfigMap takes {MOST_BYTES}; "
        "split the channel",
    )  # fmt: skip


def _objects(
    manifest: ChannelManifest, namespace: str, name: str, plan: PodPlan, wishes: Wishes, audiences: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Return a channel's objects by kind, without its ConfigMap.

    `audiences` are those of the tokens that its receivers get.
    """
    labels = _labels(name)
    selected = {"matchLabels": selector(labels)}
    subscribers = len(manifest.subscribers) + len(manifest.left_out)
    within = f"{name}.{namespace}"
    template = pod_template(
        plan,
        wishes,
        name,
        {**labels, "app.kubernetes.io/version": inbound.__version__},
        subscribers,
        hosts=(name, within, f"{within}.svc", f"{within}.svc.cluster.local"),
        own_ledger=wishes.ledger_volume is not None,
        audiences=sorted(audiences),
    )
    # Without a subscriber there is nothing to run.
    pods = {"replicas": wishes.replicas if subscribers else 0, "selector": selected}
    if wishes.ledger_volume is None:
        # A new pod takes part before an old one leaves: so there are never fewer than asked for.
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        workload = {"Deployment": {**pods, "strategy": rolling, "template": template}}
    else:  # each pod has a volume of its own for the ledger
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": wishes.ledger_volume}},
            **({"storageClassName": wishes.storage_class} if wishes.storage_class is not None else {}),
        }
        workload = {
            "StatefulSet": {
                **pods,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "template": template,
                "volumeClaimTemplates": [
                    {"metadata": {"name": LEDGER, "labels": selector(labels)}, "spec": claim},
                ],
            }
        }
    has_ingress = plan.ingress_port is not None
    ports = [
        {"name": METRICS, "port": plan.admin_port, "targetPort": METRICS, "protocol": "TCP"},
        *([{"name": INGRESS, "port": 80, "targetPort": INGRESS, "protocol": "TCP"}] if has_ingress else []),
    ]
    own: list[dict[str, Any]] = [{"podSelector": {}}]
    senders = [*own, *map(_namespace, wishes.ingress_from)] if wishes.ingress_from else []  # none: everybody
    return {
        **workload,
        # Without an ingress it is for finding every pod, not for one of them.
        "Service": {**({} if has_ingress else {"clusterIP": "None"}), "selector": selector(labels), "ports": ports},
        # Not minAvailable: with one replica a node could never be drained.
        "PodDisruptionBudget": {"maxUnavailable": 1, "selector": selected},
        # No other port, such as that of profiles, is reachable. The kubelet's probes always pass.
        "NetworkPolicy": {
            "podSelector": selected,
            "policyTypes": ["Ingress"],
            "ingress": [
                _rule(METRICS, [*own, *map(_namespace, wishes.admin_from)]),
                *([_rule(INGRESS, senders)] if has_ingress else []),
            ],
        },
    }


def _labels(name: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "inbound",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": "dispatcher",
        "app.kubernetes.io/managed-by": "inbound-manifests",
    }


def _rule(port: str, peers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the rule of a port's clients; without peers, all clients."""
    return {**({"from": list(peers)} if peers else {}), "ports": [{"port": port, "protocol": "TCP"}]}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def channel_documents(manifest: ChannelManifest, all_channels: Sequence[ChannelManifest]) -> list[dict[str, Any]]:
    """Return the manifests that a pod of this channel needs.

    The first is the channel itself, without the status (except the address of dead letters) and without annotations of other
    programs. The others are the channels that it names as dead letter sinks, without their subscribers, which have their own pods.
    """
    channel, metadata = manifest.channel, manifest.channel.metadata
    annotations = {key: metadata.annotations[key] for key in sorted(metadata.annotations) if key.startswith(ANNOTATION)}
    own = _named(manifest, {"annotations": annotations} if annotations else {}) | {"spec": _spec(manifest)}
    if manifest.resolved_sink and channel.spec.delivery and channel.spec.delivery.deadLetterSink:
        own["status"] = manifest.resolved_sink
    by_name = {other.name: other for other in all_channels}
    sinks = sorted({name for name in _sinks(manifest) if name in by_name and name != manifest.name})
    return [own, *(_named(by_name[name]) for name in sinks)]


def _spec(manifest: ChannelManifest) -> dict[str, Any]:
    """Return the spec, with unusable subscribers: the pod stops them alone."""
    spec: dict[str, Any] = manifest.channel.spec.model_dump(mode="json", exclude_unset=True)
    for path, written in sorted(manifest.left_out.items(), key=lambda item: _index(item[0])):
        holder = spec if path.startswith(SUBSCRIBERS) else spec["subscribable"]
        holder["subscribers"].insert(_index(path), written)
    return spec


def _index(path: str) -> int:
    return int(path[path.rindex("[") + 1 : -1])


def _named(manifest: ChannelManifest, more: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return a channel without spec; `more` is further metadata."""
    metadata = {"name": manifest.channel.metadata.name, "namespace": manifest.channel.metadata.namespace, **more}
    return {"apiVersion": manifest.channel.apiVersion, "kind": KIND, "metadata": metadata}


def _sinks(manifest: ChannelManifest) -> Iterator[str]:
    """Yield the KafkaChannels that receive the channel's dead letters."""
    deliveries = [manifest.channel.spec.delivery, *(subscriber.delivery for _, subscriber in manifest.subscribers)]
    for delivery in deliveries:
        sink = delivery.deadLetterSink if delivery is not None else None
        if sink is not None and sink.ref is not None and sink.ref.kind == KIND:
            yield f"{sink.ref.namespace or manifest.channel.metadata.namespace}.{sink.ref.name}"


class _Dumper(yaml.SafeDumper):
    """Writes no anchors and aliases: they would hinder a diff."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def as_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    return "---\n".join(
        yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31) for document in documents
    )

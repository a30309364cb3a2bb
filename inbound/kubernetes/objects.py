"""From channels to the objects that run them: for each a ConfigMap, a Deployment (or StatefulSet), a Service, a budget, and who
reaches its ports."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import inbound
from inbound.config import Manifest, Manifests, RefusedManifest, load
from inbound.config.kafka_channel import KIND
from inbound.errors import ConfigError
from inbound.kubernetes.channel_file import channel_documents
from inbound.kubernetes.documents import as_yaml
from inbound.kubernetes.names import object_names, where
from inbound.kubernetes.plan import CHANNEL_FILE, CONFIG_FILE, CONSUMER_ID, PodPlan
from inbound.kubernetes.pods import INGRESS, LEDGER, METRICS, pod_template, selector
from inbound.kubernetes.wishes import Wishes
from inbound.subscriptions import read_subscriptions

#: Kubernetes takes no larger ConfigMap.
MOST_BYTES = 2**20
#: Says which KafkaChannel an object is for: names of channels can be longer than labels.
FOR_CHANNEL = "inbound.dev/kafkachannel"


@dataclass(frozen=True)
class Objects:
    """What is printed, and what of the manifests is not, or stops in its pod."""

    printed: list[dict[str, Any]]
    refused: tuple[RefusedManifest, ...]


def objects_of(manifests: Manifests, plan: PodPlan, wishes: Wishes, *, text: str, filename: str) -> Objects:
    """Return the objects of all channels of which something can be used, ordered by their namespaces and names.

    `text` is the configuration, whose ConfigMaps hold it as it stands unless `wishes` name one. A subscriber that cannot be used
    stays in the manifest that its pods get: those stop it alone, or go on with what they had.

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
        channel = _Channel(manifest, namespace, name, plan, wishes, usable.get(manifest.name, ()))
        documents = as_yaml(channel_documents(manifest, ordered))
        config_map = channel.config_map({} if wishes.config_map else {CONFIG_FILE: text}, documents)
        if (size := sum(len(one.encode()) for one in config_map["data"].values())) > MOST_BYTES:
            refused.append(_too_large(manifest, size))
            continue
        found += [
            config_map,
            channel.workload(),
            channel.service(),
            channel.disruption_budget(),
            channel.network_policy(),
        ]
    return Objects(found, tuple(refused))


def _too_large(manifest: Manifest, size: int) -> RefusedManifest:
    metadata = manifest.channel.metadata
    return RefusedManifest(
        kind=KIND, file=manifest.places.filename, where=where(manifest), namespace=metadata.namespace, name=metadata.name,
        problem=f"{where(manifest)}: {manifest.name}: its configuration has {size} bytes, and a ConfigMap takes {MOST_BYTES}; "
        "split the channel",
    )  # fmt: skip


class _Channel:
    """The objects of one channel."""

    def __init__(
        self, manifest: Manifest, namespace: str, name: str, plan: PodPlan, wishes: Wishes, audiences: Collection[str]
    ) -> None:  # fmt: skip
        """`audiences`: whom tokens are for that its receivers are sent."""
        self._manifest = manifest
        self._audiences = sorted(audiences)
        self._name, self._namespace = name, namespace
        self._plan, self._wishes = plan, wishes
        self._subscribers = len(manifest.subscribers) + len(manifest.left_out)
        self._labels = {
            "app.kubernetes.io/name": "inbound",
            "app.kubernetes.io/instance": name,
            "app.kubernetes.io/component": "dispatcher",
            "app.kubernetes.io/managed-by": "inbound-manifests",
        }

    def config_map(self, files: dict[str, str], documents: str) -> dict[str, Any]:
        data = {**files, CHANNEL_FILE: documents}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._metadata(), "data": data}

    def workload(self) -> dict[str, Any]:
        """Return the Deployment; a StatefulSet where each pod has a volume of its own for the ledger."""
        own_ledger = self._wishes.ledger_volume is not None
        spec: dict[str, Any] = {
            # Nobody to post to: nothing to run, until a subscriber comes.
            "replicas": self._wishes.replicas if self._subscribers else 0,
            "selector": {"matchLabels": selector(self._labels)},
        }
        template = pod_template(
            self._plan, self._wishes, self._name, self._pod_labels(), self._subscribers, hosts=self._hosts(),
            own_ledger=own_ledger, audiences=self._audiences,
        )  # fmt: skip
        if not own_ledger:
            # A new pod takes part before an old one leaves: so there are never fewer than asked for.
            spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
            spec["template"] = template
            return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": self._metadata(), "spec": spec}
        spec |= {
            "serviceName": self._name,
            "podManagementPolicy": "Parallel",
            "template": template,
            "volumeClaimTemplates": [self._ledger_claim()],
        }
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": self._metadata(), "spec": spec}

    def service(self) -> dict[str, Any]:
        ports = [{"name": METRICS, "port": self._plan.admin_port, "targetPort": METRICS, "protocol": "TCP"}]
        if self._plan.ingress_port is not None:
            ports.append({"name": INGRESS, "port": 80, "targetPort": INGRESS, "protocol": "TCP"})
        # Without an ingress it is for finding every pod, not for one of them.
        headless = {"clusterIP": "None"} if self._plan.ingress_port is None else {}
        spec = {**headless, "selector": selector(self._labels), "ports": ports}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self._metadata(), "spec": spec}

    def disruption_budget(self) -> dict[str, Any]:
        # Not minAvailable: with one replica a node could never be drained.
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": selector(self._labels)}}
        return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self._metadata(), "spec": spec}

    def network_policy(self) -> dict[str, Any]:
        """Return who reaches the ports; others, such as that of profiles, nobody does. The kubelet's probes always do."""
        own: list[dict[str, Any]] = [{"podSelector": {}}]
        rules: list[dict[str, Any]] = [_rule(METRICS, [*own, *map(_namespace, self._wishes.admin_from)])]
        if self._plan.ingress_port is not None:
            senders = list(map(_namespace, self._wishes.ingress_from))
            rules.append(_rule(INGRESS, [*own, *senders] if senders else []))
        spec = {
            "podSelector": {"matchLabels": selector(self._labels)},
            "policyTypes": ["Ingress"],
            "ingress": rules,
        }
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self._metadata(),
            "spec": spec,
        }

    def _hosts(self) -> tuple[str, ...]:
        """Return the names by which others in the cluster ask the Service."""
        within = f"{self._name}.{self._namespace}"
        return self._name, within, f"{within}.svc", f"{within}.svc.cluster.local"

    def _metadata(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "namespace": self._namespace,
            "labels": dict(self._labels),
            "annotations": {FOR_CHANNEL: self._in_words()},
        }

    def _pod_labels(self) -> dict[str, str]:
        return {**self._labels, "app.kubernetes.io/version": inbound.__version__}

    def _in_words(self) -> str:
        metadata = self._manifest.channel.metadata
        return f"{metadata.namespace}/{metadata.name}"

    def _ledger_claim(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": self._wishes.ledger_volume}},
        }
        if self._wishes.storage_class is not None:
            spec["storageClassName"] = self._wishes.storage_class
        return {"metadata": {"name": LEDGER, "labels": selector(self._labels)}, "spec": spec}


def _rule(port: str, peers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return who reaches a port; without peers everybody."""
    return {**({"from": list(peers)} if peers else {}), "ports": [{"port": port, "protocol": "TCP"}]}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}

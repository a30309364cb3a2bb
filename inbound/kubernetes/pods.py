"""The pod template of a channel's Deployment or StatefulSet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from inbound.kubernetes.plan import CONFIG_FOLDER, CONSUMER_ID, HOSTS, STATE_FOLDER, TEMPORARY_FOLDER, PodPlan, Wishes

#: A number, because the kubelet cannot tell of a name that it is not root.
USER = 10001
#: Names of ports: what a Service and a ServiceMonitor refer to.
METRICS, INGRESS = "metrics", "ingress"
#: Names of volumes.
CONFIG, STATE, LEDGER, TEMPORARY, TOKENS = "config", "state", "ledger", "tmp", "tokens"
#: Lifetime of a token in seconds; the kubelet renews it after four fifths.
TOKEN_SECONDS = 3600
MIB = 2**20
#: Memory of a process beside its read-ahead.
BASE_MEMORY = 160 * MIB
#: Memory of the process that makes Parquet of the ledger's files.
CONVERTER_MEMORY = 100 * MIB


def pod_template(
    plan: PodPlan,
    wishes: Wishes,
    name: str,
    labels: Mapping[str, str],
    subscribers: int,
    *,
    hosts: Sequence[str],
    own_ledger: bool,
    audiences: Sequence[str],
) -> dict[str, Any]:
    """Return the pod template of the channel with the objects `name`.

    `hosts` are the names of its Service. With `own_ledger`, the ledger's volume is a claim of the StatefulSet. `audiences` are
    those of the tokens that the channel's receivers get.
    """
    volumes = _volumes(plan, wishes, name, own_ledger, [_token(audience) for audience in audiences])
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "automountServiceAccountToken": False,  # it does not use the cluster's API; tokens for receivers are projected
            # A Service named inbound-... would become variables with the prefix of ours.
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": plan.grace,
            "topologySpreadConstraints": [
                _spread("kubernetes.io/hostname", labels),
                _spread("topology.kubernetes.io/zone", labels),
            ],
            "containers": [
                {
                    **_container(plan, wishes, subscribers, hosts),
                    "volumeMounts": [
                        {"name": volume, "mountPath": str(folder), **({"readOnly": True} if read_only else {})}
                        for volume, folder, read_only, _ in volumes
                    ],
                }
            ],
            "volumes": [{"name": volume, **source} for volume, _, _, source in volumes if source is not None],
        },
    }


def _container(plan: PodPlan, wishes: Wishes, subscribers: int, hosts: Sequence[str]) -> dict[str, Any]:
    """Return the container without its mounts."""
    ports = [{"name": METRICS, "containerPort": plan.admin_port, "protocol": "TCP"}]
    if plan.ingress_port is not None:
        ports.append({"name": INGRESS, "containerPort": plan.ingress_port, "protocol": "TCP"})
    variables: list[dict[str, Any]] = [
        {"name": CONSUMER_ID, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
    ]
    if plan.hosts is not None:
        variables.append({"name": HOSTS, "value": ",".join(dict.fromkeys((*plan.hosts, *hosts)))})
    variables += [{"name": name, "value": value} for name, value in plan.variables.items() if name != HOSTS]
    secrets = [{"secretRef": {"name": secret}} for secret in wishes.environment_from]
    return {
        "name": "inbound",
        "image": wishes.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["run", "-c", str(CONFIG_FOLDER / "inbound.yaml")],
        "workingDir": str(CONFIG_FOLDER),  # relative paths in the configuration start here
        "ports": ports,
        "env": variables,
        **({"envFrom": secrets} if secrets else {}),
        # Slow nodes take a while to import it; until it has succeeded, the other two probes wait.
        "startupProbe": _probe(plan, "/healthz", periodSeconds=2, failureThreshold=60),
        "livenessProbe": _probe(plan, "/healthz", periodSeconds=20, failureThreshold=3),
        "readinessProbe": _probe(plan, "/readyz", periodSeconds=5, failureThreshold=2),
        "resources": _resources(plan, wishes, subscribers),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _probe(plan: PodPlan, path: str, **times: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": METRICS, "scheme": plan.scheme}, "timeoutSeconds": 5, **times}


def _resources(plan: PodPlan, wishes: Wishes, subscribers: int) -> dict[str, Any]:
    """Return the requests, and a limit of memory alone.

    A throttled process would lose its session, so CPU has no limit. Each subscriber's channel reads ahead up to
    `prefetch_bytes`, and at worst has as much in flight.
    """
    ahead = plan.config.manifests.settings.reader.prefetch_bytes * max(1, subscribers)
    request = wishes.memory or f"{(BASE_MEMORY + ahead) // MIB}Mi"
    limit = wishes.memory or f"{(BASE_MEMORY + CONVERTER_MEMORY + 2 * ahead) // MIB}Mi"
    return {"requests": {"cpu": wishes.cpu, "memory": request}, "limits": {"memory": limit}}


def _volumes(
    plan: PodPlan, wishes: Wishes, name: str, own_ledger: bool, tokens: list[dict[str, Any]]
) -> list[tuple[str, PurePosixPath, bool, dict[str, Any] | None]]:
    """Return name, folder, whether read-only, and source of each volume.

    A source None is a claim of the StatefulSet.
    """
    # The later ConfigMap wins: generated files cover those of the user.
    config_maps = [*([wishes.config_map] if wishes.config_map else []), name]
    config = {"projected": {"sources": [{"configMap": {"name": one}} for one in config_maps]}}
    empty: dict[str, Any] = {"emptyDir": {}}
    volumes: list[tuple[str, PurePosixPath, bool, dict[str, Any] | None]] = [
        (CONFIG, CONFIG_FOLDER, True, config),
        (STATE, STATE_FOLDER, False, empty),
    ]
    if plan.ledger is not None:
        volumes.append((LEDGER, plan.ledger, False, None if own_ledger else empty))
    volumes.append((TEMPORARY, TEMPORARY_FOLDER, False, empty))
    if plan.tokens is not None and tokens:
        volumes.append((TOKENS, plan.tokens, True, {"projected": {"sources": tokens}}))
    for i, one in enumerate(plan.folders):
        # Group and owner may read, for the owner is root.
        secret = {"secret": {"secretName": one.name, "defaultMode": 0o440}}
        source = secret if one.kind == "secret" else {"configMap": {"name": one.name}}
        volumes.append((f"{one.kind}-{i}", one.folder, True, source))
    return volumes


def _token(audience: str) -> dict[str, Any]:
    """Return the source of a service account token for an audience."""
    token = {"audience": audience, "expirationSeconds": TOKEN_SECONDS, "path": quote(audience, safe="")}
    return {"serviceAccountToken": token}


def _spread(topology: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(labels)},
    }


def selector(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that select the pods; they never change."""
    return {key: labels[key] for key in ("app.kubernetes.io/name", "app.kubernetes.io/instance")}

"""What whoever deploys asks for, besides the configuration and the channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

#: The folder in which the pod has its configuration; its own files and whatever a ConfigMap of the user holds.
CONFIG_FOLDER = PurePosixPath("/etc/inbound/config")
#: Where a Secret's folder is, where the configuration does not say so.
KAFKA_FOLDER = PurePosixPath("/etc/inbound/kafka")
ADMIN_FOLDER = PurePosixPath("/etc/inbound/admin")
#: The key of the Secret with the token of the admin listener.
TOKEN_KEY = "token"  # noqa: S105 - its name, not the token


@dataclass(frozen=True)
class Mounted:
    """A Secret or ConfigMap of the cluster, and the folder in which its keys are files."""

    kind: Literal["secret", "configmap"]
    name: str
    folder: PurePosixPath


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """How the pods are to be."""

    image: str
    #: Where all objects go; None: where each channel is.
    namespace: str | None = None
    #: A ConfigMap that is there already and has `inbound.yaml`; None: one is made.
    config_map: str | None = None
    replicas: int = 2
    kafka_secret: str | None = None
    zookeeper_secret: str | None = None
    admin_secret: str | None = None
    mounts: tuple[Mounted, ...] = ()
    #: Secrets whose keys become variables, such as an object store's credentials.
    environment_from: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Namespaces whose pods reach the admin port, besides each channel's own; and the ingress, where empty is everybody.
    admin_from: tuple[str, ...] = ()
    ingress_from: tuple[str, ...] = ()
    #: What a volume of its own for each pod's ledger holds, such as 10Gi; None: the node's disk, which goes with the pod.
    ledger_volume: str | None = None
    storage_class: str | None = None
    #: Requests; None: worked out.
    cpu: str = "100m"
    memory: str | None = None

"""Checks what `inbound manifests` prints: by Kubernetes' own schema, and by what the schema cannot say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from inbound.admin.routes import Pages
from inbound.config import load
from tests.observe.status.made_status import process

SCHEMA = Path(__file__).parent.parent / "schemas" / "kubernetes.json"
ROOTS = {
    ("v1", "ConfigMap"): "io.k8s.api.core.v1.ConfigMap",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
    ("apps/v1", "Deployment"): "io.k8s.api.apps.v1.Deployment",
    ("apps/v1", "StatefulSet"): "io.k8s.api.apps.v1.StatefulSet",
    ("networking.k8s.io/v1", "NetworkPolicy"): "io.k8s.api.networking.v1.NetworkPolicy",
    ("policy/v1", "PodDisruptionBudget"): "io.k8s.api.policy.v1.PodDisruptionBudget",
}
DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


@cache
def _validator(root: str) -> Any:
    schema = json.loads(SCHEMA.read_text())
    return jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{root}"})


def objects_in(text: str) -> list[dict[str, Any]]:
    """Return the objects in a stream of YAML."""
    return list(yaml.safe_load_all(text))


def problems_of(found: dict[str, Any]) -> list[str]:
    """Return what Kubernetes would say against an object."""
    name = f"{found.get('kind')} {found.get('metadata', {}).get('name')}"
    root = ROOTS.get((found.get("apiVersion", ""), found.get("kind", "")))
    if root is None:
        return [f"{name}: not a kind that is known"]
    errors = [f"{e.json_path}: {e.message}" for e in _validator(root).iter_errors(found)]
    return [f"{name}: {problem}" for problem in errors or _beyond_the_schema(found)]


def _beyond_the_schema(found: dict[str, Any]) -> Iterator[str]:
    metadata = found["metadata"]
    if not DNS_LABEL.fullmatch(metadata["name"]):
        yield f"the name {metadata['name']} is no DNS label"
    yield from _labels(metadata["labels"])
    if found["kind"] in ("Deployment", "StatefulSet"):
        yield from _workload(found["spec"], metadata["name"])
    elif found["kind"] == "Service":
        for port in found["spec"]["ports"]:
            if not PORT_NAME.fullmatch(port["name"]) or not 0 < port["port"] < 65536:
                yield f"port {port}"


def _labels(labels: Mapping[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        if not LABEL_VALUE.fullmatch(value):
            yield f"label {key}: {value!r} cannot be a value"


def _workload(spec: dict[str, Any], name: str) -> Iterator[str]:
    template = spec["template"]
    labels = template["metadata"]["labels"]
    yield from _labels(labels)
    if not spec["selector"]["matchLabels"].items() <= labels.items():
        yield "the selector does not find the template's pods"
    pod = template["spec"]
    (container,) = pod["containers"]
    claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])]
    volumes = [volume["name"] for volume in pod["volumes"]] + claims
    mounts = container["volumeMounts"]
    if sorted(volumes) != sorted(mount["name"] for mount in mounts):
        yield f"volumes {volumes} and mounts {[mount['name'] for mount in mounts]} are not the same"
    if len({mount["mountPath"] for mount in mounts}) < len(mounts):
        yield "two volumes are mounted at one path"
    names = [variable["name"] for variable in container["env"]]
    if len(set(names)) < len(names) or not all(isinstance(v.get("value", ""), str) for v in container["env"]):
        yield f"variables {names}"
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        if asked["port"] not in ports or not served(asked["path"]):
            yield f"{probe} asks {asked}"
    amounts = [*container["resources"]["requests"].values(), *container["resources"]["limits"].values()]
    amounts += [claim["spec"]["resources"]["requests"]["storage"] for claim in spec.get("volumeClaimTemplates", [])]
    yield from (f"{amount} is no quantity" for amount in amounts if not QUANTITY.fullmatch(amount))
    if "serviceName" in spec and spec["serviceName"] != name:
        yield f"serviceName {spec['serviceName']} is another's"


def served(path: str) -> bool:
    """Whether the admin listener answers this path with 200 while all is well."""
    import logging

    return Pages(process, logging.getLogger("test")).get(path).code == 200


def environment_of(workload: dict[str, Any], pod: str = "pod-0") -> dict[str, str]:
    """Return the variables that a pod's process sees."""
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    fields = {"metadata.name": pod}
    return {
        one["name"]: one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for one in container["env"]
    }


def write_config(objects: list[dict[str, Any]], name: str, folder: Path) -> Path:
    """Write the files of the ConfigMap called `name` into `folder`, as the kubelet does; return the configuration."""
    (found,) = [one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == name]
    for key, text in found["data"].items():
        (folder / key).write_text(text)
    return folder / "inbound.yaml"


def loaded_as_in_the_pod(config: Path, environ: Mapping[str, str]) -> Any:
    """Return the configuration that the pod's process has, with the channels beside it."""
    from dataclasses import replace

    from inbound.cli.shared.files import read_manifests
    from inbound.config import parse_manifests

    loaded = load(config.read_text(), filename=str(config), environ=environ)
    found = parse_manifests(read_manifests(config.parent, loaded.config.manifests.paths).texts)
    return replace(loaded, manifests=found.channels, refused=found.refused)

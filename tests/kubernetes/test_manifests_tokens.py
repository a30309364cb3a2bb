"""`inbound manifests` where receivers ask for tokens: the pods have one for each audience, where the dispatcher looks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inbound.plan.subscriptions import read_subscriptions
from inbound.processors.dispatch.transport import targets_of
from tests.cli.test_manifests_command import Printed, pod_of, printed
from tests.kubernetes.kubernetes_objects import (
    environment_of,
    loaded_as_in_the_pod,
    objects_in,
    problems_of,
    write_config,
)

__all__ = ["printed"]  # the fixture

FOLDER = "/var/run/secrets/tokens"
CONFIG = """\
zookeeper: {hosts: "zk-0:2181"}
kafka: {bootstrap.servers: "kafka-0:9092"}
ledger: {type: kafka}
manifests: {options: {token_file: "FILE"}}
"""
CHANNEL = """\
apiVersion: messaging.knative.dev/v1
kind: KafkaChannel
metadata: {name: orders, namespace: shop}
spec:
  delivery: {deadLetterSink: {uri: "http://dead", audience: shop/dead}}
  subscribers:
  - {uid: u-1, subscriberUri: "http://one", subscriberAudience: "https://one.example", replyUri: "http://r", replyAudience: shop/r}
  - {uid: u-2, subscriberUri: "http://two", subscriberAudience: "https://one.example"}
---
apiVersion: messaging.knative.dev/v1
kind: KafkaChannel
metadata: {name: quiet, namespace: shop}
spec: {subscribers: [{uid: u-3, subscriberUri: "http://three"}]}
"""
ARGUMENTS = ("-f", "channels.yaml", "-c", "inbound.yaml")


def files(token_file: str = f"{FOLDER}/{{audience}}") -> dict[str, str]:
    return {"channels": CHANNEL, "inbound": CONFIG.replace("FILE", token_file)}


def tokens_of(workload: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the tokens of a workload's pods, and the folders that they are mounted at."""
    pod = pod_of(workload)
    sources = [one for volume in pod["volumes"] for one in volume.get("projected", {}).get("sources", [])]
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "tokens"]
    return [one["serviceAccountToken"] for one in sources if "serviceAccountToken" in one], mounts


def workloads_in(text: str) -> list[dict[str, Any]]:
    return [one for one in objects_in(text) if one["kind"] == "Deployment"]


def test_each_audience_of_a_channel_has_a_token(printed: Printed) -> None:
    """Once, however many receivers it is for; a channel without audiences has none, and no folder."""
    code, text, _ = printed(*ARGUMENTS, **files())

    orders, quiet = workloads_in(text)
    assert tokens_of(orders) == (
        [
            {"audience": "https://one.example", "expirationSeconds": 3600, "path": "https%3A%2F%2Fone.example"},
            {"audience": "shop/dead", "expirationSeconds": 3600, "path": "shop%2Fdead"},
            {"audience": "shop/r", "expirationSeconds": 3600, "path": "shop%2Fr"},
        ],
        [FOLDER],
    )
    assert (code, tokens_of(quiet)) == (0, ([], []))
    assert [problem for one in objects_in(text) for problem in problems_of(one)] == []


def test_the_dispatcher_finds_the_tokens_where_they_are(printed: Printed, tmp_path: Path) -> None:
    """What the pod loads names the files that the volume has."""
    _, text, _ = printed(*ARGUMENTS, **files(f"{tmp_path}/tokens/{{audience}}"))
    (workload, _) = workloads_in(text)
    config = write_config(objects_in(text), workload["metadata"]["name"], tmp_path)
    sources, (folder,) = tokens_of(workload)
    Path(folder).mkdir()
    for source in sources:
        (Path(folder) / source["path"]).write_text(f"for-{source['audience']}")

    made = read_subscriptions(loaded_as_in_the_pod(config, environment_of(workload))).found["shop.orders.u-1"]

    sent = [target.headers[-1] for target in targets_of(made.options) if target]
    assert sent == [
        b"authorization: Bearer for-https://one.example",
        b"authorization: Bearer for-shop/r",
        b"authorization: Bearer for-shop/dead",
    ]


def test_tokens_that_are_mounted_are_not_made(printed: Printed) -> None:
    """Who has them already, of another issuer say, mounts them."""
    code, text, _ = printed(*ARGUMENTS, "--mount", f"secret/ours={FOLDER}", **files())
    assert (code, [tokens_of(one) for one in workloads_in(text)]) == (0, [([], [])] * 2)


@pytest.mark.parametrize(
    ("token_file", "problem"),
    [
        (f"{FOLDER}/billing", f"manifests: {FOLDER}/billing is not in the pod; say what has it: --mount secret/NAME={FOLDER}"),
        ("/etc/{audience}", "manifests.options.token_file: tokens would be mounted at /etc, over something else; need a folder of "
         "their own, such as /var/run/secrets/tokens/{audience}"),
        ("/{audience}", "manifests.options.token_file: tokens would be mounted at /, over"),
        ("/tmp/{audience}", "manifests.options.token_file: tokens would be mounted at /tmp, over"),
        ("/etc/inbound/config/{audience}", "manifests.options.token_file: tokens would be mounted at /etc/inbound/config, over"),
        ("tokens/{audience}", "manifests: tokens is not in the pod; say what has it: --mount secret/NAME=/etc/inbound/config"),
    ],
)  # fmt: skip
def test_where_tokens_cannot_be_is_refused_with_its_place(printed: Printed, token_file: str, problem: str) -> None:
    """One token alone names no audience; the others would hide what else the pod has."""
    code, text, errors = printed(*ARGUMENTS, **files(token_file))
    assert (code, text, f"inbound.yaml:4: {problem}" in errors) == (2, "", True), errors

"""`inbound manifests`: Kubernetes accepts its output, which runs the channels that our loader makes of the KafkaChannels."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from inbound.cli.main import main
from inbound.config import load, parse_manifests
from inbound.plan.subscriptions import read_subscriptions
from tests.kubernetes.kubernetes_objects import (
    environment_of,
    loaded_as_in_the_pod,
    objects_in,
    problems_of,
    write_config,
)

EXAMPLE = Path(__file__).parent.parent.parent / "config" / "examples" / "manifests" / "kafkachannel.yaml"
CONFIG = """\
# ours
zookeeper: {hosts: "zk-0:2181,zk-1:2181"}
kafka: {bootstrap.servers: "kafka-0:9092"}
ledger: {type: kafka}
manifests: {options: {ordering: key}, settings: {shutdown_timeout: 50s, reader: {prefetch_bytes: 32MiB}}}
"""
CHANNEL = """\
apiVersion: messaging.knative.dev/v1
kind: KafkaChannel
metadata: {name: NAME, namespace: shop}
spec: {subscribers: [{uid: u-NAME, subscriberUri: "http://one"}]}
"""


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command in a folder with `kafkachannel.yaml` and `inbound.yaml`; return exit code, output and messages."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kafkachannel.yaml").write_text(EXAMPLE.read_text())
    (tmp_path / "inbound.yaml").write_text(CONFIG)
    (tmp_path / "ingress.yaml").write_text(f"{CONFIG}ingress: {{listen: '127.0.0.1:9000'}}\n")

    def run(*arguments: str, **files: str) -> tuple[int, str, str]:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        code = main(["manifests", *arguments])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


Printed = Callable[..., tuple[int, str, str]]


def by_kind(objects: list[dict[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in objects if one["metadata"]["name"] == name}


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


OWN: dict[str, Any] = {"podSelector": {}}


def namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


WAYS = {
    "plain": ["-f", "kafkachannel.yaml"],
    "configured": ["-f", "kafkachannel.yaml", "-c", "inbound.yaml", "--admin-secret", "admin"],
    "own ConfigMap": ["-f", "kafkachannel.yaml", "-c", "inbound.yaml", "--config-map", "shared"],
    "one namespace": ["-f", "kafkachannel.yaml", "--namespace", "knative-eventing", "--replicas", "5"],
    "with disks": ["-f", "kafkachannel.yaml", "--ledger-volume", "10Gi", "--storage-class", "fast"],
    "with secrets": [
        *("-f", "kafkachannel.yaml", "--kafka-secret", "kafka", "--admin-secret", "admin", "--env-from", "s3"),
        *(
            "--mount",
            "secret/billing=/etc/inbound/billing",
            "--env",
            "INBOUND__LOGGING__FORMAT=json",
            "--memory",
            "1Gi",
        ),
    ],
    "with an ingress": ["-f", "kafkachannel.yaml", "-c", "ingress.yaml"],
}


@pytest.mark.parametrize("arguments", WAYS.values(), ids=WAYS)
def test_kubernetes_takes_every_object(printed: Printed, arguments: list[str]) -> None:
    """By the schema of its API, by its rules for names, and with probes and ports that the process has."""
    code, text, _ = printed(*arguments)

    objects = objects_in(text)
    assert (code, [problem for one in objects for problem in problems_of(one)]) == (0, [])
    workload = "StatefulSet" if "--ledger-volume" in arguments else "Deployment"
    assert [one["kind"] for one in objects] == [
        "ConfigMap", workload, "Service", "PodDisruptionBudget", "NetworkPolicy"
    ] * 2  # fmt: skip
    for service, made in zip(objects[2::5], objects[1::5], strict=True):
        assert service["spec"]["selector"] == made["spec"]["selector"]["matchLabels"]
        (container,) = pod_of(made)["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
        assert service["spec"]["ports"][0]["name"] == "metrics"
        assert service["spec"]["ports"][0]["port"] == ports["metrics"]


def test_the_check_of_these_tests_finds_what_is_wrong(printed: Printed) -> None:
    """A key that Kubernetes does not have, a wrong type, a name or a path that no server has: each is reported."""
    objects = objects_in(printed("-f", "kafkachannel.yaml")[1])

    def problems(change: Callable[[dict[str, Any]], object]) -> list[str]:
        changed = copy.deepcopy(objects[1])
        change(changed)
        return problems_of(changed)

    def probe(made: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = pod_of(made)["containers"][0]["livenessProbe"]["httpGet"]
        return found

    assert problems(lambda made: None) == []
    for change in (
        lambda made: made["spec"].update(replica=1),
        lambda made: made["spec"].update(replicas="1"),
        lambda made: made["metadata"].update(name="Orders"),
        lambda made: pod_of(made)["securityContext"].update(runAsUser="nobody"),
        lambda made: pod_of(made)["volumes"].pop(),
        lambda made: probe(made).update(path="/health"),
        lambda made: probe(made).update(port="admin"),
        lambda made: made["spec"]["template"]["metadata"]["labels"].pop("app.kubernetes.io/instance"),
    ):
        assert len(problems(change)) == 1


@pytest.mark.parametrize(
    "arguments", [way for name, way in WAYS.items() if name != "own ConfigMap"], ids=[n for n in WAYS if n[:3] != "own"]
)
def test_a_pod_runs_what_our_loader_makes_of_the_manifests(
    printed: Printed, tmp_path: Path, arguments: list[str]
) -> None:
    """Its subscriptions are those of the files: same names, groups, topics and options; those of all pods are all of them."""
    objects = objects_in(printed(*arguments)[1])
    text = (tmp_path / arguments[3]).read_text() if "-c" in arguments else "kafka: {}"
    whole = load(text, filename="f", overrides={"manifests.paths": "kafkachannel.yaml"})
    manifests = parse_manifests({"kafkachannel.yaml": EXAMPLE.read_text()}).channels
    expected = read_subscriptions(replace(whole, manifests=manifests)).found

    found: dict[str, Any] = {}
    for workload in objects[1::5]:
        folder = tmp_path / workload["metadata"]["name"]
        folder.mkdir()
        config = write_config(objects, workload["metadata"]["name"], folder)
        loaded = loaded_as_in_the_pod(config, environment_of(workload, "orders-7f-x2"))
        made = read_subscriptions(loaded).found
        assert workload["spec"]["replicas"] == (0 if not made else 5 if "5" in arguments else 2)
        assert pod_of(workload)["terminationGracePeriodSeconds"] > loaded.config.manifests.settings.shutdown_timeout
        assert loaded.config.admin.host == "0.0.0.0"
        found |= made

    assert {name: (one.ref, one.options, one.config.topics, one.config.group) for name, one in found.items()} == {
        name: (one.ref, one.options, one.config.topics, one.config.group) for name, one in expected.items()
    }
    assert len(found) == 2
    assert {one.config.consumer_id for one in found.values()} == {"orders-7f-x2"}


def test_the_configuration_is_taken_as_it_stands(printed: Printed, tmp_path: Path) -> None:
    """Comments and all, so that a diff of the ConfigMap is the diff of the file; its content decides about the pod."""
    objects = objects_in(printed("-f", "kafkachannel.yaml", "-c", "inbound.yaml")[1])

    made = by_kind(objects, "inbound-my-kafkachannel")
    assert made["ConfigMap"]["data"]["inbound.yaml"] == CONFIG
    pod = pod_of(made["Deployment"])
    assert pod["terminationGracePeriodSeconds"] == 65
    assert "ledger" not in {volume["name"] for volume in pod["volumes"]}
    # 160 MiB, and 32 MiB that each of the two subscribers reads ahead; at worst twice that, and 100 where Parquet is made.
    resources = pod["containers"][0]["resources"]
    assert (resources["requests"]["memory"], resources["limits"]) == ("224Mi", {"memory": "388Mi"})


def test_the_pods_are_hardened(printed: Printed) -> None:
    """No root, nothing to write to but volumes, no rights, no token of the cluster, no variables of other Services."""
    pod = pod_of(by_kind(objects_in(printed("-f", "kafkachannel.yaml")[1]), "inbound-my-kafkachannel")["Deployment"])

    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)


PORTS: dict[str, tuple[list[str], dict[str, list[dict[str, Any]] | None]]] = {
    # arguments: port, and who reaches it; None is everybody
    "no ingress": ([], {"metrics": [OWN, namespace("monitoring")]}),
    "an ingress": (["-c", "ingress.yaml"], {"metrics": [OWN, namespace("monitoring")], "ingress": None}),
    "named": (
        ["-c", "ingress.yaml", "--admin-from", "ops", "--admin-from", "prom", "--ingress-from", "shop"],
        {"metrics": [OWN, namespace("ops"), namespace("prom")], "ingress": [OWN, namespace("shop")]},
    ),
}


@pytest.mark.parametrize(("arguments", "expected"), PORTS.values(), ids=PORTS)
def test_the_ports_are_open_to_those_who_need_them(
    printed: Printed, arguments: list[str], expected: dict[str, list[dict[str, Any]] | None]
) -> None:
    """The admin port to pods of the channel's namespace and Prometheus', the ingress to all pods by default; no other port."""
    _, text, _ = printed("-f", "kafkachannel.yaml", *arguments)

    made = by_kind(objects_in(text), "inbound-my-kafkachannel")
    spec = made["NetworkPolicy"]["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == (made["Deployment"]["spec"]["selector"], ["Ingress"])
    assert {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]} == expected


SERVICE = tuple(
    f"inbound-my-kafkachannel{rest}"
    for rest in ("", ".mynamespace", ".mynamespace.svc", ".mynamespace.svc.cluster.local")
)
NAMES = {
    # arguments: the names that the pod's admin port is asked by
    "no configuration": ([], SERVICE),
    "one that names some": (["-c", "own.yaml"], ("ops.example", *SERVICE)),
    "a variable": (["--env", "INBOUND__ADMIN__HOSTS=a,b"], ("a", "b", *SERVICE)),
    "a ConfigMap that is not looked at": (["--config-map", "shared"], ()),
}


@pytest.mark.parametrize(("arguments", "names"), NAMES.values(), ids=NAMES)
def test_the_admin_port_is_asked_by_the_names_of_its_service(
    printed: Printed, arguments: list[str], names: tuple[str, ...]
) -> None:
    """Besides those that the configuration, or a variable, has; what a ConfigMap of others has is left as it is."""
    text = printed("-f", "kafkachannel.yaml", *arguments, own=f"{CONFIG}admin: {{hosts: [ops.example]}}\n")[1]

    workload = by_kind(objects_in(text), "inbound-my-kafkachannel")["Deployment"]
    assert load("controller: {}", filename="f", environ=environment_of(workload)).config.admin.hosts == names


def test_secrets_are_mounted_where_the_configuration_looks_for_them(printed: Printed) -> None:
    """And variables set the rest."""
    config = """\
zookeeper:
  hosts: zk:2281
  auth: {scheme: sasl, user: inbound, password_file: /run/zk/password}
  tls: {ca_file: /run/zk/ca.crt}
kafka: {secret: /run/kafka, bootstrap.servers: "k:9092"}
ledger: {type: kafka}
tracing: {folder: /etc/config-tracing}
manifests: {options: {ca_file: /run/ca/ca.crt, headers: {Authorization: {file: /run/headers/token}}}}
"""
    code, text, errors = printed(
        *("-f", "kafkachannel.yaml", "-c", "inbound.yaml", "--kafka-secret", "kafka-creds", "--admin-secret", "admin"),
        *(
            "--zookeeper-secret",
            "zk-creds",
            "--mount",
            "configmap/ca=/run/ca",
            "--mount",
            "secret/headers=/run/headers",
        ),
        *("--mount", "configmap/config-tracing=/etc/config-tracing"),
        inbound=config,
    )

    workload = by_kind(objects_in(text), "inbound-my-kafkachannel")["Deployment"]
    pod = pod_of(workload)
    names = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    names |= {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume}
    folders = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert (code, errors) == (0, "")
    assert {names[name]: folder for name, folder in folders.items() if name in names} == {
        "kafka-creds": "/run/kafka",
        "zk-creds": "/run/zk",
        "admin": "/etc/inbound/admin",
        "headers": "/run/headers",
        "ca": "/run/ca",
        "config-tracing": "/etc/config-tracing",
    }
    environ = environment_of(workload)
    assert environ["INBOUND__ADMIN__TOKEN_FILE"] == "/etc/inbound/admin/token"
    assert "INBOUND__KAFKA__SECRET" not in environ
    plain = by_kind(objects_in(printed("-f", "kafkachannel.yaml", "--kafka-secret", "x")[1]), "inbound-my-kafkachannel")
    assert environment_of(plain["Deployment"])["INBOUND__KAFKA__SECRET"] == "/etc/inbound/kafka"


LEDGERS = {
    # configuration of the ledger: (path, what is mounted there, warned of)
    "{}": ("/var/lib/inbound-ledger", "emptyDir", True),
    "{path: ./mine}": ("/var/lib/inbound-ledger", "emptyDir", True),
    "{path: /data/ledger}": ("/data/ledger", "emptyDir", True),
    "{path: 's3://bucket/ledger'}": (None, None, True),
    "{path: 's3://bucket/ledger', spool: here}": ("/var/lib/inbound-ledger", "emptyDir", True),
    "{type: kafka}": (None, None, False),
    "{type: none}": (None, None, True),
}


@pytest.mark.parametrize("ledger", LEDGERS)
def test_the_ledger_has_a_place_that_can_be_written(printed: Printed, tmp_path: Path, ledger: str) -> None:
    """And a warning if it would be lost with the pod."""
    path, kind, warned = LEDGERS[ledger]
    config = f"zookeeper: {{hosts: 'zk:2181'}}\nkafka: {{bootstrap.servers: 'k:9092'}}\nledger: {ledger}\n"
    _, text, errors = printed("-f", "kafkachannel.yaml", "-c", "inbound.yaml", inbound=config)

    objects = objects_in(text)
    workload = by_kind(objects, "inbound-my-kafkachannel")["Deployment"]
    pod = pod_of(workload)
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    volumes = {one["name"]: next(key for key in one if key != "name") for one in pod["volumes"]}
    assert (mounts.get("ledger"), volumes.get("ledger")) == (path, kind)
    assert ("warning: ledger" in errors) == warned
    loaded = loaded_as_in_the_pod(
        write_config(objects, workload["metadata"]["name"], tmp_path), environment_of(workload)
    )
    place = loaded.config.ledger.spool if loaded.config.ledger.uri else loaded.config.ledger.path
    assert path is None or str(place) == path


def test_a_ledger_volume_of_its_own_makes_a_stateful_set(printed: Printed) -> None:
    """Each pod keeps its ledger, also when it is deleted; so nothing has to be warned of."""
    _, text, errors = printed("-f", "kafkachannel.yaml", "--ledger-volume", "10Gi", "--storage-class", "fast")

    made = by_kind(objects_in(text), "inbound-my-kafkachannel")["StatefulSet"]
    (claim,) = made["spec"]["volumeClaimTemplates"]
    assert claim["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "storageClassName": "fast",
    }
    assert "ledger" not in {volume["name"] for volume in pod_of(made)["volumes"]}
    assert "warning: ledger" not in errors


def test_the_output_does_not_depend_on_the_order_of_the_input(printed: Printed) -> None:
    """So that a repository of what is printed shows what was changed, and nothing else."""
    files = {name: CHANNEL.replace("NAME", name) for name in ("b", "a", "c")}
    first = printed("-f", "b.yaml", "-f", "a.yaml", "-f", "c.yaml", **files)
    again = printed("-f", "c.yaml", "-f", "b.yaml", "-f", "a.yaml")

    assert first == again
    assert [one["metadata"]["name"] for one in objects_in(first[1])[::5]] == ["inbound-a", "inbound-b", "inbound-c"]


def test_what_the_cluster_writes_into_a_manifest_is_left_out(printed: Printed) -> None:
    """Its status, its versions and other people's annotations would change the output with each look."""
    written = yaml.safe_load(CHANNEL.replace("NAME", "orders"))
    before = printed("-f", "one.yaml", one=yaml.safe_dump(written))
    written["status"] = {"address": {"url": "http://x"}, "subscribers": [{"uid": "u-orders", "ready": "True"}]}
    written["metadata"] |= {
        "resourceVersion": "77",
        "generation": 3,
        "annotations": {"messaging.knative.dev/creator": "me"},
    }

    assert printed("-f", "one.yaml", one=yaml.safe_dump(written)) == before


def test_a_list_from_kubectl_is_read_from_standard_input(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubectl get kafkachannels -o yaml | inbound manifests -f -`."""
    items = [yaml.safe_load(CHANNEL.replace("NAME", name)) for name in ("orders", "returns")]
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})))

    code, text, _ = printed("-f", "-")

    assert (code, len(objects_in(text))) == (0, 10)


class Refused(NamedTuple):
    """A message, and what the command is given that it refuses: `one.yaml` holds the channel, `c.yaml` the configuration."""

    message: str
    arguments: tuple[str, ...] = ()
    channel: str = CHANNEL
    config: str | None = None
    file: str = "one.yaml"


OWN_CHANNELS = "channels: {a: {topics: [a], group: g, processor: {type: simple, options: {sinks: [log]}}}}\n"
IN_THE_POD = "is not in the pod; say what has it: --mount secret/NAME="
REFUSED = {
    "a bad channel": Refused("one.yaml:4: spec.subscribers[0].uid: missing", channel=CHANNEL.replace("uid: u-NAME, ", "")),
    "a bad option": Refused("one.yaml:4: spec.subscribers[0].subscriberUri", channel=CHANNEL.replace("http:", "ftp:")),
    "not YAML": Refused("one.yaml:1: not YAML", channel="kind: ["),
    "no channel": Refused("one.yaml: holds no KafkaChannel", channel="{kind: Secret, apiVersion: v1}"),
    "no file": Refused("two.yaml: no such file or folder", file="two.yaml"),
    "a bad configuration": Refused("c.yaml:1: zookeper: unknown key", config="zookeper: {}\n"),
    "channels of its own": Refused("c.yaml:1: channels: the pods of every KafkaChannel would run them", config=OWN_CHANNELS),
    "a file that is not in the pod": Refused(
        f"c.yaml:2: admin.token_file: secrets/token {IN_THE_POD}/etc/inbound/config/secrets",
        config="kafka: {}\nadmin: {token_file: secrets/token}\n",
    ),
    "a folder that is not in the pod": Refused(
        f"c.yaml:1: kafka: /run/kafka {IN_THE_POD}/run/kafka", config="kafka: {secret: /run/kafka}\n"
    ),
    "a variable that fits nowhere": Refused(
        "environment INBOUND__CONTROLER__JOIN_DELAY: controler: unknown key; did you mean controller?",
        ("--env", "INBOUND__CONTROLER__JOIN_DELAY=1s"),
    ),
    "a variable that is set": Refused(
        "--env INBOUND__MANIFESTS__PATHS: is set for the pod already", ("--env", "INBOUND__MANIFESTS__PATHS=x")
    ),
    "a Secret without a place": Refused("inbound.yaml:2: zookeeper: names no files", ("--zookeeper-secret", "zk")),
    "a volume for nothing": Refused(
        "--ledger-volume: with ledger.type kafka there are no files", ("--ledger-volume", "1Gi"), config="ledger: {type: kafka}\n"
    ),
    "the name of its own ConfigMap": Refused(
        "--config-map inbound-name: shop.name (one.yaml:3) needs that name",
        ("--config-map", "inbound-name"), CHANNEL.replace("NAME", "name"),
    ),
    "one path for two": Refused(
        "two of them would be mounted at /etc/inbound/kafka",
        ("--kafka-secret", "a", "--mount", "secret/b=/etc/inbound/kafka"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_with_its_place(printed: Printed, case: Refused) -> None:
    """Exit code 2, nothing printed, and the file and line to change."""
    config = () if case.config is None else ("-c", "c.yaml")

    code, text, errors = printed("-f", case.file, *config, *case.arguments, one=case.channel, c=case.config or "")

    assert (code, text) == (2, "")
    assert case.message in errors


def test_more_than_a_config_map_takes_is_refused(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, and not by the cluster after half of the objects were applied."""
    monkeypatch.setattr("inbound.kubernetes.objects.MOST_BYTES", 200)

    code, text, errors = printed("-f", "one.yaml", one=CHANNEL.replace("NAME", "orders"))

    assert (code, text) == (2, "")
    assert "one.yaml:3: shop.orders: its configuration has" in errors


def test_what_is_seldom_meant_is_warned_of(printed: Printed) -> None:
    """Servers that are the pod itself, and credentials in a ConfigMap, which are not shown."""
    jaas = (
        'sasl.jaas.config: "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=hush;"'
    )
    config = f"kafka:\n  security.protocol: SASL_SSL\n  sasl.mechanism: PLAIN\n  {jaas}\nledger: {{type: none}}\n"

    code, _, errors = printed("-f", "kafkachannel.yaml", "-c", "inbound.yaml", inbound=config)

    assert (code, "hush" in errors) == (0, False)
    assert [line.split(": ")[1:3] for line in errors.splitlines()] == [
        ["inbound.yaml", "zookeeper.hosts"],
        ["inbound.yaml:1", "kafka.bootstrap.servers"],
        ["inbound.yaml:4", "kafka.sasl.jaas.config"],
        ["ledger.type none", "what is lost or repeated can't be proven; set it to files, or to kafka"],
        [
            "no --admin-secret",
            "pause, resume, reload and resets are refused from outside of the pod; reading is open to all",
        ],
    ]

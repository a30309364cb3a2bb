"""`inbound manifests`: prints the Kubernetes objects that run the channels of `KafkaChannel`s."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath

import inbound
from inbound.cli.shared.command import Command, argument, several, whole
from inbound.cli.shared.files import ManifestFiles, read_manifests
from inbound.cli.shared.output import note
from inbound.config import parse_manifests, read_text
from inbound.config.secrets import hide
from inbound.errors import ConfigError
from inbound.kubernetes.objects import as_yaml, objects_of
from inbound.kubernetes.plan import Mount, Wishes, plan_pods

#: The configuration without -c: usual names of the Services of Kafka and ZooKeeper.
ASSUMED = """\
# Made by `inbound manifests` without -c: give it a file of your own.
zookeeper: {hosts: "zookeeper:2181"}
kafka: {bootstrap.servers: "kafka:9092"}
"""
#: The configuration with --config-map alone: only the cluster has it.
UNKNOWN = "controller: {}\n"
#: Exit code: all is printed except for the manifests that cannot be used.
ALL_BUT_REFUSED = 3
#: The default namespace of Prometheus.
MONITORING = "monitoring"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


def run(args: argparse.Namespace) -> int:
    """Print the objects. Returns the exit code."""
    files = _read(args.filename)
    manifests = parse_manifests(files.texts)
    manifests = replace(manifests, refused=(*files.refused(), *manifests.refused))
    for one in manifests.notes:
        note(f"note: {one}")
    for reset in manifests.resets:
        note(f"note: {reset.where}: a ResetOffset is carried out once, by `inbound offsets reset`; it is ignored")
    if not manifests.channels and not manifests.refused:
        raise ConfigError(f"{', '.join(args.filename)}: holds no KafkaChannel")
    if args.storage_class and not args.ledger_volume:
        raise ConfigError("--storage-class: is only used with --ledger-volume")
    wishes = _wishes(args)
    text, filename = _configuration(args)
    plan = plan_pods(text, filename, wishes, is_known=args.config is not None or args.config_map is None)
    found = objects_of(manifests, plan, wishes, text=text, filename=filename)
    if not found.printed:
        raise ConfigError("\n".join(one.problem for one in found.refused))
    for warning in plan.warnings:
        note(f"warning: {warning}")
    if args.config is None:
        note(f"warning: {_without_configuration(args)}")
    print(as_yaml(found.printed), end="")
    for refused in found.refused:
        note("\n".join(f"error: {refused.subject}: {line}" for line in hide(refused.problem).splitlines()))
    return ALL_BUT_REFUSED if found.refused else 0


def _read(names: list[str]) -> ManifestFiles:
    found = ManifestFiles({}, {})
    for name in names:
        if name == "-":
            found.texts["standard input"] = sys.stdin.read()
        else:
            path = Path(name)
            if not path.exists():
                raise ConfigError(f"{path}: no such file or folder; name KafkaChannels with -f")
            files = read_manifests(Path(), [path])
            found.texts.update(files.texts)
            found.unreadable.update(files.unreadable)
    return found


def _configuration(args: argparse.Namespace) -> tuple[str, str]:
    """Return the text of the configuration, and its name in messages."""
    if args.config is not None:
        return read_text(args.config), str(args.config)
    return (UNKNOWN, f"ConfigMap {args.config_map}") if args.config_map else (ASSUMED, "inbound.yaml")


def _without_configuration(args: argparse.Namespace) -> str:
    if args.config_map:
        return f"ConfigMap {args.config_map} is not checked; give the same file with -c to have it checked"
    return "no -c: Services called zookeeper and kafka are expected in the namespace of each channel"


def _wishes(args: argparse.Namespace) -> Wishes:
    environment: dict[str, str] = {}
    for item in args.env:
        name, equals, value = item.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise ConfigError(f"--env {name}: need NAME=VALUE")  # not the value: it may be a secret
        if name in environment:
            raise ConfigError(f"--env {name}: is given twice; keep one")
        environment[name] = value
    return Wishes(
        image=args.image,
        namespace=args.namespace,
        config_map=args.config_map,
        replicas=args.replicas,
        kafka_secret=args.kafka_secret,
        zookeeper_secret=args.zookeeper_secret,
        admin_secret=args.admin_secret,
        mounts=tuple(args.mount),
        environment_from=tuple(args.env_from),
        environment=environment,
        admin_from=tuple(args.admin_from or [MONITORING]),
        ingress_from=tuple(args.ingress_from),
        ledger_volume=args.ledger_volume,
        storage_class=args.storage_class,
        cpu=args.cpu,
        memory=args.memory,
    )


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"need a Kubernetes name: a-z, 0-9, - and ., got {text}")
    return text


def _mount(text: str) -> Mount:
    what, equals, folder = text.partition("=")
    kind, _, name = what.partition("/")
    if not equals or not folder.startswith("/"):
        raise argparse.ArgumentTypeError(
            f"need KIND/NAME=FOLDER, such as secret/billing=/etc/inbound/billing, got {text}"
        )
    if kind == "secret":
        return Mount("secret", _name(name), PurePosixPath(folder))
    if kind == "configmap":
        return Mount("configmap", _name(name), PurePosixPath(folder))
    raise argparse.ArgumentTypeError(f"need secret/NAME or configmap/NAME before the folder, got {text}")


def _quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"need an amount as Kubernetes writes it, such as 10Gi or 250m, got {text}")
    return text


COMMAND = Command(
    "manifests",
    "print the Kubernetes objects that run KafkaChannels",
    run,
    "Print Kubernetes objects that run the subscriptions of Knative's KafkaChannels: for each channel a ConfigMap, a Deployment, a "
    "Service with the port `metrics`, a PodDisruptionBudget and a NetworkPolicy. Connects to no server; the same input gives the "
    "same output. Exit code 0: all objects are printed; 3: some manifests cannot be used: standard error names them with file and "
    "line, and the objects of the others are printed; 2: nothing is printed: the configuration or every manifest is unusable.",
    examples=(
        "inbound manifests -f kafkachannel.yaml > deployment.yaml",
        "inbound manifests -f channels/ -c inbound.yaml --kafka-secret kafka --ledger-volume 10Gi",
        "kubectl get kafkachannels -A -o yaml | inbound manifests -f - --namespace knative-eventing",
    ),
    arguments=(
        argument(
            "-f",
            "--filename",
            action="append",
            required=True,
            metavar="FILE",
            help="KafkaChannels, as kubectl prints them: a file, a folder, or - for standard input; may be given several times",
        ),
        argument(
            "-c",
            "--config",
            type=Path,
            metavar="FILE",
            help="the configuration of all pods: Kafka, ZooKeeper, ledger, manifests.settings and so on, without channels",
        ),
        argument(
            "--config-map",
            type=_name,
            metavar="NAME",
            help="your own ConfigMap with inbound.yaml, instead of a generated one; -c with the same file checks it",
        ),
        argument("--image", default=f"inbound:{inbound.__version__}", help="the image; default: %(default)s"),
        argument(
            "--namespace", type=_name, metavar="NAME", help="namespace of all objects; default: that of the channel"
        ),
        argument(
            "--replicas",
            type=whole(0, 1000, "0 to 1000 replicas"),
            default=2,
            metavar="N",
            help="pods of each channel; default: 2",
        ),
        argument(
            "--admin-from",
            type=_name,
            action="append",
            metavar="NAMESPACE",
            help="a namespace, besides the channel's own, whose pods may reach the admin port: Prometheus's; may be given several "
            f"times; default: {MONITORING}",
        ),
        several(
            "--ingress-from",
            "a namespace, besides the channel's own, whose pods may reach the ingress; may be given several times; default: all",
            type=_name,
            metavar="NAMESPACE",
        ),
        argument(
            "--kafka-secret",
            type=_name,
            metavar="NAME",
            help="a Secret with credentials for Kafka, under Knative's keys",
        ),
        argument(
            "--zookeeper-secret",
            type=_name,
            metavar="NAME",
            help="a Secret with the files that zookeeper.auth and zookeeper.tls of the configuration name",
        ),
        argument(
            "--admin-secret",
            type=_name,
            metavar="NAME",
            help="a Secret whose key `token` is the token for operations by POST",
        ),
        several(
            "--mount",
            "another secret/NAME or configmap/NAME, mounted where the configuration expects its files, such as "
            "configmap/config-tracing=/etc/config-tracing; may be given several times",
            type=_mount,
            metavar="KIND/NAME=FOLDER",
        ),
        several(
            "--env-from",
            "a Secret whose keys become variables, such as credentials of an object store; may be given several times",
            type=_name,
            metavar="NAME",
        ),
        several(
            "--env",
            "another variable, such as INBOUND__CONTROLLER__JOIN_DELAY=5s; may be given several times",
            metavar="NAME=VALUE",
        ),
        argument(
            "--ledger-volume",
            type=_quantity,
            metavar="SIZE",
            help="size of a PersistentVolume for each pod's ledger, such as 10Gi; prints StatefulSets instead of Deployments",
        ),
        argument(
            "--storage-class", type=_name, metavar="NAME", help="storage class of these volumes; default: the cluster's"
        ),
        argument("--cpu", type=_quantity, default="100m", metavar="AMOUNT", help="CPU to request; default: 100m"),
        argument(
            "--memory",
            type=_quantity,
            metavar="SIZE",
            help="memory to request, and the limit; default: computed from prefetch_bytes and the number of subscribers",
        ),
    ),
)

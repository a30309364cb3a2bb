"""`inbound manifests`: what runs the channels of `KafkaChannel`s in Kubernetes, as YAML for `kubectl apply` or a repository."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import inbound
from inbound.cli.argument_types import whole
from inbound.cli.files import ManifestFiles, read_manifests
from inbound.cli.help import examples
from inbound.config import Manifests, parse_manifests, read_text
from inbound.config.known_secrets import hide
from inbound.errors import ConfigError
from inbound.kubernetes.documents import as_yaml
from inbound.kubernetes.objects import objects_of
from inbound.kubernetes.plan import plan_pods
from inbound.kubernetes.wishes import Mounted, Wishes

#: What stands for a configuration where none is given: names that Services of Kafka and ZooKeeper often have.
ASSUMED = """\
# Made by `inbound manifests` without -c: give it a file of your own.
zookeeper: {hosts: "zookeeper:2181"}
kafka: {bootstrap.servers: "kafka:9092"}
"""
#: What is certain where the configuration is in the cluster already.
UNKNOWN = "controller: {}\n"
#: Exit code: all is printed but for what of the manifests cannot be used.
ALL_BUT_REFUSED = 3
#: Where Prometheus is, if nobody says otherwise.
MONITORING = "monitoring"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "manifests",
        help="print what runs KafkaChannels in Kubernetes",
        description="Print Kubernetes objects that run the subscriptions of Knative's KafkaChannels: for each channel a "
        "ConfigMap, a Deployment, a Service with the port `metrics`, a PodDisruptionBudget and a NetworkPolicy. Connects to "
        "nothing; the same input gives the same output. Exit code 3 if it is printed but for what of the manifests cannot be "
        "used, which standard error names with file and line; 2 if nothing is printed, for nothing of them, or the configuration, "
        "can be used.",
        **examples(
            "inbound manifests -f kafkachannel.yaml > deployment.yaml",
            "inbound manifests -f channels/ -c inbound.yaml --kafka-secret kafka --ledger-volume 10Gi",
            "kubectl get kafkachannels -A -o yaml | inbound manifests -f - --namespace knative-eventing",
        ),
    )
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="KafkaChannels, as kubectl prints them: a file, a folder, or - for standard input; may be given several times",
    )
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        metavar="FILE",
        help="the configuration that they share: Kafka, ZooKeeper, ledger, manifests.settings and so on, without channels",
    )
    parser.add_argument(
        "--config-map",
        type=_name,
        metavar="NAME",
        help="a ConfigMap of your own that has inbound.yaml, in place of what is made; give the same file with -c to have it "
        "checked",
    )
    parser.add_argument("--image", default=f"inbound:{inbound.__version__}", help="the image; default: %(default)s")
    parser.add_argument(
        "--namespace", type=_name, metavar="NAME", help="where all objects go; default: where the channel is"
    )
    parser.add_argument(
        "--replicas",
        type=whole(0, 1000, "0 to 1000 replicas"),
        default=2,
        metavar="N",
        help="pods of each channel; default: 2",
    )
    parser.add_argument(
        "--admin-from",
        type=_name,
        action="append",
        metavar="NAMESPACE",
        help="a namespace whose pods reach the admin port, besides the channel's own: Prometheus'; may be given several times; "
        f"default: {MONITORING}",
    )
    parser.add_argument(
        "--ingress-from",
        type=_name,
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="a namespace whose pods reach the ingress, besides the channel's own; may be given several times; default: everybody",
    )
    _add_secrets(parser)
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a further variable, such as INBOUND__CONTROLLER__JOIN_DELAY=5s; may be given several times",
    )
    parser.add_argument(
        "--ledger-volume",
        type=_quantity,
        metavar="SIZE",
        help="a PersistentVolume of this size for the ledger of each pod, such as 10Gi; makes StatefulSets",
    )
    parser.add_argument(
        "--storage-class", type=_name, metavar="NAME", help="of these volumes; default: the cluster's own"
    )
    parser.add_argument("--cpu", type=_quantity, default="100m", metavar="AMOUNT", help="CPU to ask for; default: 100m")
    parser.add_argument(
        "--memory",
        type=_quantity,
        metavar="SIZE",
        help="memory to ask for, and the limit; default: worked out from prefetch_bytes and the number of subscribers",
    )
    parser.set_defaults(run=run)


def _add_secrets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kafka-secret", type=_name, metavar="NAME", help="a Secret with credentials for Kafka, under Knative's keys"
    )
    parser.add_argument(
        "--zookeeper-secret",
        type=_name,
        metavar="NAME",
        help="a Secret with the files that zookeeper.auth and zookeeper.tls of the configuration name",
    )
    parser.add_argument(
        "--admin-secret", type=_name, metavar="NAME", help="a Secret whose key `token` is what operations by POST need"
    )
    parser.add_argument(
        "--mount",
        type=_mount,
        action="append",
        default=[],
        metavar="KIND/NAME=FOLDER",
        help="a further secret/NAME or configmap/NAME, mounted where the configuration looks for its files, such as "
        "configmap/config-tracing=/etc/config-tracing; may be given several times",
    )
    parser.add_argument(
        "--env-from",
        type=_name,
        action="append",
        default=[],
        metavar="NAME",
        help="a Secret whose keys become variables, such as credentials of an object store; may be given several times",
    )


def run(args: argparse.Namespace) -> int:
    """Print the objects. Returns the exit code."""
    files = _read(args.filename)
    manifests = parse_manifests(files.texts)
    manifests = replace(manifests, refused=(*files.refused(), *manifests.refused))
    for note in _notes(manifests):
        print(f"note: {note}", file=sys.stderr)
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
        print(f"warning: {warning}", file=sys.stderr)
    if args.config is None:
        print(f"warning: {_without_configuration(args)}", file=sys.stderr)
    print(as_yaml(found.printed), end="")
    for one in found.refused:
        print("\n".join(f"error: {one.subject}: {line}" for line in hide(one.problem).splitlines()), file=sys.stderr)
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


def _notes(found: Manifests) -> list[str]:
    resets = [
        f"{one.where}: a ResetOffset is carried out once, by `inbound offsets reset`; it is ignored"
        for one in found.resets
    ]
    return [*found.notes, *resets]


def _configuration(args: argparse.Namespace) -> tuple[str, str]:
    """Return the text of the configuration, and what to call it."""
    if args.config is not None:
        return read_text(args.config), str(args.config)
    return (UNKNOWN, f"ConfigMap {args.config_map}") if args.config_map else (ASSUMED, "inbound.yaml")


def _without_configuration(args: argparse.Namespace) -> str:
    if args.config_map:
        return f"ConfigMap {args.config_map} is not looked at; give the same file with -c to have it checked"
    return "no -c: Services called zookeeper and kafka are expected in the namespace of each channel"


def _wishes(args: argparse.Namespace) -> Wishes:
    environment: dict[str, str] = {}
    for item in args.env:
        name, equals, value = item.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise ConfigError(f"--env {name}: need NAME=VALUE")
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
        raise argparse.ArgumentTypeError(f"need a name of Kubernetes: a-z, 0-9, - and ., got {text}")
    return text


def _mount(text: str) -> Mounted:
    what, equals, folder = text.partition("=")
    kind, _, name = what.partition("/")
    if not equals or not folder.startswith("/"):
        raise argparse.ArgumentTypeError(
            f"need KIND/NAME=FOLDER, such as secret/billing=/etc/inbound/billing, got {text}"
        )
    if kind == "secret":
        return Mounted("secret", _name(name), PurePosixPath(folder))
    if kind == "configmap":
        return Mounted("configmap", _name(name), PurePosixPath(folder))
    raise argparse.ArgumentTypeError(f"need secret/NAME or configmap/NAME before the folder, got {text}")


def _quantity(text: str) -> str:
    if not _QUANTITY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"need an amount as Kubernetes writes it, such as 10Gi or 250m, got {text}")
    return text

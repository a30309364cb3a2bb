"""The needs of a pod: variables, volumes, ports and times. Pure.

The configuration's text goes into the ConfigMap as it stands. Values that only a pod knows, or that must differ in it, are
environment variables, which override the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel

from inbound.config import Config, Loaded, depends_on, load
from inbound.config.http_values import AUDIENCE
from inbound.config.kafka_properties import PLACEHOLDER
from inbound.config.overrides import PREFIX
from inbound.config.values import split_address
from inbound.errors import ConfigError
from inbound.http.server.rights import is_loopback

#: The pod's folder of configuration: generated files and those of the user's ConfigMap.
CONFIG_FOLDER = PurePosixPath("/etc/inbound/config")
#: Default folders of Secrets.
KAFKA_FOLDER = PurePosixPath("/etc/inbound/kafka")
ADMIN_FOLDER = PurePosixPath("/etc/inbound/admin")
#: The key of the Secret with the token of the admin listener.
TOKEN_KEY = "token"  # noqa: S105 - its name, not the token


@dataclass(frozen=True)
class Mount:
    """A Secret or ConfigMap, and the folder of its files."""

    kind: Literal["secret", "configmap"]
    name: str
    folder: PurePosixPath


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options of `inbound manifests`."""

    image: str
    #: The namespace of all objects; None: that of each channel.
    namespace: str | None = None
    #: An existing ConfigMap with `inbound.yaml`; None: one is generated.
    config_map: str | None = None
    replicas: int = 2
    kafka_secret: str | None = None
    zookeeper_secret: str | None = None
    admin_secret: str | None = None
    mounts: tuple[Mount, ...] = ()
    #: Secrets whose keys become variables, such as an object store's credentials.
    environment_from: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Namespaces, besides each channel's own, whose pods reach the admin port; and the ingress, where empty means all.
    admin_from: tuple[str, ...] = ()
    ingress_from: tuple[str, ...] = ()
    #: Size of each pod's ledger volume, such as 10Gi; None: the node's disk, which is lost with the pod.
    ledger_volume: str | None = None
    storage_class: str | None = None
    #: Requests; None: worked out.
    cpu: str = "100m"
    memory: str | None = None


#: The files in the ConfigMap of a channel.
CONFIG_FILE, CHANNEL_FILE = "inbound.yaml", "kafkachannel.yaml"
#: Properties of Kafka's clients that are credentials themselves, rather than the names of files.
CREDENTIALS = (
    "sasl.jaas.config",
    "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.key.password",
    "ssl.keystore.key",
)
#: Files that outlive the process but not the pod: locks, the spool. inbound keeps them in `$XDG_STATE_HOME/inbound`.
STATE_HOME = PurePosixPath("/var/lib")
STATE_FOLDER = STATE_HOME / "inbound"
LEDGER_FOLDER = PurePosixPath("/var/lib/inbound-ledger")
TEMPORARY_FOLDER = PurePosixPath("/tmp")  # noqa: S108 - a volume of the pod's own
#: The variable with the pod's name.
CONSUMER_ID = f"{PREFIX}MANIFESTS__SETTINGS__CONSUMER_ID"
#: The variable with the Service's names, by which clients reach the admin port.
HOSTS = f"{PREFIX}ADMIN__HOSTS"
#: Seconds of a graceful stop after `shutdown_timeout`: to release partitions, and to close ZooKeeper and clients.
LEAVING = 15
#: Further seconds to ship the ledger's last files, and to answer an ingress's clients.
SHIPPING, DRAINING = 10, 10


@dataclass(frozen=True)
class PodPlan:
    """The needs of every pod of one configuration, for any channel."""

    config: Config
    variables: Mapping[str, str]  # by name, in order; without the consumer id
    folders: tuple[Mount, ...]
    tokens: PurePosixPath | None  # folder of the projected service account tokens, one per audience; None: none
    ledger: PurePosixPath | None  # mount point of the ledger's, or its spool's, volume; None: in the state folder
    scheme: str  # of the admin listener's probes
    admin_port: int
    ingress_port: int | None
    hosts: tuple[str, ...] | None  # further names of the admin port; None: only the pod knows its configuration
    grace: int  # seconds
    warnings: tuple[str, ...]


def plan_pods(text: str, filename: str, wishes: Wishes, *, is_known: bool = True) -> PodPlan:
    """Return the needs of pods with this configuration.

    With `is_known`, `text` is the configuration of the pods; otherwise it is assumed, and they may have another.

    Raises:
        ConfigError: the configuration cannot be used, or not in a pod: a line for each problem.
    """
    bare = load(text, filename=filename, environ=wishes.environment, overrides={"manifests.paths": CHANNEL_FILE})
    folders = tuple(_folders(bare, wishes))
    variables = dict(_variables(bare, wishes))
    for name in wishes.environment:
        if name in variables or name == CONSUMER_ID:
            raise ConfigError(f"--env {name}: is set for the pod already; leave it out")
    variables |= dict(sorted(wishes.environment.items()))
    # As the pod loads it, so that a variable that fits nowhere is found here.
    config = load(text, filename=filename, environ={**variables, CONSUMER_ID: "pod-0"}).config
    if config.channels:
        raise ConfigError(
            f"{bare.locate('channels')}: channels: the pods of every KafkaChannel would run them; leave them out"
        )
    tokens = _tokens(config, folders)
    problems = list(_unmounted(bare, config, folders, tokens, wishes))
    if problems:
        raise ConfigError("\n".join(problems))
    ledger, lost = _ledger(config, wishes)
    if tokens is not None:
        _check_tokens(bare, tokens, ledger)
    grace = math.ceil(config.manifests.settings.shutdown_timeout) + LEAVING
    grace += (SHIPPING if config.ledger.uri else 0) + (DRAINING if config.ingress else 0)
    return PodPlan(
        config=config,
        variables=variables,
        folders=folders,
        tokens=tokens,
        ledger=ledger,
        scheme="HTTPS" if config.admin.tls else "HTTP",
        admin_port=config.admin.port,
        ingress_port=config.ingress.port if config.ingress else None,
        hosts=config.admin.hosts if is_known or HOSTS in wishes.environment else None,
        grace=grace,
        warnings=tuple(_warnings(bare, config, wishes, lost, is_known)),
    )


def _variables(loaded: Loaded, wishes: Wishes) -> Iterator[tuple[str, str]]:
    """Yield the variables that the configuration needs in a pod."""
    config = loaded.config
    yield "XDG_STATE_HOME", str(STATE_HOME)
    yield f"{PREFIX}MANIFESTS__PATHS", CHANNEL_FILE
    if is_loopback(config.admin.host) or config.admin.port == 0:
        yield f"{PREFIX}ADMIN__LISTEN", f"0.0.0.0:{config.admin.port or 8081}"
    if wishes.admin_secret and config.admin.token_file is None:
        yield f"{PREFIX}ADMIN__TOKEN_FILE", str(ADMIN_FOLDER / TOKEN_KEY)
    if wishes.kafka_secret and "secret" not in config.kafka:
        yield f"{PREFIX}KAFKA__SECRET", str(KAFKA_FOLDER)
    if config.ingress is not None and (is_loopback(config.ingress.host) or config.ingress.port == 0):
        yield f"{PREFIX}INGRESS__LISTEN", f"0.0.0.0:{config.ingress.port or 8080}"
    if config.ledger.type == "files" and isinstance(config.ledger.path, Path):
        if not config.ledger.path.is_absolute():
            yield f"{PREFIX}LEDGER__PATH", str(LEDGER_FOLDER)
    elif config.ledger.uri and _needs_a_place(config.ledger.spool, wishes):
        yield f"{PREFIX}LEDGER__SPOOL", str(LEDGER_FOLDER)


def _ledger(config: Config, wishes: Wishes) -> tuple[PurePosixPath | None, bool]:
    """Return the ledger's mount point, and whether pods lose entries."""
    if config.ledger.type != "files":
        if wishes.ledger_volume:
            raise ConfigError(
                f"--ledger-volume: with ledger.type {config.ledger.type} there are no files; leave it out"
            )
        return None, False
    place = config.ledger.path if isinstance(config.ledger.path, Path) else config.ledger.spool
    if place is None:
        return None, True
    if PurePosixPath(place) in (STATE_FOLDER, CONFIG_FOLDER, TEMPORARY_FOLDER):
        raise ConfigError(f"ledger: {place} is mounted for something else; need a folder such as {LEDGER_FOLDER}")
    return PurePosixPath(place), not wishes.ledger_volume


def _folders(loaded: Loaded, wishes: Wishes) -> Iterator[Mount]:
    """Yield the Secrets and ConfigMaps to mount, with their folders."""
    config = loaded.config
    if wishes.kafka_secret:
        yield Mount("secret", wishes.kafka_secret, PurePosixPath(str(config.kafka.get("secret", KAFKA_FOLDER))))
    if wishes.zookeeper_secret:
        places = {PurePosixPath(path).parent for path in config.zookeeper.files}
        if len(places) != 1:
            raise ConfigError(
                f"{loaded.locate('zookeeper')}: zookeeper: names no files, or files in several folders, so where Secret "
                f"{wishes.zookeeper_secret} belongs is not known; set zookeeper.auth or zookeeper.tls, or "
                "use --mount secret/NAME=FOLDER"
            )
        yield Mount("secret", wishes.zookeeper_secret, places.pop())
    if wishes.admin_secret:
        token = config.admin.token_file
        yield Mount("secret", wishes.admin_secret, ADMIN_FOLDER if token is None else PurePosixPath(token).parent)
    yield from wishes.mounts


def _tokens(config: Config, folders: tuple[Mount, ...]) -> PurePosixPath | None:
    """Return the folder of projected tokens, unless `folders` has it."""
    file = PurePosixPath(str(config.manifests.options.get("token_file", "")))
    if file.name != AUDIENCE or not file.is_absolute():
        return None
    return None if any(_is_below(file.parent, one.folder) for one in folders) else file.parent


def _check_tokens(bare: Loaded, tokens: PurePosixPath, ledger: PurePosixPath | None) -> None:
    """Raise ConfigError if tokens would cover another mount."""
    taken = (CONFIG_FOLDER, STATE_FOLDER, TEMPORARY_FOLDER, *([ledger] if ledger is not None else []))
    if any(_is_below(place, tokens) for place in taken) or _is_below(tokens, CONFIG_FOLDER):
        where = "manifests.options.token_file"
        raise ConfigError(
            f"{bare.locate(where)}: {where}: tokens would be mounted at {tokens}, over something else; need a folder of their "
            f"own, such as /var/run/secrets/tokens/{AUDIENCE}"
        )


def _unmounted(
    bare: Loaded, config: Config, folders: tuple[Mount, ...], tokens: PurePosixPath | None, wishes: Wishes
) -> Iterator[str]:
    """Yield a line for each file of the configuration without a volume."""
    mounted = [one.folder for one in folders]
    if len(set(mounted)) < len(mounted):
        twice = sorted({str(folder) for folder in mounted if mounted.count(folder) > 1})
        yield f"{bare.places.filename}: two of them would be mounted at {', '.join(twice)}; give each a folder of its own"
    for folder in mounted:
        if not folder.is_absolute() or folder == PurePosixPath("/") or _is_below(CONFIG_FOLDER, folder):
            yield f"--mount: something would be mounted at {folder}; need a folder such as {KAFKA_FOLDER}"
    for path, file in _files(config):
        # What stands beside the configuration comes with a ConfigMap of the user's.
        there = CONFIG_FOLDER / PurePosixPath(file)
        if there == tokens or any(_is_below(there, folder) for folder in mounted):
            continue
        if _is_below(there, CONFIG_FOLDER) and wishes.config_map:
            continue
        # Of Kafka and tracing whole folders are read; what stands there may also be one file.
        folder = there if path in ("kafka", "tracing") and not there.suffix else there.parent
        yield (f"{bare.locate(path)}: {path}: {file} is not in the pod; say what has it: --mount secret/NAME={folder}")


def _files(config: Config) -> Iterator[tuple[str, Path]]:
    """Yield each file and folder once, with the path of its reader."""
    found: dict[Path, str] = {}
    for section in ("admin", "ingress", "profiling"):
        for path, file in _paths_in(getattr(config, section), section):
            found.setdefault(file, path)
    for user, files in depends_on(config).items():
        for file in files:
            found.setdefault(file, user)
    yield from ((path, file) for file, path in found.items())


def _paths_in(value: Any, path: str) -> Iterator[tuple[str, Path]]:
    if isinstance(value, Path):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _paths_in(getattr(value, name), f"{path}.{name}")


def _is_below(path: PurePosixPath, folder: PurePosixPath) -> bool:
    return path == folder or folder in path.parents


def _needs_a_place(spool: Path | None, wishes: Wishes) -> bool:
    # The working directory is the configuration's, which cannot be written to.
    return wishes.ledger_volume is not None if spool is None else not spool.is_absolute()


def _warnings(bare: Loaded, config: Config, wishes: Wishes, lost: bool, is_known: bool) -> Iterator[str]:
    """Yield warnings of settings that are seldom meant."""
    if is_known:
        for path, servers in (
            ("zookeeper.hosts", config.zookeeper.hosts),
            ("kafka.bootstrap.servers", str(config.kafka.get("bootstrap.servers", ""))),
        ):
            if any(_is_own(server) for server in servers.split(",")):
                yield f"{bare.locate(path)}: {path}: {servers} is the pod itself"
    for name in CREDENTIALS:
        if name in config.kafka and not PLACEHOLDER.search(str(config.kafka[name])):
            yield (
                f"{bare.locate(f'kafka.{name}')}: kafka.{name}: stands in a ConfigMap, which is no place for it; use "
                "--kafka-secret, or ${directory:/folder:file}"
            )
    if lost and config.ledger.uri is None:
        yield (
            f"ledger.path {config.ledger.path}: it is on an emptyDir volume, and gone when the pod is deleted; use --ledger-volume "
            "10Gi, give a URI such as s3://bucket/ledger, or set ledger.type to kafka"
        )
    elif lost:
        yield (
            "ledger.spool: it is on an emptyDir volume; when a pod is deleted without a graceful stop, what was not shipped is "
            "gone; use --ledger-volume 1Gi, or set ledger.type to kafka"
        )
    if config.ledger.type == "none":
        yield "ledger.type none: what is lost or repeated can't be proven; set it to files, or to kafka"
    if not wishes.admin_secret and config.admin.token_file is None and config.admin.tls is None:
        yield "no --admin-secret: pause, resume, reload and resets are refused from outside of the pod; reading is open to all"


def _is_own(server: str) -> bool:
    host = (split_address(server.strip()) or ("", None))[0]
    return host == "localhost" or is_loopback(host)

"""What a cluster's directory must remember: how many servers, on which ports, under which cluster id."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inbound.embedded.kafka import KafkaPorts, new_uuid
from inbound.embedded.ports import free_ports, is_free
from inbound.embedded.zookeeper import ZooKeeperPorts
from inbound.errors import EmbeddedClusterError

_VERSION = 1
_NAME = "layout.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """One entry of ports per server."""

    cluster_id: str
    brokers: tuple[KafkaPorts, ...]
    zookeepers: tuple[ZooKeeperPorts, ...]

    def ports(self) -> list[int]:
        """Return every port of every server."""
        kafka = [port for one in self.brokers for port in (one.client, one.controller)]
        return kafka + [port for one in self.zookeepers for port in (one.client, one.peer, one.election)]


def load_or_choose(directory: Path, brokers: int, zookeepers: int) -> Layout:
    """Return the layout that `directory` keeps, with fresh ports if one of the old is taken; a new one if it has none.

    Raises EmbeddedClusterError: the directory holds a cluster of another size (its quorums can't change theirs), or
    its layout cannot be read.
    """
    path = directory / _NAME
    old = _read(path) if path.exists() else None
    if old is not None:
        sizes = (len(old.brokers), len(old.zookeepers))
        if sizes != (brokers, zookeepers):
            raise EmbeddedClusterError(
                f"{directory}: holds the data of {sizes[0]} Kafka and {sizes[1]} ZooKeeper servers, "
                f"asked for were {brokers} and {zookeepers}. Ask for the same, delete the directory, or give another."
            )
        if all(is_free(port) for port in old.ports()):
            return old
    ports = iter(free_ports(2 * brokers + 3 * zookeepers))
    new = Layout(
        cluster_id=old.cluster_id if old is not None else new_uuid(),
        brokers=tuple(KafkaPorts(next(ports), next(ports)) for _ in range(brokers)),
        zookeepers=tuple(ZooKeeperPorts(next(ports), next(ports), next(ports)) for _ in range(zookeepers)),
    )
    write_json(path, {"version": _VERSION, **asdict(new)})
    return new


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write `value` so that a reader finds the old file or the whole new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=2) + "\n")
    part.replace(path)


def _read(path: Path) -> Layout:
    try:
        value = json.loads(path.read_text())
        if value["version"] != _VERSION:
            raise EmbeddedClusterError(
                f"{path}: has format version {value['version']}, this inbound reads {_VERSION}. Give another directory."
            )
        return Layout(
            cluster_id=str(value["cluster_id"]),
            brokers=tuple(KafkaPorts(**ports) for ports in value["brokers"]),
            zookeepers=tuple(ZooKeeperPorts(**ports) for ports in value["zookeepers"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedClusterError(
            f"{path}: cannot be read ({error!r}). Delete the directory, or give another."
        ) from error

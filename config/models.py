"""The whole configuration as frozen models; the channels are in `channel_models.py`.

Durations are floats of seconds and sizes ints of bytes, under the names that the file uses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from inbound.config.channel_models import ChannelConfig
from inbound.config.kafka_properties import DEFAULT_SERVERS, Scalar, canonical
from inbound.config.kafka_values import check
from inbound.config.units import shown
from inbound.config.values import ChannelName, Part, Problem, duration, path_part, split_address, text, wrong, wrong_at

#: A session timeout travels to ZooKeeper as a 32-bit count of milliseconds.
_LONGEST_SESSION = 24 * 86400.0


def _hosts(value: Any) -> str:
    servers = [server.strip() for server in text(value).split(",")]
    for server in servers:
        if "/" in server:
            raise wrong(f"holds a path: {shown(server)}; put the path into zookeeper.chroot")
        if split_address(server) is None:
            raise wrong(f"need host:port, with commas between several, got {shown(server)}")
    return ",".join(servers)


def _chroot(value: Any) -> str:
    path = text(value)
    if not path:
        return path
    if not path.startswith("/"):
        raise wrong(f"need a path that starts with /, such as /kafka, or empty text, got {shown(path)}")
    if path.endswith("/"):
        raise wrong(f"need a path that does not end with /, got {shown(path)}")
    for part in path[1:].split("/"):
        if not part:
            raise wrong(f"need a path without //, got {shown(path)}")
        path_part(part)
    return path


def _listen(value: Any) -> str:
    address = text(value)
    if (split_address(address) or ("", None))[1] is None:
        raise wrong(f"need host:port such as 127.0.0.1:8081, got {shown(address)}")
    return address


def _path(value: Any) -> Path:
    given = str(value) if isinstance(value, Path) else text(value)
    if not given.strip() or not given.isprintable():
        raise wrong(f"need the path of a folder, got {shown(given)}")
    return Path(given)


def _file(value: Any) -> Path | None:
    if value is None:
        return None
    given = str(value) if isinstance(value, Path) else text(value)
    if not given.strip() or not given.isprintable():
        raise wrong("need the path of a file")  # what stands there instead may be the secret itself
    return Path(given)


def _kafka(value: Any) -> dict[str, Scalar]:
    if not isinstance(value, dict):
        raise wrong(f"need a mapping of Kafka client properties, got {shown(value)}")
    properties: dict[str, Scalar] = {}
    problems: list[Problem] = []
    for given, setting in value.items():
        name = canonical(given) if isinstance(given, str) else str(given)
        try:
            if name in properties:
                raise wrong("given twice, in different spellings; keep one")
            properties[name] = check(name, setting)
        except PydanticCustomError as error:
            problems.append(((given,), error, setting))
    if problems:
        raise wrong_at("kafka", problems)
    return {"bootstrap.servers": DEFAULT_SERVERS} | properties


class ZooKeeperConfig(Part):
    """The ensemble that coordinates the channels."""

    hosts: Annotated[str, BeforeValidator(_hosts)] = Field(
        default="127.0.0.1:2181", description="Servers as host:port, with commas between several."
    )
    chroot: Annotated[str, BeforeValidator(_chroot)] = Field(
        default="", description="Path under which all nodes are kept; empty for the root."
    )
    session_timeout: Annotated[float, duration(1, _LONGEST_SESSION)] = Field(
        default=10.0, description="Seconds without contact after which a dead process loses its partitions."
    )


class ControllerConfig(Part):
    """When partitions move between the members of a group."""

    rebalance_interval: Annotated[float, duration(1)] = Field(
        default=60.0, description="Seconds between two rebalances that nothing triggered."
    )
    rebalance_delay: Annotated[float, duration()] = Field(
        default=0.3, description="Seconds that changes are collected before one rebalance answers them all."
    )
    join_delay: Annotated[float, duration()] = Field(
        default=3.0, description="Seconds after a new session before partitions not held before are claimed."
    )


class AdminConfig(Part):
    """The HTTP listener for health, status, metrics and operations."""

    listen: Annotated[str, BeforeValidator(_listen)] = Field(
        default="127.0.0.1:8081",
        description="Address and port; if the default port is taken the next free one is used, if a given one is taken "
        "the start fails. Port 0 is any free one.",
    )

    token_file: Annotated[Path | None, BeforeValidator(_file)] = Field(
        default=None,
        description="File with the token that operations by POST need; on an address that other machines can reach none "
        "is done without. Relative to the working directory; read again at each operation.",
    )

    @property
    def given(self) -> bool:
        """True if somebody set `listen`, so that no other port may be taken in its place."""
        return "listen" in self.model_fields_set

    @property
    def host(self) -> str:
        """The address to bind, without brackets."""
        return (split_address(self.listen) or ("", 0))[0]

    @property
    def port(self) -> int:
        """The port to bind."""
        return (split_address(self.listen) or ("", 0))[1] or 0


class LedgerConfig(Part):
    """The record of what was handed out and committed, from which nothing-lost is proven."""

    type: Literal["files", "none"] = Field(default="files", description="Where it is kept; `none` keeps no ledger.")
    path: Annotated[Path, BeforeValidator(_path), PlainSerializer(str, when_used="json")] = Field(
        default=Path("ledger"), description="Folder of the files, relative to the working directory."
    )
    retention: Annotated[float, duration(over=True)] = Field(
        default=7 * 86400.0, description="Seconds that entries are kept."
    )
    on_failure: Literal["hold", "degrade"] = Field(
        default="hold", description="When it cannot be written: hand out nothing more, or go on without proof."
    )


class Config(Part):
    """Everything that `inbound.yaml` says."""

    zookeeper: ZooKeeperConfig = Field(default_factory=ZooKeeperConfig)
    # Not in repr: properties can hold passwords.
    kafka: Annotated[dict[str, Scalar], BeforeValidator(_kafka)] = Field(
        default_factory=lambda: _kafka({}),
        repr=False,
        description="Kafka client properties under their Java names; the same for all channels.",
    )
    controller: ControllerConfig = Field(default_factory=ControllerConfig)
    admin: AdminConfig = Field(default_factory=AdminConfig)
    ledger: LedgerConfig = Field(default_factory=LedgerConfig)
    channels: dict[ChannelName, ChannelConfig] = Field(description="The channels by name; at least one.")

    @model_validator(mode="after")
    def _check(self) -> Config:
        if not self.channels:
            raise wrong_at("Config", [(("channels",), wrong("need at least one channel, got none"), None)])
        members: dict[tuple[str, str], str] = {}
        for name, channel in self.channels.items():
            if channel.consumer_id is None:
                continue
            other = members.setdefault((channel.group, channel.consumer_id), name)
            if other != name:
                problem = wrong(
                    f"channel {other} is already member {channel.consumer_id!r} of group {channel.group!r}; "
                    "give each its own consumer_id"
                )
                raise wrong_at("Config", [(("channels", name, "consumer_id"), problem, None)])
        return self

"""The paths of all znodes; no other module has any.

The layout is that of Jetstream and Kafka 0.8, so that old tools read it.
"""

from __future__ import annotations

import re

from inbound.errors import ConfigError

#: A name that can be one part of a path: ZooKeeper and Kafka both accept it.
_PART = re.compile(r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+")


def path_part(name: str, what: str) -> str:
    """Return `name` if it can be a part of a znode path.

    Raises:
        ConfigError: it is empty, `.` or `..`, or holds a slash or a control character.
    """
    if name in (".", "..") or not _PART.fullmatch(name):
        raise ConfigError(
            f"{what} {name!r} cannot be part of a ZooKeeper path: use no '/', no control characters, not '.'"
        )
    return name


class GroupPaths:
    """The nodes of one consumer group; the client adds the chroot."""

    #: The folder with a child for each group.
    GROUPS = "/consumers"

    def __init__(self, group: str) -> None:
        self.root = f"/consumers/{path_part(group, 'group')}"
        self.ids = f"{self.root}/ids"
        self.pauses = f"{self.root}/pauses"
        self.rebalance = f"{self.root}/rebalance"
        self.subscriber = f"{self.root}/subscriber"
        #: Each has a child for each topic.
        self.all_gates = f"{self.root}/gates"
        self.all_offsets = f"{self.root}/offsets"
        self.all_epochs = f"{self.root}/epochs"
        self.all_owners = f"{self.root}/owners"

    def member(self, consumer_id: str) -> str:
        return f"{self.ids}/{path_part(consumer_id, 'consumer id')}"

    def pause(self, holder: str, consumer_id: str | None = None) -> str:
        """Return the node of a holder's pause, of group or member."""
        name = path_part(holder, "holder of a pause")
        if "@" in name:
            raise ConfigError(f"holder of a pause {name!r}: must not hold '@', which comes before a consumer id")
        if consumer_id is not None:
            name += f"@{path_part(consumer_id, 'consumer id')}"
        return f"{self.pauses}/{name}"

    def gate(self, topic: str) -> str:
        return f"{self.root}/gates/{topic}"

    def owners(self, topic: str) -> str:
        return f"{self.root}/owners/{topic}"

    def owner(self, topic: str, partition: int) -> str:
        return f"{self.root}/owners/{topic}/{partition}"

    def offsets(self, topic: str) -> str:
        return f"{self.root}/offsets/{topic}"

    def offset(self, topic: str, partition: int) -> str:
        return f"{self.root}/offsets/{topic}/{partition}"

    def epochs(self, topic: str) -> str:
        return f"{self.root}/epochs/{topic}"

    def epoch(self, topic: str, partition: int) -> str:
        return f"{self.root}/epochs/{topic}/{partition}"

    def group_parents(self) -> list[str]:
        """Return the persistent folders that a group needs, parents first."""
        return [
            "/consumers",
            self.root,
            self.ids,
            *(f"{self.root}/{family}" for family in ("gates", "owners", "offsets", "epochs")),
            self.pauses,
            self.rebalance,
        ]

    def topic_parents(self, topic: str) -> list[str]:
        """Return a topic's persistent folders, without `epochs/<topic>`, which gets data."""
        return [self.owners(path_part(topic, "topic")), self.offsets(topic)]


class CommandPaths:
    """The nodes of resets of offsets, which any live process carries out."""

    #: One child for each reset; its name is never used again.
    RESETS = "/inbound/commands/reset-offset"
    #: Used names that derive from something that lasts, as from a manifest's content. They stay when the command itself is
    #: cleared away: the manifest may lie in its folder for years.
    USED_NAMES = "/inbound/commands/reset-offset-names"

    def parents(self) -> list[str]:
        return ["/inbound", "/inbound/commands", self.RESETS, self.USED_NAMES]

    def reset(self, name: str) -> str:
        """Return the node of the command: specification and status."""
        return f"{self.RESETS}/{path_part(name, 'name of a reset')}"

    def leader(self, name: str) -> str:
        """Return the leader's ephemeral node: no lock, steps tolerate several leaders."""
        return f"{self.reset(name)}/leader"

    def used_name(self, name: str) -> str:
        """Return the node that says that this name was used."""
        return f"{self.USED_NAMES}/{path_part(name, 'name of a reset')}"

    def targets(self, name: str, by: str, chunk: int) -> str:
        """Return the node of a chunk's targets, resolved by `by` before moves."""
        return f"{self.reset(name)}/targets-{by}-{chunk}"

    def applied(self, name: str, chunk: int) -> str:
        """Return the node that a chunk's moving transaction makes."""
        return f"{self.reset(name)}/applied-{chunk}"

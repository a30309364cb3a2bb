"""The only place where znode paths exist.

Layout as Jetstream and Kafka 0.8 had it, so that old tools read it.
"""

from __future__ import annotations

import re

from inbound.errors import ConfigError

#: A name that can be one part of a path: what ZooKeeper and Kafka both take.
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
        """The pause that `holder` keeps: for the whole group, or for one member of it."""
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
        """The persistent folders that a group needs, parents first."""
        return [
            "/consumers",
            self.root,
            self.ids,
            *(f"{self.root}/{family}" for family in ("gates", "owners", "offsets", "epochs")),
            self.pauses,
            self.rebalance,
        ]

    def topic_parents(self, topic: str) -> list[str]:
        """The persistent folders that a topic needs besides (`epochs/<topic>` is made with its data)."""
        return [self.owners(path_part(topic, "topic")), self.offsets(topic)]


class CommandPaths:
    """The nodes of resets of offsets, which any live process carries out."""

    #: One child for each reset; its name is never used again.
    RESETS = "/inbound/commands/reset-offset"
    #: Used names that derive from something that lasts, such as a manifest's content. They stay when
    #: the command itself is cleared away: the manifest may lie in its folder for years.
    USED_NAMES = "/inbound/commands/reset-offset-names"

    def parents(self) -> list[str]:
        """The persistent folders, parents first."""
        return ["/inbound", "/inbound/commands", self.RESETS, self.USED_NAMES]

    def reset(self, name: str) -> str:
        """The command itself: specification and status."""
        return f"{self.RESETS}/{path_part(name, 'name of a reset')}"

    def leader(self, name: str) -> str:
        """Ephemeral: who carries it out at the moment. A courtesy, no lock: steps are safe with several of them."""
        return f"{self.reset(name)}/leader"

    def used_name(self, name: str) -> str:
        """Says that a command of this name was submitted once."""
        return f"{self.USED_NAMES}/{path_part(name, 'name of a reset')}"

    def targets(self, name: str, by: str, chunk: int) -> str:
        """Where the partitions of one chunk are moved to, as `by` has resolved it; made before anything is moved."""
        return f"{self.reset(name)}/targets-{by}-{chunk}"

    def applied(self, name: str, chunk: int) -> str:
        """Made by the transaction that moves the partitions of one chunk."""
        return f"{self.reset(name)}/applied-{chunk}"

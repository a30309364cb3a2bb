"""The only place where znode paths exist. Layout as Jetstream and Kafka 0.8 had it, so that old tools read it."""

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
    """The nodes of one consumer group, under an optional chroot (handled by the client)."""

    def __init__(self, group: str) -> None:
        self.root = f"/consumers/{path_part(group, 'group')}"
        self.ids = f"{self.root}/ids"

    def member(self, consumer_id: str) -> str:
        return f"{self.ids}/{path_part(consumer_id, 'consumer id')}"

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
        ]

    def topic_parents(self, topic: str) -> list[str]:
        """The persistent folders that a topic needs besides (`epochs/<topic>` is made with its data)."""
        return [self.owners(path_part(topic, "topic")), self.offsets(topic)]

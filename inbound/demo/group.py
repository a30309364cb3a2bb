"""What ZooKeeper says of the demo's group: read with a connection of its own, not through inbound."""

from __future__ import annotations

from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from inbound.coordinators.paths import GroupPaths
from inbound.demo.consumers import DemoError

_TIMEOUT = 10.0


class GroupView:
    """Reads owners and commits of one group and topic. Used by one thread, whose owner closes it."""

    def __init__(self, hosts: str, group: str, topic: str, partitions: int) -> None:
        """Connect. Raises DemoError: ZooKeeper does not answer."""
        self._paths = GroupPaths(group)
        self._topic = topic
        self._partitions = partitions
        self._hosts = hosts
        self._client = KazooClient(hosts=hosts, timeout=_TIMEOUT)
        try:
            self._client.start(timeout=_TIMEOUT)
        except self._client.handler.timeout_exception:
            self._client.close()
            raise DemoError(f"ZooKeeper at {hosts} does not answer within {_TIMEOUT:.0f} s; see its log") from None

    def owners(self) -> dict[int, str]:
        """Return who owns which partition; those without owner are left out."""
        return self._read(lambda partition: self._paths.owner(self._topic, partition))

    def commits(self) -> dict[int, int]:
        """Return the offset to be read next of each partition that has one."""
        texts = self._read(lambda partition: self._paths.offset(self._topic, partition))
        return {partition: int(text) for partition, text in texts.items() if text}

    def close(self) -> None:
        """Close the connection."""
        self._client.stop()
        self._client.close()

    def _read(self, path: Callable[[int], str]) -> dict[int, str]:
        pending = [(partition, self._client.get_async(path(partition))) for partition in range(self._partitions)]
        found: dict[int, str] = {}
        for partition, answer in pending:
            try:
                found[partition] = answer.get(timeout=_TIMEOUT)[0].decode()
            except NoNodeError:
                continue
            except (KazooException, self._client.handler.timeout_exception) as error:
                raise DemoError(f"ZooKeeper at {self._hosts} does not answer: {error!r}; see its log") from None
        return found

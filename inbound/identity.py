"""Who this consumer is, and proof that nobody else on this machine is the same."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from pathlib import Path

from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.paths import path_part
from inbound.errors import ConsumerIdTakenError


def random_consumer_id() -> str:
    """Return host-pid-random: no two live processes have the same."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class IdLock:
    """A lock file held for as long as the process lives; the kernel lets go of it however the process ends.

    With it, a restarted process knows that its predecessor is dead, and takes over at once instead of waiting for the
    session to expire.
    """

    def __init__(self, directory: Path, group: str, consumer_id: str) -> None:
        """Take the lock.

        Raises:
            ConsumerIdTakenError: a live process on this machine holds it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{path_part(group, 'group')}--{path_part(consumer_id, 'consumer id')}.lock"
        self._file = open(self.path, "a+b")  # noqa: SIM115 - held until close
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConsumerIdTakenError(
                f"consumer id {consumer_id!r} of group {group!r} is in use by another live process on this machine (it "
                f"holds {self.path}); stop that one, or give this one another consumer_id"
            ) from None
        stat = os.fstat(self._file.fileno())
        self.token = f"{_boot_id()}:{stat.st_dev}:{stat.st_ino}"

    def proves_dead(self, info: MemberInfo) -> bool:
        """Whether the process that wrote `info` held this very file, which we hold now."""
        return info.lock == self.token

    def close(self) -> None:
        self._file.close()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()

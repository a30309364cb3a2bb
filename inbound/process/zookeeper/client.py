"""Makes the ZooKeeper client, and checks access rights of nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inbound.clock import Clock
from inbound.config import ZooKeeperConfig
from inbound.config.secrets import remember
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.controller.zookeeper_access import Access, Secret, Tls
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.errors import ConfigError, InboundError, TransientError, ZkDeniedError

log = logging.getLogger(__name__)


def zookeeper_client(
    settings: ZooKeeperConfig,
    clock: Clock,
    *,
    former_password: Path | None = None,
    on_change: Callable[[], None] = lambda: None,
) -> KazooZooKeeper:
    """Return a client; `start` connects it.

    `former_password` is the file of its user's last password. `on_change` is called, on any thread, whenever the
    connection changes.

    Raises:
        ConfigError: a file that it names cannot be used, or a library is not installed.
    """
    access = zookeeper_access(settings)
    if former_password is not None:
        access = replace(access, former_password=_reader(former_password, "--former-password-file"))
    access.check()
    return KazooZooKeeper(
        settings.hosts,
        chroot=settings.chroot,
        session_timeout=settings.session_timeout,
        clock=clock,
        access=access,
        on_change=on_change,
    )


def zookeeper_access(settings: ZooKeeperConfig) -> Access:
    """Return the client's credentials; their files are read at each connect."""
    auth, tls = settings.auth, settings.tls
    acl = settings.acl or ("open" if auth is None else "creator")
    encryption = None
    if tls is not None:
        passphrase = tls.key_password_file
        encryption = Tls(
            ca=tls.ca_file,
            cert=tls.cert_file,
            key=tls.key_file,
            key_password=_reader(passphrase, "zookeeper.tls.key_password_file") if passphrase is not None else None,
            verify_hostname=tls.verify_hostname,
        )
    if auth is None:
        if tls is not None and tls.cert_file is not None and settings.acl is None:
            log.warning(
                "zookeeper: we show a certificate, and yet everybody may change the nodes that are made; set zookeeper.acl to "
                "creator if the servers know us by it, or to open if that is meant"
            )
        return Access(tls=encryption, acl=acl)
    return Access(
        scheme=auth.scheme,
        user=auth.user,
        password=_reader(auth.password_file, "zookeeper.auth.password_file"),
        password_place=f"zookeeper.auth.password_file {auth.password_file}",
        tls=encryption,
        acl=acl,
    )


def _reader(path: Path, key: str) -> Secret:
    def read() -> str:
        try:
            password = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(f"{key}: {path} cannot be read: {reason}") from None
        if not password or not password.isprintable():
            raise ConfigError(f"{key}: {path} must hold the password, on one line")
        remember(password)
        return password

    return read


# -- access rights of nodes --------------------------------------------------------------------------------------------

#: Requests in flight at a time.
_AT_ONCE = 64
#: Seconds between tries of the first look, and until the next one after ZooKeeper did not answer.
_LOOK, _AGAIN = 0.5, 5.0
#: At a start only the group, its folders and those of its topics are checked: nodes of partitions are many, and have the
#: same owner as these.
_FIRST_LOOK = 3


@dataclass(frozen=True)
class NodeRights:
    """The access rights of nodes, as a look found them."""

    looked_at: int
    differ: tuple[str, ...]  # readable, with other access rights than configured
    closed: tuple[str, ...]  # not readable for us


async def look(zk: KazooZooKeeper, roots: Collection[str], *, levels: int | None = None) -> NodeRights:
    """Check nodes from `roots` down. Raises TransientError: ZooKeeper does not answer."""
    differ: list[str] = []
    closed: list[str] = []
    count = 0
    level = list(dict.fromkeys(roots))
    while level:
        below: list[str] = []
        for some in _portions(level):
            calls = [(path, zk.differs(path), zk.children(path)) for path in some]
            for path, differs, children in calls:
                try:
                    found = await differs
                    names = await children or []
                except ZkDeniedError:
                    closed.append(path)
                    count += 1
                    continue
                count += found is not None
                if found:
                    differ.append(path)
                below += [f"{path.rstrip('/')}/{name}" for name in names]
        levels = None if levels is None else levels - 1
        level = below if levels != 0 else []
    return NodeRights(count, tuple(differ), tuple(closed))


async def correct(zk: KazooZooKeeper, paths: Sequence[str]) -> None:
    """Give nodes the configured access rights, children before their parents.

    Raises:
        ZkDeniedError: ZooKeeper refuses one; those before it are done.
        TransientError: ZooKeeper does not answer; doing it again is safe.
    """
    for some in _portions(sorted(paths, key=lambda path: -path.count("/"))):
        for call in [zk.correct(path) for path in some]:
            await call


def roots_of(groups: Iterable[str]) -> list[str]:
    """Return the roots of the groups' own nodes."""
    return [GroupPaths(group).root for group in sorted(set(groups))]


async def tell(zk: KazooZooKeeper, tasks: Tasks, groups: Callable[[], Iterable[str]]) -> None:
    """Log groups whose nodes have other rights than configured, once connected."""
    if not zk.closes_nodes:
        return
    while zk.connection is None:
        await tasks.sleep(_LOOK)
    for group in sorted(set(groups())):
        while True:
            try:
                found = await look(zk, roots_of([group]), levels=_FIRST_LOOK)
            except TransientError:
                await tasks.sleep(_AGAIN)
                continue
            except InboundError as error:
                log.warning("group %s: who may use its nodes cannot be looked at: %s", group, error)
            else:
                _tell(group, found)
            break


def _tell(group: str, found: NodeRights) -> None:
    if found.differ:
        log.warning(
            "group %s: %d of %d folders in ZooKeeper have other access rights than zookeeper.acl asks for, such as %s: they "
            "were made before it did; `inbound acl --apply` corrects them",
            group, len(found.differ), found.looked_at, found.differ[0],
        )  # fmt: skip
    if found.closed:
        log.warning(
            "group %s: %d of its nodes in ZooKeeper are closed to us, such as %s: another user made them; see "
            "docs/security-zookeeper.md",
            group, len(found.closed), found.closed[0],
        )  # fmt: skip


def _portions(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[begin : begin + _AT_ONCE] for begin in range(0, len(paths), _AT_ONCE))

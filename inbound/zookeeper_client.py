"""The ZooKeeper client that a configuration describes: the one place that makes one."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from inbound.clock import Clock
from inbound.config import ZooKeeperConfig
from inbound.config.known_secrets import remember
from inbound.controller.kazoo_zk import KazooZooKeeper
from inbound.controller.zookeeper_access import Access, Secret, Tls
from inbound.errors import ConfigError

log = logging.getLogger(__name__)


def zookeeper_client(settings: ZooKeeperConfig, clock: Clock, *, former_password: Path | None = None) -> KazooZooKeeper:
    """Return a client; `start` connects it. `former_password` is the file of one that its user had before.

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
    )


def zookeeper_access(settings: ZooKeeperConfig) -> Access:
    """Return how the client connects and logs in; files are read whenever it does."""
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

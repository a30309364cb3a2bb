"""How a client shows ZooKeeper who it is, and who may use the nodes that it makes: the one place that decides both."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kazoo.security import ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions, make_digest_acl_credential

from inbound.errors import ConfigError

#: Returns a secret as it is now. Raises ConfigError where it cannot be read.
Secret = Callable[[], str]

_REREAD = "it is read again at the next attempt"


def _none() -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """PEM files of a connection, read at each handshake; see `inbound.config.ZooKeeperConfig`."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    key_password: Secret | None = field(default=None, repr=False)
    verify_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Return what a handshake needs; it verifies.

        Raises:
            ConfigError: a file cannot be used; which, and why.
        """
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"zookeeper.tls.ca_file: {self.ca} cannot be used: {_why(error)}; need certificates as PEM; {_REREAD}"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.verify_hostname
        if self.cert is not None:
            password = self.key_password() if self.key_password is not None else ""
            try:
                # A passphrase is always given: without one OpenSSL would ask the terminal.
                context.load_cert_chain(self.cert, self.key, password=password)
            except (OSError, ValueError) as error:
                files = " and ".join(str(path) for path in (self.cert, self.key) if path is not None)
                raise ConfigError(
                    f"zookeeper.tls.cert_file: {files} cannot be used: {_why(error)}; need a certificate and its key as PEM, "
                    f"and key_password_file if the key has a passphrase; {_REREAD}"
                ) from None
        return context


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who a client is, how it connects, and who may use what it makes. The default: nobody, plain, everybody."""

    scheme: Literal["digest", "sasl"] | None = None
    user: str = ""
    password: Secret = field(default=_none, repr=False)
    #: One that it had before, of digest: nodes that were made with it are let in too.
    former_password: Secret | None = field(default=None, repr=False)
    #: Where the password comes from, for messages.
    password_place: str = "zookeeper.auth.password_file"
    tls: Tls | None = None
    acl: Literal["open", "creator", "readable"] = "open"

    @property
    def identity(self) -> str:
        """What messages call our user."""
        if self.scheme is not None:
            return f"user {self.user} ({self.scheme})"
        shown = self.tls.cert if self.tls is not None else None
        return f"the certificate {shown}" if shown is not None else "a client without a user"

    def check(self) -> None:
        """Read everything once. Raises ConfigError if something cannot be used."""
        self.password()
        if self.tls is not None:
            self.tls.context()

    def node_acl(self, password: str) -> list[ACL]:
        """Return what every node gets that is made by who showed `password`."""
        if self.acl == "open":
            return list(OPEN_ACL_UNSAFE)
        if self.scheme == "digest":
            creator = Id("digest", make_digest_acl_credential(self.user, password))
        elif self.scheme == "sasl":
            creator = Id("sasl", self.user)
        else:
            creator = Id("auth", "")  # whom the server knows by the certificate
        mine = [ACL(Permissions.ALL, creator)]
        return [*mine, *READ_ACL_UNSAFE] if self.acl == "readable" else mine


#: Nobody in particular, on plain connections; what is made is everybody's.
OPEN = Access()


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is no PEM"
    return getattr(error, "strerror", None) or str(error)

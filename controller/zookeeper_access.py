"""TLS, credentials and access rights of nodes for a ZooKeeper client."""

from __future__ import annotations

import contextlib
import importlib.util
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kazoo.exceptions import (
    AuthFailedError,
    InvalidACLError,
    NoAuthError,
    SASLException,
    SessionClosedRequireSaslError,
)
from kazoo.protocol import serialization as wire
from kazoo.security import (
    ACL,
    ANYONE_ID_UNSAFE,
    OPEN_ACL_UNSAFE,
    READ_ACL_UNSAFE,
    Id,
    Permissions,
    make_digest_acl_credential,
)

from inbound.errors import ConfigError

#: Returns a secret as it is now. Raises ConfigError if it cannot be read.
Secret = Callable[[], str]

_REREAD = "it is read again at the next attempt"


@dataclass(frozen=True, kw_only=True)
class Tls:
    """PEM files of a connection, read at each handshake (`inbound.config.ZooKeeperConfig`)."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    key_password: Secret | None = field(default=None, repr=False)
    verify_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that verifies the server.

        Raises:
            ConfigError: a file cannot be used; the message says which, and why.
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
    """Identity, TLS and access rights of a client. The default has none."""

    scheme: Literal["digest", "sasl"] | None = None
    user: str = ""
    password: Secret = field(default=str, repr=False)  # none: empty
    #: Its previous password, of digest: nodes that were made with it stay accessible.
    former_password: Secret | None = field(default=None, repr=False)
    #: Where the password comes from, for messages.
    password_place: str = "zookeeper.auth.password_file"
    tls: Tls | None = None
    acl: Literal["open", "creator", "readable"] = "open"

    @property
    def identity(self) -> str:
        """The name of our user in messages."""
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
        """Return the access rights of nodes that a client with `password` makes."""
        if self.acl == "open":
            return list(OPEN_ACL_UNSAFE)
        if self.scheme == "digest":
            creator = Id("digest", make_digest_acl_credential(self.user, password))
        elif self.scheme == "sasl":
            creator = Id("sasl", self.user)
        else:
            creator = Id("auth", "")  # the server knows us by the certificate
        mine = [ACL(Permissions.ALL, creator)]
        return [*mine, *READ_ACL_UNSAFE] if self.acl == "readable" else mine


#: No user, on plain connections; nodes are open to all.
OPEN = Access()


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is no PEM"
    return getattr(error, "strerror", None) or str(error)


#: ZooKeeper's number (xid) of a log-in.
_AUTH_XID = -4

_ALERTS = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_EXPIRED", "CERTIFICATE_UNKNOWN")


class KazooSecurity:
    """Encrypts, authenticates and explains; on kazoo's connection thread, except `acl`."""

    def __init__(self, access: Access) -> None:
        """Raises ConfigError: the library for SASL is not installed."""
        if access.scheme == "sasl" and importlib.util.find_spec("puresasl") is None:
            raise ConfigError(
                "zookeeper.auth.scheme sasl: pure-sasl is not installed; pip install 'inbound-kafka[zookeeper-sasl]'"
            )
        self.access = access
        self._shown: str | None = None  # the password of the last attempt
        #: Access rights of nodes that are made from now on.
        self.acl: list[ACL] = []

    # -- connecting --------------------------------------------------------------------------------------------------

    def encrypt(self, connection: Any, host: str) -> Any:
        """Return `connection` with TLS. Its time-out bounds the handshake.

        Raises:
            ConfigError: our files cannot be used.
            OSError: the handshake failed; the connection is closed.
        """
        assert self.access.tls is not None
        try:
            return self.access.tls.context().wrap_socket(connection, server_hostname=host)
        except BaseException:
            connection.close()
            raise

    def begin(self) -> dict[str, str] | None:
        """Read the password for one attempt; return kazoo's options for SASL."""
        password = self._shown = self.access.password()
        self.acl = self.access.node_acl(password)
        if self.access.scheme != "sasl":
            return None
        return {"mechanism": "DIGEST-MD5", "username": self.access.user, "password": password}

    def log_in(self, invoke: Callable[[Any, int], Any]) -> None:
        """Send digest credentials with `invoke`, which returns the answer."""
        if self.access.scheme == "digest":
            former = [self.access.former_password()] if self.access.former_password is not None else []
            for password in (*former, self._shown):
                invoke(wire.Auth(0, "digest", f"{self.access.user}:{password}"), _AUTH_XID)

    def differs(self, acl: list[ACL]) -> bool:
        """Return whether `acl` names another user, or opens the node wider."""
        if self.access.acl == "open" or self.access.scheme is not None:
            return set(acl) != set(self.acl)
        # By certificate we do not know our own name; compare the rights of all users.
        of_all = {(one.perms, one.id) for one in acl if one.id == ANYONE_ID_UNSAFE}
        return (
            of_all != {(one.perms, one.id) for one in self.acl if one.id == ANYONE_ID_UNSAFE} or acl == OPEN_ACL_UNSAFE
        )

    def outdated(self) -> bool:
        """Return whether the password has changed since the last attempt."""
        with contextlib.suppress(ConfigError):
            return self._shown is not None and self.access.password() != self._shown
        return False

    def select(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Return `select` for TLS sockets, made of the plain one."""

        def select(rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
            waiting = [one for one in rlist if isinstance(one, ssl.SSLSocket) and one.pending()]
            readable, writable, odd = plain(rlist, wlist, xlist, 0 if waiting else timeout)
            return [*readable, *(one for one in waiting if one not in readable)], writable, odd

        return select

    # -- words -------------------------------------------------------------------------------------------------------

    def explain(self, error: BaseException, *, session: bool) -> str:
        """Return why an attempt to connect failed, and what to do.

        `session`: the server had given one already.
        """
        access = self.access
        tls_error = _tls_error(error)
        if tls_error is not None:
            return _of_tls(tls_error)
        text = str(error) or type(error).__name__
        if isinstance(error.__context__, TimeoutError):
            return "it takes connections, and does not answer in time"
        if isinstance(error, (AuthFailedError, SASLException, SessionClosedRequireSaslError)):
            if access.scheme is None:
                return "the server asks every client to log in; set zookeeper.auth"
            if access.scheme == "digest":
                return "the server takes no log-in by digest; see zookeeper.auth.scheme"
            return (
                f"log-in of {access.identity} refused: wrong user or password (correct zookeeper.auth.user, or "
                f"{access.password_place}, which is read at each attempt), or the server does not offer DIGEST-MD5 "
                "(it needs -Dzookeeper.fips-mode=false from 3.9 on)"
            )
        if isinstance(error, InvalidACLError):
            return f"the server knows no users by {access.scheme or 'certificate'}; see zookeeper.auth.scheme and zookeeper.acl"
        if isinstance(error, NoAuthError):
            return f"{access.identity} may not use zookeeper.chroot; {self.denied()}"
        if not session and ("connection broken" in text or "Connection reset" in text):
            if access.tls is None:
                return f"{text}: closed before a session was given; if this port is for TLS, set zookeeper.tls"
            return (
                f"{text}: closed before a session was given; if certificates are asked for, see zookeeper.tls.cert_file"
            )
        return text

    def denied(self) -> str:
        """Return what to do if our user may not use a node."""
        tls = self.access.tls
        if self.access.scheme is None and (tls is None or tls.cert is None):
            return "its creator had logged in; set zookeeper.auth, or free it: docs/security-zookeeper.md"
        place = "zookeeper.tls.cert_file" if self.access.scheme is None else "zookeeper.auth.user"
        if self.access.scheme == "digest":  # any password logs in: a wrong one is a stranger
            place += f" and {self.access.password_place} (a wrong password shows only here; it is read again when it changes)"
        return f"check {place}, or let it in where another made the nodes: docs/security-zookeeper.md"


def _tls_error(error: BaseException | None) -> BaseException | None:
    """Return the TLS error among an error and its causes."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLWantReadError, ssl.SSLWantWriteError)):
            return error
        error = error.__cause__ or error.__context__
    return None


def _of_tls(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        match error.verify_code:
            case 10:
                return f"the server's {why}; it has to be renewed there"
            case 62 | 64:
                return f"{why}: name servers in zookeeper.hosts as their certificates do, or have them renewed"
            case _:
                return f"the server's certificate is not trusted: {why}; see zookeeper.tls.ca_file"
    reason = getattr(error, "reason", None) or str(error)
    if any(alert in reason for alert in _ALERTS):
        return f"the server refused our certificate ({reason}); see zookeeper.tls.cert_file"
    if "EOF" in reason or reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return f"the server ended the TLS handshake ({reason}); is this its port for TLS (secureClientPort)?"
    return f"TLS: {reason}"

"""The ZooKeeper ensemble: servers, TLS and authentication."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from inbound.config.units import shown
from inbound.config.values import (
    SecretFile,
    StrictModel,
    duration,
    flag,
    path_part,
    refuse,
    split_address,
    text,
    text_that,
    wrong,
)

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


def _is_user(name: str) -> bool:
    return bool(name) and name.isprintable() and not set(name) & set(': "\\,')


def _mechanism(value: Any) -> str:
    name = text(value).upper()
    if name == "GSSAPI":
        raise wrong("GSSAPI (Kerberos) is not supported; use DIGEST-MD5 over TLS, or a client certificate")
    return name


class ZooKeeperAuthConfig(StrictModel):
    """The user that inbound authenticates as to ZooKeeper."""

    scheme: Literal["digest", "sasl"] = Field(
        description="digest: ZooKeeper's own scheme, which never refuses a password, only access to nodes; sasl: the server "
        "checks the password (needs `inbound-kafka[zookeeper-sasl]`)."
    )
    user: Annotated[
        str, text_that(_is_user, "the name of a user, without blanks, colons, commas, quotes and backslashes")
    ] = Field(description="The user's name.")
    password_file: SecretFile = Field(
        description="File with the password: its text without the line end. Relative to the working directory; read again "
        "at each connection, and when it has changed."
    )
    mechanism: Annotated[Literal["DIGEST-MD5"], BeforeValidator(_mechanism)] = Field(
        default="DIGEST-MD5", description="The SASL mechanism."
    )


class ZooKeeperTlsConfig(StrictModel):
    """TLS to ZooKeeper; files are PEM, and read again at each connection."""

    ca_file: SecretFile | None = Field(
        default=None,
        description="Authorities of the servers' certificates; default: those that the system trusts.",
    )
    cert_file: SecretFile | None = Field(
        default=None, description="The client's certificate, with the intermediate ones; default: none is shown."
    )
    key_file: SecretFile | None = Field(
        default=None, description="The certificate's key; default: it is in `cert_file` too."
    )
    key_password_file: SecretFile | None = Field(
        default=None, description="File with the passphrase of the key; default: the key has none."
    )
    verify_hostname: Annotated[bool, BeforeValidator(flag)] = Field(
        default=True, description="Whether each server's certificate must be for the server's name in `hosts`."
    )

    @model_validator(mode="after")
    def _check(self) -> ZooKeeperTlsConfig:
        refuse(
            "ZooKeeperTlsConfig",
            *(
                (getattr(self, key) is not None and self.cert_file is None, key, "needs cert_file beside it")
                for key in ("key_file", "key_password_file")
            ),
        )
        return self


class ZooKeeperConfig(StrictModel):
    """The ensemble that coordinates the channels."""

    hosts: Annotated[str, BeforeValidator(_hosts)] = Field(
        default="127.0.0.1:2181", description="Servers as host:port, with commas between several."
    )
    chroot: Annotated[str, BeforeValidator(_chroot)] = Field(
        default="", description="Path under which all nodes are kept; empty for the root."
    )
    session_timeout: Annotated[float, duration(1, _LONGEST_SESSION)] = Field(
        default=10.0,
        description="A process that loses contact for this time loses its partitions; the server may bound the time.",
    )
    auth: ZooKeeperAuthConfig | None = Field(
        default=None, description="The user that inbound authenticates as to ZooKeeper; default: no authentication."
    )
    tls: ZooKeeperTlsConfig | None = Field(
        default=None, description="TLS, on the servers' port for it (secureClientPort); default: none."
    )
    acl: Literal["open", "creator", "readable"] | None = Field(
        default=None,
        description="Access to the nodes that inbound creates: everybody (open), only its own user (creator), or its own user "
        "while others may read (readable). Default: creator with `auth`, else open.",
    )

    @model_validator(mode="after")
    def _check(self) -> ZooKeeperConfig:
        shows_who = self.auth is not None or (self.tls is not None and self.tls.cert_file is not None)
        refuse(
            "ZooKeeperConfig",
            (
                self.acl in ("creator", "readable") and not shows_who,
                "acl",
                "needs zookeeper.auth, or zookeeper.tls.cert_file: without one there is no creator to name",
            ),
        )
        return self

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that a connection depends on."""
        auth = () if self.auth is None else (self.auth.password_file,)
        tls = self.tls
        more = () if tls is None else (tls.ca_file, tls.cert_file, tls.key_file, tls.key_password_file)
        return tuple(path for path in (*auth, *more) if path is not None)

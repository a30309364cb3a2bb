"""The HTTP listener for health, status, metrics and operations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from inbound.config.units import shown
from inbound.config.values import (
    HostName,
    ListenAddress,
    Listening,
    Part,
    SecretFile,
    entries,
    secret_file,
    text,
    wrong,
)


def _file(value: Any) -> Path | None:
    if value is None:
        return None
    given = str(value) if isinstance(value, Path) else text(value)
    if not given.strip() or not given.isprintable():
        raise wrong(f"need the path of a file, got {shown(given)}")
    return Path(given)


class AdminTlsConfig(Part):
    """HTTPS instead of HTTP; PEM files, relative to the working directory, read again when they change."""

    cert_file: SecretFile = Field(description="Our certificate, with those between it and the authority's.")
    key_file: SecretFile | None = Field(
        default=None, description="Its key, without passphrase; default: it stands in `cert_file` too."
    )
    client_ca_file: SecretFile | None = Field(
        default=None,
        description="Who signs the certificates of clients. Whoever shows one may operate, without a token too; reading needs "
        "none, but one that is shown must be good.",
    )


class AdminConfig(Listening):
    """The HTTP listener for health, status, metrics and operations."""

    listen: ListenAddress = Field(
        default="127.0.0.1:8081",
        description="Address and port; if the default port is taken the next free one is used, if a given one is taken "
        "the start fails. Port 0 is any free one.",
    )

    hosts: Annotated[tuple[HostName, ...], BeforeValidator(entries)] = Field(
        default=(),
        description="Names, besides addresses, localhost and the host's own, by which this port, and that of profiles, may be "
        "asked: what stands in the header Host. A browser that is led here by another name is refused.",
    )

    token_file: Annotated[Path | None, BeforeValidator(secret_file)] = Field(
        default=None,
        description="File with the token that operations by POST need; on an address that other machines can reach none "
        "is done without. Relative to the working directory; read again at each operation.",
    )

    policy: Annotated[Path | None, BeforeValidator(_file)] = Field(
        default=None,
        description="File that says what may be asked for under `/jmx` and `/jolokia`, and from where; without one everything. "
        "Relative to the working directory; read again when it changes.",
    )

    tls: AdminTlsConfig | None = Field(default=None, description="HTTPS instead of HTTP; default: HTTP.")

    @property
    def given(self) -> bool:
        """True if somebody set `listen`, so that no other port may be taken in its place."""
        return "listen" in self.model_fields_set

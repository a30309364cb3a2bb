"""Listeners' certificates may change while the process runs."""

from __future__ import annotations

import hashlib
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from inbound.config import AdminTlsConfig, TlsConfig
from inbound.errors import ConfigError

#: Seconds between two checks of the files, at least, when clients connect.
LOOK_EVERY = 1.0


class PemFiles(NamedTuple):
    """The files of a listener, and whether clients must show a certificate."""

    section: str  # of the configuration
    cert: Path
    key: Path | None
    client_ca: Path | None
    asks: ssl.VerifyMode
    names: tuple[str, str] = ("cert_file", "client_ca_file")

    @classmethod
    def of_admin(cls, config: AdminTlsConfig, section: str = "admin") -> PemFiles:
        """Return the files of a listener with optional client certificates.

        Probes and scrapers have none.
        """
        return cls(section, config.cert_file, config.key_file, config.client_ca_file, ssl.CERT_OPTIONAL)

    @classmethod
    def of_ingress(cls, config: TlsConfig) -> PemFiles:
        return cls("ingress", config.cert, config.key, config.client_ca, ssl.CERT_REQUIRED, ("cert", "client_ca"))


class Certificates:
    """A listener's certificates, with the current contents of their files.

    A mounted secret changes by a link that points elsewhere, so the contents count. Files that cannot be used change nothing:
    the log has one line, and the former certificates stay. One thread.
    """

    def __init__(
        self,
        files: PemFiles,
        log: logging.Logger,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError: a file cannot be used."""
        self._files = files
        self._section = files.section
        self._log = log
        self._now = now
        self._looked = now()
        self._seen = self._digest()
        self._context = self._made()

    @property
    def context(self) -> ssl.SSLContext:
        """The context of the next connection."""
        now = self._now()
        if now >= self._looked + LOOK_EVERY:
            self._looked = now
            digest = self._digest()
            if digest != self._seen:
                self._seen = digest
                try:
                    self._context = self._made()
                except ConfigError as error:
                    self._log.error("%s: the certificate stays as it was: %s", self._section, error)
                else:
                    self._log.info("%s: the certificate has changed", self._section)
        return self._context

    def _digest(self) -> bytes:
        found = hashlib.sha256()
        for path in (self._files.cert, self._files.key, self._files.client_ca):
            try:
                content = path.read_bytes() if path is not None else b""
            except OSError as error:
                content = f"? {error.errno}".encode()
            found.update(b"%d %b" % (len(content), content))
        return found.digest()

    def _made(self) -> ssl.SSLContext:
        files = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(files.cert, files.key, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise self._unusable(files.names[0], files.cert, f"{error} (with its key)") from None
        if files.client_ca is not None:
            try:
                context.load_verify_locations(files.client_ca)
            except (OSError, ValueError) as error:
                raise self._unusable(files.names[1], files.client_ca, str(error)) from None
            context.verify_mode = files.asks
        return context

    def _unusable(self, key: str, path: Path, reason: str) -> ConfigError:
        return ConfigError(
            f"{self._section}.tls.{key}: {path} cannot be used: {reason}; give a PEM file, its key without passphrase"
        )


def name_of(connection: ssl.SSLObject) -> str | None:
    """Return the subject of the peer's verified certificate; None: it showed none."""
    certificate: Mapping[str, Any] | None = connection.getpeercert()
    if not certificate:
        return None
    parts = [pair for relative in certificate.get("subject", ()) for pair in relative]
    return ", ".join(f"{name}={value}" for name, value in parts) or "(no name)"


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")

"""TLS of the admin port: certificates that may change while the process runs, and whom a client's certificate names."""

from __future__ import annotations

import hashlib
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inbound.config import AdminTlsConfig
from inbound.errors import ConfigError

#: How often the files are looked at, when somebody connects. Seconds.
LOOK_EVERY = 1.0


class Certificates:
    """What connections are encrypted with, as the files have it now. For one thread; `now` is a clock in seconds.

    A mounted secret changes by a link that points elsewhere, so what the files hold counts. Files that cannot be used change
    nothing: the log says so once, and what was good goes on.
    """

    def __init__(
        self,
        config: AdminTlsConfig,
        log: logging.Logger,
        now: Callable[[], float] = time.monotonic,
        section: str = "admin",
    ) -> None:
        """`section` of the configuration has `config` in it. Raises ConfigError: a file cannot be used."""
        self._config = config
        self._section = section
        self._log = log
        self._now = now
        self._looked = now()
        self._seen = self._digest()
        self._context = self._made()

    @property
    def context(self) -> ssl.SSLContext:
        """What the next connection is encrypted with."""
        now = self._now()
        if now >= self._looked + LOOK_EVERY:
            self._looked = now
            digest = self._digest()
            if digest != self._seen:
                self._seen = digest
                try:
                    self._context = self._made()
                except ConfigError as error:
                    self._log.error("%s: the certificate stays what it was: %s", self._section, error)
                else:
                    self._log.info("%s: the certificate has changed", self._section)
        return self._context

    def _digest(self) -> bytes:
        found = hashlib.sha256()
        for path in (self._config.cert_file, self._config.key_file, self._config.client_ca_file):
            try:
                content = path.read_bytes() if path is not None else b""
            except OSError as error:
                content = f"? {error.errno}".encode()
            found.update(b"%d %b" % (len(content), content))
        return found.digest()

    def _made(self) -> ssl.SSLContext:
        config = self._config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(config.cert_file, config.key_file, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise self._unusable("cert_file", config.cert_file, f"{error} (with its key)") from None
        if config.client_ca_file is not None:
            try:
                context.load_verify_locations(config.client_ca_file)
            except (OSError, ValueError) as error:
                raise self._unusable("client_ca_file", config.client_ca_file, str(error)) from None
            # Probes and scrapers may read without; a certificate that is shown has to be a good one.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _unusable(self, key: str, path: Path, reason: str) -> ConfigError:
        return ConfigError(
            f"{self._section}.tls.{key}: {path} cannot be used: {reason}; give a PEM file, its key without passphrase"
        )


def name_of(connection: ssl.SSLSocket) -> str | None:
    """Return whom the verified certificate of the other side names; None if it showed none."""
    certificate: Mapping[str, Any] | None = connection.getpeercert()
    if not certificate:
        return None
    parts = [pair for relative in certificate.get("subject", ()) for pair in relative]
    return ", ".join(f"{name}={value}" for name, value in parts) or "(no name)"


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")

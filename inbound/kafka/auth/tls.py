"""TLS contexts of Python's own `ssl`: trusted authorities, and our certificate."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from inbound.errors import ConfigError
from inbound.kafka.auth.access import read


def uses_tls(resolved: Mapping[str, Any]) -> bool:
    """Whether connections to brokers are encrypted."""
    return str(resolved.get("security.protocol", "PLAINTEXT")).endswith("SSL")


def context(resolved: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context for resolved properties.

    It checks host names unless `ssl.endpoint.identification.algorithm` is empty.

    Raises:
        ConfigError: certificates or keys cannot be used.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = resolved.get("ssl.endpoint.identification.algorithm", "https") == "https"
    trust(made, resolved)
    password = str(resolved.get("ssl.key.password", ""))
    name = "ssl.keystore.location"
    try:
        if name in resolved:
            read(name, Path(str(resolved[name])))  # so that its error has the same words as for other files
            made.load_cert_chain(str(resolved[name]), password=lambda: password)
        elif "ssl.keystore.key" in resolved or "ssl.keystore.certificate.chain" in resolved:
            name = "ssl.keystore.key"
            pem = f"{resolved.get(name, '')}\n{resolved.get('ssl.keystore.certificate.chain', '')}\n"
            with _as_file(pem) as path:
                made.load_cert_chain(path, password=lambda: password)
        if "ssl.cipher.suites" in resolved:
            name = "ssl.cipher.suites"
            made.set_ciphers(str(resolved[name]))
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(f"kafka.{name}: {_why(error, name, encrypted=bool(password))}") from None
    return made


def trust(made: ssl.SSLContext, resolved: Mapping[str, Any]) -> None:
    """Let a context trust the configuration's authorities, else the system's.

    Raises:
        ConfigError: the authorities cannot be read.
    """
    for name in ("ssl.truststore.certificates", "ssl.truststore.location"):
        if name in resolved:
            value = str(resolved[name])
            text = read(name, Path(value)) if name.endswith("location") else value
            try:
                made.load_verify_locations(cadata=text)
            except (ssl.SSLError, ValueError):
                where = f"{value} holds" if name.endswith("location") else "holds"
                raise ConfigError(f"kafka.{name}: {where} no certificates in PEM") from None
            return
    made.load_default_certs()


def _why(error: Exception, name: str, *, encrypted: bool) -> str:
    if name == "ssl.cipher.suites":
        return "names no cipher suite that OpenSSL knows"
    reason = str(getattr(error, "reason", None) or error)
    if "KEY_VALUES_MISMATCH" in reason:
        return "the key does not belong to the certificate"
    if any(said in reason for said in ("BAD_DECRYPT", "BAD_PASSWORD", "PASSWORD", "CIPHERFINAL", "PKCS12")):
        return f"the key cannot be decrypted; check ssl.key.password{'' if encrypted else ', which is not set'}"
    return "need one private key and its certificates, in PEM"


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield the path of a file with `text`, in memory where possible."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("inbound-key")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:  # with mode 0600
        file.write(text)
        file.flush()
        yield file.name

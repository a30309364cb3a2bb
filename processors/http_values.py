"""Values of options about HTTP: headers that stand in files, and what TLS needs; the rest is in `config/http_values.py`."""

from __future__ import annotations

import ssl
from pathlib import Path

from inbound.config.http_values import (
    AUDIENCE,
    HEADER_VALUE,
    HeaderFile,
    audience,
    audience_file,
    certificates,
    header_globs,
    header_names,
    header_value,
    http_url,
)
from inbound.config.known_secrets import remember
from inbound.errors import ConfigError
from inbound.short_files import read_short

__all__ = [
    "AUDIENCE",
    "DISPATCHED",
    "HEADER_VALUE",
    "HeaderFile",
    "audience",
    "audience_file",
    "certificates",
    "header_globs",
    "header_names",
    "header_text",
    "header_value",
    "http_url",
    "line_in",
    "tls_context",
]


#: Goes with every request that a subscription sends. Our own admin ports refuse whatever has it: else who may name a
#: subscriber could have this process ask for operations, from an address that is let in. The ingress takes it.
DISPATCHED = "inbound-dispatched"
#: A header's value that stands in a file is no longer, in bytes: no receiver would take it.
LONGEST_LINE = 64 * 1024


def header_text(who: str, name: str, value: str | HeaderFile) -> str:
    """Return a header's value, read from its file if it stands in one. Raises ConfigError, in the name of `who`."""
    return value if isinstance(value, str) else line_in(value.file, f"{who}: header {name}", "file")


def line_in(file: Path, what: str, option: str) -> str:
    """Return the line that a file holds, which no log shows from now on. Raises ConfigError: it begins with `what`."""
    try:
        read = read_short(file, LONGEST_LINE).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        raise ConfigError(f"{what}: cannot read {file} ({reason}): correct the file, or `{option}`") from None
    if not HEADER_VALUE(read):
        raise ConfigError(f"{what}: {file} must hold one line of printable ASCII; correct it")
    remember(read)
    return read


def tls_context(who: str, ca_file: Path | None, client_cert: Path | None, client_key: Path | None) -> ssl.SSLContext:
    """Return a context that uses these PEM files. Raises ConfigError, in the name of `who`: one cannot be used."""
    name, path = "ca_file", ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
        if client_cert:
            name, path = "client_cert", client_cert
            # With an empty passphrase: else OpenSSL would ask for one on the terminal.
            context.load_cert_chain(client_cert, client_key, password="")
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or error
        raise ConfigError(f"{who}: {name}: cannot use {path} ({reason}): correct the file, or `{name}`") from None
    return context

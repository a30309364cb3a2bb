"""Chooses the headers passed on with an event; reads header files.

The configuration lists globs of names. Headers of one connection, of one message, or of the sender's rights are never passed
on: the next receiver would act on them.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from inbound.config.http_values import HEADER_NAME, HEADER_VALUE, HeaderFile
from inbound.config.secrets import is_secret_option, remember
from inbound.errors import ConfigError
from inbound.runtime.patterns import glob
from inbound.runtime.text import read_short

#: Never passed on, even if listed. Names in lower case; those with `proxy-`, `ce-` and the like before them are in `_FAMILIES`.
NEVER: Final = frozenset((
    # of one connection (RFC 9110, 7.6.1)
    "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
    # of one message: its body, its receiver, the wanted answer
    "host", "content-type", "content-length", "content-encoding", "content-range", "expect", "range", "prefer",
    "accept-encoding", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range",
    # that would change the request
    "x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-original-uri", "x-rewrite-url",
    # the sender's identity, which only a proxy may assert
    "forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip", "remote-user",
    "x-remote-user", "x-remote-group", "x-ssl-client-cert", "x-client-cert", "x-forwarded", "client-ip", "fly-client-ip",
    "x-original-forwarded-for", "x-envoy-external-address", "x-envoy-original-path",
    # credentials
    "authorization", "authentication-info", "www-authenticate", "cookie", "cookie2", "set-cookie", "set-cookie2",
    "api-key", "x-api-key", "x-auth-token", "x-access-token", "private-token", "dpop",
))  # fmt: skip
#: Prefixes of such names. `inbound-` is ours: `inbound-dispatched` makes admin ports refuse a request.
_FAMILIES: Final = (
    "proxy-", "ce-", "knativeerror", "inbound-", "x-forwarded-", "x-remote-extra-", "x-auth-request-", "x-amzn-oidc-",
    "x-ms-client-principal", "sec-",
)  # fmt: skip
#: Names that sound like credentials, beside those of `is_secret_option`: they are passed on only if listed in full.
_SECRET = re.compile(
    r"cookie|jwt|saml|session-?id|(api|access|account|auth|functions|master|private|shared|subscription)-?key"
)

#: Passed on to a subscriber by default.
DEFAULT_OUT: Final[tuple[str, ...]] = ("*",)

#: The most headers of an event that are passed on, in their order, and the most bytes of their names and values: receivers
#: refuse a request with a large head, some from 8 KiB or 100 lines on, and the event's attributes are in it, too.
MOST_HEADERS: Final = 64
MOST_BYTES: Final = 4096
#: The most headers of a record or request that are looked at: it can have 100,000, and to judge a name takes microseconds.
MOST_LOOKED_AT: Final = 256
#: A longer name is not passed on.
LONGEST_NAME: Final = 256
#: The most names that are remembered: they come from the network.
_KEPT: Final = 4096

_OTHER = re.compile(r"[^a-z0-9]")


class Forwarding:
    """Decides by name which headers are passed on. Any thread."""

    def __init__(self, patterns: Sequence[str], without: Iterable[str] = ()) -> None:
        """`patterns` are globs without regard to case; without any, nothing passes.

        `without` are names that do not pass: the request has them already.
        """
        self._without = frozenset(_as_read(name) for name in without)
        folded = [pattern.lower() for pattern in patterns]
        self._full = frozenset(pattern for pattern in folded if "*" not in pattern and "?" not in pattern)
        self._globs = [glob(list(pattern)) for pattern in folded if pattern not in self._full]
        self._known: dict[str, bool] = {}

    def passes(self, name: str) -> bool:
        """Tell whether a header of this name, if valid, is passed on."""
        found = self._known.get(name)
        if found is None:
            found = self._decide(name)
            if len(self._known) < _KEPT and len(name) <= LONGEST_NAME:
                self._known[name] = found
        return found

    def _decide(self, name: str) -> bool:
        if len(name) > LONGEST_NAME or not HEADER_NAME(name) or is_never(name) or _as_read(name) in self._without:
            return False
        folded = name.lower()
        if folded in self._full:
            return True
        if is_secret_option(folded) or _SECRET.search(_as_read(folded)):
            return False
        return any(pattern.fullmatch(folded) for pattern in self._globs)


def is_never(name: str) -> bool:
    """Tell whether a header is never passed on, as receivers read it."""
    read = _as_read(name)
    return read in NEVER or read.startswith(_FAMILIES)


def _as_read(name: str) -> str:
    # To many receivers `X_Api_Key` is `x-api-key`.
    return _OTHER.sub("-", name.lower())


#: The most bytes of a header's value in a file: no receiver would accept more.
LONGEST_LINE = 64 * 1024


def header_text(who: str, name: str, value: str | HeaderFile) -> str:
    """Return a header's value, perhaps of a file. Raises ConfigError of `who`."""
    return value if isinstance(value, str) else line_in(value.file, f"{who}: header {name}", "file")


def line_in(file: Path, what: str, option: str) -> str:
    """Return a file's only line, hidden in logs. Raises ConfigError of `what`."""
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
    """Return a context with these PEM files. Raises ConfigError of `who`."""
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

"""Headers that go on beside an event; headers and TLS in files.

The names are matched by globs that the configuration lists. What stands for one connection, for one message, or for the
sender's rights never goes on: the next receiver would act on it.
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
    # of one message: its body, its receiver, and the answer that it asks for
    "host", "content-type", "content-length", "content-encoding", "content-range", "expect", "range", "prefer",
    "accept-encoding", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range",
    # what would make another request of it
    "x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-original-uri", "x-rewrite-url",
    # who the sender is, as a proxy says it: from a record it would be anybody's word
    "forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip", "remote-user",
    "x-remote-user", "x-remote-group", "x-ssl-client-cert", "x-client-cert", "x-forwarded", "client-ip", "fly-client-ip",
    "x-original-forwarded-for", "x-envoy-external-address", "x-envoy-original-path",
    # credentials
    "authorization", "authentication-info", "www-authenticate", "cookie", "cookie2", "set-cookie", "set-cookie2",
    "api-key", "x-api-key", "x-auth-token", "x-access-token", "private-token", "dpop",
))  # fmt: skip
#: The same, by how a name begins. `inbound-` is ours: `inbound-dispatched` keeps what is sent away from the admin ports.
_FAMILIES: Final = (
    "proxy-", "ce-", "knativeerror", "inbound-", "x-forwarded-", "x-remote-extra-", "x-auth-request-", "x-amzn-oidc-",
    "x-ms-client-principal", "sec-",
)  # fmt: skip
#: Names that sound like credentials, beside those of `is_secret_option`: they go on only where the name is listed in full.
_SECRET = re.compile(
    r"cookie|jwt|saml|session-?id|(api|access|account|auth|functions|master|private|shared|subscription)-?key"
)

#: What a subscriber gets of a record.
DEFAULT_OUT: Final[tuple[str, ...]] = ("*",)

#: Of one event at most so many go on, in their order, with so many bytes of names and values together: receivers refuse a
#: request whose head is large, some from 8 KiB or 100 lines on, and the event's attributes are in it, too.
MOST_HEADERS: Final = 64
MOST_BYTES: Final = 4096
#: Of the headers of one record or request so many are looked at: it can have 100,000, and to judge a name takes microseconds.
#: A longer name does not go on.
MOST_LOOKED_AT: Final = 256
LONGEST_NAME: Final = 256
#: Names come from the network: so many are remembered.
_KEPT: Final = 4096

_OTHER = re.compile(r"[^a-z0-9]")


class Forwarding:
    """Says which headers go on, by their names. Any thread."""

    def __init__(self, patterns: Sequence[str], without: Iterable[str] = ()) -> None:
        """`patterns` are globs in which `*` is any text, without regard to case; without any, nothing passes.

        `without` are names that do not pass either: those which a request has already.
        """
        self._without = frozenset(_as_read(name) for name in without)
        folded = [pattern.lower() for pattern in patterns]
        self._full = frozenset(pattern for pattern in folded if "*" not in pattern and "?" not in pattern)
        self._globs = [glob(list(pattern)) for pattern in folded if pattern not in self._full]
        self._known: dict[str, bool] = {}

    def passes(self, name: str) -> bool:
        """Tell whether a header of this name goes on; what cannot be a name in HTTP does not."""
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
    """Tell whether a header of this name never goes on, as receivers may read it."""
    read = _as_read(name)
    return read in NEVER or read.startswith(_FAMILIES)


def _as_read(name: str) -> str:
    """Return a name as receivers may read it: to many `X_Api_Key` is `x-api-key`."""
    return _OTHER.sub("-", name.lower())


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

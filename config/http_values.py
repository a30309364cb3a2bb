"""Values about HTTP: URLs, headers, and headers in files."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

from pydantic import Field
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from inbound.config.values import StrictModel, refuse, text, wrong

#: Headers that the HTTP client sets.
_RESERVED = frozenset({"host", "connection", "content-type", "content-length", "transfer-encoding", "accept-encoding"})
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
#: Names of headers, with `*` for any text and `?` for any character.
HEADER_GLOB = r"[A-Za-z0-9!#$%&'*+.^_`|~?-]{1,256}"
HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?").fullmatch

#: A header of every request of a subscription. Admin ports refuse a request with it: otherwise a subscriber's URL could make
#: this process send operations, from an address that the port trusts. The ingress accepts it.
DISPATCHED = "inbound-dispatched"
#: In `token_file`: the receiver's audience, percent-encoded.
AUDIENCE = "{audience}"


class HeaderFile(StrictModel):
    """A header whose value is in a file."""

    file: Path = Field(description="the file that holds the value, read at the start and when it changes")


def http_url(value: Any) -> str:
    """Check a URL; the error hides it: it may hold a password."""
    url = text(value)
    try:
        parts = parse_url(url)
    except LocationParseError:
        raise wrong("need a URL such as http://host:8080/path") from None
    if parts.scheme not in ("http", "https") or not parts.host or not re.fullmatch(r"[!-~]+", url):
        raise wrong("need a URL of printable ASCII such as http://host:8080/path (http or https)")
    if parts.auth:
        raise wrong("holds a user or password; put them in `headers`: {authorization: {file: path}}")
    if parts.fragment is not None:
        raise wrong("holds a # part, which is never sent; remove it")
    return url


def header_value(value: Any) -> Any:
    """Check a header's value; the error does not show it."""
    if isinstance(value, str):
        if not HEADER_VALUE(value):
            raise wrong("need printable ASCII without blanks at its ends")
        return value
    if isinstance(value, (dict, HeaderFile)):
        return value if isinstance(value, HeaderFile) else HeaderFile.model_validate(value)
    raise wrong("need text in quotes, or {file: path} for a secret")


def header_names(headers: dict[str, Any]) -> dict[str, Any]:
    """Check the names of headers; those that the client sets are refused."""
    own = {name for name in headers if name.lower() in _RESERVED or name.lower().startswith("ce-")}
    refuse(
        "headers",
        *((not HEADER_NAME(name), (name,), "cannot be the name of a header") for name in headers),
        *((name in own, (name,), "is a header that inbound sets itself; remove it") for name in headers),
    )
    return headers


def header_globs(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Check patterns for header names: `*` is any text, `?` one character."""
    need = "need a header's name, or a pattern such as x-b3-*"
    bad = [re.fullmatch(HEADER_GLOB, pattern) is None for pattern in patterns]
    refuse("headers", *((is_bad, (number,), need) for number, is_bad in enumerate(bad)))
    return patterns


def certificates(value: Any) -> str:
    """Check certificates in PEM; the error does not show these long texts."""
    pem = text(value)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError):  # broken, not ASCII, empty
        raise wrong("need certificates in PEM: -----BEGIN CERTIFICATE----- and so on, nothing broken") from None
    return pem


def is_audience(named: str) -> bool:
    """Say whether `named` can be a token's audience."""
    return HEADER_VALUE(named) is not None and len(named) <= 1024


def audience_file(path: Path) -> Path:
    """Check that `{audience}` is only the last part of a file's path."""
    if AUDIENCE in str(path) and (path.name != AUDIENCE or AUDIENCE in str(path.parent)):
        raise wrong(f"{AUDIENCE} can only be the last part of it, as in /var/run/secrets/tokens/{AUDIENCE}")
    return path

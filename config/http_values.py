"""Values about HTTP that the configuration holds: URLs, headers, headers that stand in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import Field
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from inbound.config.values import Part, Problem, text, wrong, wrong_at

#: What a request carries by itself.
_RESERVED = frozenset({"host", "connection", "content-type", "content-length", "transfer-encoding", "accept-encoding"})
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?").fullmatch


class HeaderFile(Part):
    """A header's value that stands in a file."""

    file: Path = Field(description="the file that holds the value, read once at the start")


def http_url(value: Any) -> str:
    """Check a URL, naming none of it: it may hold a password."""
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
    """Check a header's value, and never say what it was."""
    if isinstance(value, str):
        if not HEADER_VALUE(value):
            raise wrong("need printable ASCII without blanks at its ends")
        return value
    if isinstance(value, (dict, HeaderFile)):
        return value if isinstance(value, HeaderFile) else HeaderFile.model_validate(value)
    raise wrong("need text in quotes, or {file: path} for a secret")


def header_names(headers: dict[str, Any]) -> dict[str, Any]:
    """Check the names of headers: what a request carries by itself cannot be set."""
    problems: list[Problem] = []
    for name in headers:
        if not _TOKEN(name):
            problems.append(((name,), wrong("cannot be the name of a header"), None))
        elif name.lower() in _RESERVED or name.lower().startswith("ce-"):
            problems.append(((name,), wrong("is a header that inbound sets itself; remove it"), None))
    if problems:
        raise wrong_at("headers", problems)
    return headers

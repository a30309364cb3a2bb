"""Operations by POST on the admin port, and who may ask for them."""

from __future__ import annotations

import hmac
import ipaddress
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from inbound.errors import ConfigError, InboundError, TransientError
from inbound.http.pages import Page, text
from inbound.http.server import Request
from inbound.operations import Done, Operation, UnknownTargetError, Verb

#: Carries an operation out on a channel, and returns what to answer.
Operate = Callable[[str, Operation], Page]
#: Returns the token that whoever asks must know. May raise InboundError.
Token = Callable[[], str]

#: Version of the JSON that operations answer with.
VERSION = 1
_PREFIX = "/channels/"
_VERBS = {verb.value: verb for verb in Verb}
_PARAMETERS = {Verb.PAUSE: {"consumer", "reason"}, Verb.RESUME: {"consumer"}, Verb.REBALANCE: set[str]()}


def answered(work: Callable[[], Done]) -> Page:
    """Return the page that says what became of an operation."""
    try:
        done = work()
    except (UnknownTargetError, ConfigError) as error:
        return text(HTTPStatus.NOT_FOUND, str(error))
    except TransientError as error:
        return text(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}; ask again: that is safe")
    body = json.dumps({"v": VERSION, **done.as_dict()})
    return Page(HTTPStatus.OK, f"{body}\n".encode(), "application/json")


class Operations:
    """`POST /channels/<name>/<verb>`. Any thread."""

    def __init__(self, operate: Operate, token: Token | None, log: logging.Logger) -> None:
        self._operate = operate
        self._token = token
        self._log = log

    def answer(self, request: Request, listening_at: str) -> Page | None:
        """Return the answer; None where the path names no operation. `listening_at` is the address we are bound to."""
        found = _parsed(request.path)
        if found is None:
            return None
        channel, verb = found
        if request.method != "POST":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} is done by POST").with_header("Allow", "POST")
        refused = self._refused(request, listening_at)
        if refused is not None:
            return refused
        given = parse_qs(request.query, keep_blank_values=True)
        unknown = sorted(set(given) - _PARAMETERS[verb])
        if unknown or any(len(values) > 1 for values in given.values()):
            allowed = ", ".join(sorted(_PARAMETERS[verb])) or "none"
            return text(
                HTTPStatus.BAD_REQUEST, f"{verb.value}: parameters are {allowed}, each once; got {request.query}"
            )
        values = {key: found[0] for key, found in given.items()}
        try:
            return self._operate(channel, Operation(verb, values.get("consumer"), values.get("reason")))
        except Exception:
            self._log.exception("admin: %s could not be done", request.path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "it failed; see the log of the process")

    # -- who may -----------------------------------------------------------------------------------------------------

    def _refused(self, request: Request, listening_at: str) -> Page | None:
        if self._token is not None:
            return self._refused_by_token(request, self._token)
        if not _is_loopback(listening_at):
            return text(
                HTTPStatus.FORBIDDEN,
                "operations need a token where the admin port can be reached from other machines: "
                "set admin.token_file to a file that holds one, and send it as `Authorization: Bearer ...`",
            )
        return _refused_as_browser(request)

    def _refused_by_token(self, request: Request, read: Token) -> Page | None:
        try:
            token = read()
        except InboundError as error:
            self._log.error("admin: an operation was refused: %s", error)
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "the token cannot be read; see the log of the process")
        scheme, _, given = (request.authorization or "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode()):
            return None
        return text(
            HTTPStatus.UNAUTHORIZED, "this needs `Authorization: Bearer` with the token of admin.token_file"
        ).with_header("WWW-Authenticate", "Bearer")


def _refused_as_browser(request: Request) -> Page | None:
    """Without a token nobody must be able to make a person's browser ask, neither across sites nor by a name in the DNS
    that they let point to this machine."""
    host = _hostname(f"//{request.host or ''}")
    if host != "localhost" and not _is_loopback(host):
        return text(
            HTTPStatus.FORBIDDEN, "operations are taken for localhost only: ask by that name, or set admin.token_file"
        )
    if request.origin is not None and urlsplit(request.origin).netloc.lower() != (request.host or "").lower():
        return text(HTTPStatus.FORBIDDEN, "operations are not taken from pages of other sites; use the command line")
    return None


def _parsed(path: str) -> tuple[str, Verb] | None:
    if not path.startswith(_PREFIX):
        return None
    channel, slash, verb = path.removeprefix(_PREFIX).partition("/")
    return (unquote(channel), _VERBS[verb]) if slash and verb in _VERBS and channel else None


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""Operations by POST on the admin port, and who may ask for them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import parse_qs, quote, unquote, urlencode

from inbound.errors import ConfigError, TransientError
from inbound.http.pages import Page, text
from inbound.http.rights import Rights
from inbound.http.server import Request
from inbound.operations import BadOperationError, Done, Operation, UnknownTargetError, Verb

#: Carries an operation out on a channel, and returns what to answer.
Operate = Callable[[str, Operation], Page]

#: Version of the JSON that operations answer with.
VERSION = 1
_PREFIX = "/channels/"
_VERBS = {verb.value: verb for verb in Verb}
_PARAMETERS = {
    Verb.PAUSE: {"consumer", "reason"},
    Verb.RESUME: {"consumer"},
    Verb.REBALANCE: set[str](),
    Verb.RELEASE: {"topic", "partition", "seconds", "consumer"},
    Verb.RATE: {"per_second", "consumer"},
}


def path_of(channel: str, operation: Operation) -> str:
    """Return where an operation is asked for by POST."""
    values = {
        "consumer": operation.consumer,
        "reason": operation.reason,
        "topic": operation.topic,
        "partition": operation.partition,
        "seconds": operation.seconds,
    }
    if operation.verb is Verb.RATE:
        values["per_second"] = "none" if operation.per_second is None else repr(operation.per_second)
    query = urlencode({name: value for name, value in values.items() if value is not None})
    return f"{_PREFIX}{quote(channel, safe='')}/{operation.verb.value}?{query}"


def answered(work: Callable[[], Done]) -> Page:
    """Return the page that says what became of an operation."""
    try:
        done = work()
    except (UnknownTargetError, ConfigError) as error:
        return text(HTTPStatus.NOT_FOUND, str(error))
    except BadOperationError as error:
        return text(HTTPStatus.CONFLICT, str(error))
    except TransientError as error:
        return text(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}; ask again: that is safe")
    body = json.dumps({"v": VERSION, **done.as_dict()})
    return Page(HTTPStatus.OK, f"{body}\n".encode(), "application/json")


class Operations:
    """`POST /channels/<name>/<verb>`. Any thread."""

    def __init__(self, operate: Operate, rights: Rights, log: logging.Logger) -> None:
        self._operate = operate
        self._rights = rights
        self._log = log

    def answer(self, request: Request, listening_at: str) -> Page | None:
        """Return the answer; None where the path names no operation. `listening_at` is the address we are bound to."""
        found = _parsed(request.path)
        if found is None:
            return None
        channel, verb = found
        if request.method != "POST":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} is done by POST").with_header("Allow", "POST")
        refused = self._rights.refused(request, listening_at)
        if refused is not None:
            return refused
        given = parse_qs(request.query, keep_blank_values=True)
        unknown = sorted(set(given) - _PARAMETERS[verb])
        if unknown or any(len(values) > 1 for values in given.values()):
            allowed = ", ".join(sorted(_PARAMETERS[verb])) or "none"
            return text(
                HTTPStatus.BAD_REQUEST, f"{verb.value}: parameters are {allowed}, each once; got {request.query[:200]}"
            )
        values = {key: found[0] for key, found in given.items()}
        try:
            operation = _operation(verb, values)
        except ValueError as error:
            return text(HTTPStatus.BAD_REQUEST, f"{verb.value}: {error}; got {request.query[:200] or 'nothing'}")
        try:
            return self._operate(channel, operation)
        except Exception:
            self._log.exception("admin: %s could not be done", request.path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "it failed; see the log of the process")


def _parsed(path: str) -> tuple[str, Verb] | None:
    if not path.startswith(_PREFIX):
        return None
    channel, slash, verb = path.removeprefix(_PREFIX).partition("/")
    return (unquote(channel), _VERBS[verb]) if slash and verb in _VERBS and channel else None


def _operation(verb: Verb, values: Mapping[str, str]) -> Operation:
    """Return what was asked for. Raises ValueError where a value cannot be used."""
    consumer = values.get("consumer")
    if verb is Verb.RELEASE:
        partition = values.get("partition", "")
        if not values.get("topic") or not (partition.isascii() and partition.isdigit() and len(partition) < 10):
            raise ValueError("needs topic=NAME&partition=NUMBER")
        seconds = _positive(values["seconds"], "seconds") if "seconds" in values else None
        return Operation(verb, consumer, topic=values["topic"], partition=int(partition), seconds=seconds)
    if verb is Verb.RATE:
        if "per_second" not in values:
            raise ValueError("needs per_second=RECORDS, or per_second=none for as fast as it goes")
        given = values["per_second"]
        return Operation(verb, consumer, per_second=None if given == "none" else _positive(given, "per_second"))
    return Operation(verb, consumer, values.get("reason"))


def _positive(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} must be a number above 0")
    return number

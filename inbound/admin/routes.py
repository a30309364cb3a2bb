"""Answers GET with pages, POST with operations and reloads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlencode

from inbound.admin.status_page import status_page, wants_html
from inbound.errors import ConfigError, TransientError
from inbound.group.operations import BadOperationError, Operation, OperationKind, OperationResult, UnknownTargetError
from inbound.http.server.page import HTML, Page, json_page, text
from inbound.http.server.rights import Rights
from inbound.http.server.server import METHODS, Request
from inbound.observe.explain.answer import BadQuestionError, PartitionQuestion
from inbound.observe.jmx.beans import Operate
from inbound.observe.metrics import Exposition, Snapshot
from inbound.observe.status.status import ProcessStatus

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Version of the JSON of `/status`, and of `/explain`.
STATUS_VERSION = EXPLAIN_VERSION = 1
EXPLAIN = "/explain"

#: Returns why a partition is stalled: an answer for each of its channels.
Explain = Callable[[PartitionQuestion], Sequence[dict[str, Any]]]


class Pages:
    """The pages by path. Any thread.

    A page that fails is answered with 500; `log` has the reason.
    """

    def __init__(self, snapshot: Snapshot, log: logging.Logger, also: Sequence[str] = ()) -> None:
        """`also` lists the port's other routes, for the list of pages."""
        self._snapshot = snapshot
        self._log = log
        self._exposition = Exposition(snapshot)
        self._pages: Mapping[str, tuple[Callable[[str | None], Page], str]] = {
            "/": (self._index, "this list; to a browser the status page"),
            "/healthz": (
                partial(self._probe, ProcessStatus.stuck, HTTPStatus.INTERNAL_SERVER_ERROR, ""),
                "200 while every internal thread is healthy, else 500 and what is wrong",
            ),
            "/readyz": (
                partial(
                    self._probe, ProcessStatus.ready, HTTPStatus.SERVICE_UNAVAILABLE, "no process has answered yet"
                ),
                "200 while a member of all groups, else 503 and what is missing",
            ),
            "/status": (self._status, "everything that the process knows of itself, as JSON"),
            "/metrics": (self._metrics, "metrics for Prometheus"),
        }
        self._also = also

    def knows(self, path: str) -> bool:
        return path in self._pages

    def get(self, path: str, accept: str | None = None) -> Page:
        """Return the page at `path`; `accept` is the request's Accept header."""
        if path not in self._pages:
            return text(HTTPStatus.NOT_FOUND, f"no such page; there are: {' '.join(self._pages)}")
        page, _ = self._pages[path]
        try:
            return page(accept)
        except Exception:
            self._log.exception("admin: %s could not be answered", path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "the status could not be read; see the log of the process")

    # -- pages -------------------------------------------------------------------------------------------------------

    def _index(self, accept: str | None) -> Page:
        if wants_html(accept):
            body, headers = status_page()
            return Page(HTTPStatus.OK, body, HTML, headers)
        pages = (f"{path:<10} {what}" for path, (_, what) in self._pages.items())
        return text(HTTPStatus.OK, *pages, *self._also).with_header("Vary", "Accept")

    def _probe(self, ask: Callable[[ProcessStatus], list[str]], bad: HTTPStatus, none: str, accept: str | None) -> Page:
        """Answer with the problems that `ask` finds.

        An unavailable server is none: a restart would not help.
        """
        found = self._snapshot()
        if isinstance(found, ProcessStatus):
            problems = ask(found)
        else:
            problems = [f"process {process.pid}: {problem}" for process in found for problem in ask(process)]
            problems += [none] if none and not found else []
        return text(bad, *problems) if problems else text(HTTPStatus.OK, "ok")

    def _status(self, accept: str | None) -> Page:
        found = self._snapshot()
        if isinstance(found, ProcessStatus):
            return json_page(STATUS_VERSION, found.as_dict())
        return json_page(STATUS_VERSION, {"processes": [process.as_dict() for process in found]})

    def _metrics(self, accept: str | None) -> Page:
        body, content_type = self._exposition.render(accept)
        return Page(HTTPStatus.OK, body, content_type)


def explained(explain: Explain, request: Request, log: logging.Logger) -> Page | None:
    """Answer `GET /explain`; None: it is another path or method."""
    if request.path != EXPLAIN or request.method not in METHODS:
        return None
    try:
        return json_page(EXPLAIN_VERSION, {"answers": list(explain(PartitionQuestion.of(request.query)))})
    except BadQuestionError as error:
        return text(HTTPStatus.BAD_REQUEST, f"{EXPLAIN}: {error}")
    except Exception:
        log.exception("admin: %s could not be answered", EXPLAIN)
        return text(HTTPStatus.INTERNAL_SERVER_ERROR, "it could not be explained; see the log of the process")


#: Applies the current configuration; returns the outcome, or None if there is none after so many seconds.
Reload = Callable[[float], "DataclassInstance | None"]

#: Version of the JSON of operations and reloads.
VERSION = 1
RELOAD = "/reload"
#: Seconds for the answer to a reload: a removed channel waits for its batches.
RELOAD_SECONDS = 90.0
_PREFIX = "/channels/"
_VERBS = {verb.value: verb for verb in OperationKind}
_PARAMETERS = {
    OperationKind.PAUSE: {"consumer", "reason"},
    OperationKind.RESUME: {"consumer"},
    OperationKind.REBALANCE: set[str](),
    OperationKind.RELEASE: {"topic", "partition", "seconds", "consumer"},
    OperationKind.RATE: {"per_second", "consumer"},
}


def path_of(channel: str, operation: Operation) -> str:
    """Return the path and query of an operation's POST."""
    values = {
        "consumer": operation.consumer,
        "reason": operation.reason,
        "topic": operation.topic,
        "partition": operation.partition,
        "seconds": operation.seconds,
    }
    if operation.verb is OperationKind.RATE:
        values["per_second"] = "none" if operation.per_second is None else repr(operation.per_second)
    query = urlencode({name: value for name, value in values.items() if value is not None})
    return f"{_PREFIX}{quote(channel, safe='')}/{operation.verb.value}?{query}"


def answered(work: Callable[[], OperationResult]) -> Page:
    """Run an operation; return its outcome as a page."""
    try:
        done = work()
    except (UnknownTargetError, ConfigError) as error:
        return text(HTTPStatus.NOT_FOUND, str(error))
    except BadOperationError as error:
        return text(HTTPStatus.CONFLICT, str(error))
    except TransientError as error:
        return text(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}; ask again: that is safe")
    return json_page(VERSION, done.as_dict())


class Operations:
    """Answers `POST /channels/<name>/<verb>`, and `POST /reload`. Any thread."""

    def __init__(self, rights: Rights, *, operate: Operate | None = None, reload: Reload | None = None) -> None:
        """Without `operate`, or without `reload`, there is no such route."""
        self._rights = rights
        self._operate = operate
        self._reload = reload

    def answer(self, request: Request, listening_at: str) -> Page | None:
        """Return the answer; None: the path names no operation.

        `listening_at` is the address of the listener.
        """
        if request.path == RELOAD and self._reload is not None:
            work = partial(_reloaded, self._reload)
        elif self._operate is not None and (found := _parsed(request.path)) is not None:
            work = partial(_operated, self._operate, *found, request.query)
        else:
            return None
        if request.method != "POST":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} is done by POST").with_header("Allow", "POST")
        return self._rights.refused(request, listening_at) or work()


def _operated(operate: Operate, channel: str, verb: OperationKind, query: str) -> Page:
    given = parse_qs(query, keep_blank_values=True)
    if given.keys() - _PARAMETERS[verb] or any(len(values) > 1 for values in given.values()):
        allowed = ", ".join(sorted(_PARAMETERS[verb])) or "none"
        return text(HTTPStatus.BAD_REQUEST, f"{verb.value}: parameters are {allowed}, each once; got {query[:200]}")
    try:
        operation = _operation(verb, {key: values[0] for key, values in given.items()})
    except ValueError as error:
        return text(HTTPStatus.BAD_REQUEST, f"{verb.value}: {error}; got {query[:200] or 'nothing'}")
    return operate(channel, operation)


def _reloaded(reload: Reload) -> Page:
    outcome = reload(RELOAD_SECONDS)
    if outcome is None:
        return text(
            HTTPStatus.GATEWAY_TIMEOUT,
            f"not done after {RELOAD_SECONDS:.0f} s; it goes on: see `reload` in /status, and the log of the process",
        )
    return json_page(VERSION, asdict(outcome))


def _parsed(path: str) -> tuple[str, OperationKind] | None:
    if not path.startswith(_PREFIX):
        return None
    channel, slash, verb = path.removeprefix(_PREFIX).partition("/")
    return (unquote(channel), _VERBS[verb]) if slash and verb in _VERBS and channel else None


def _operation(verb: OperationKind, values: Mapping[str, str]) -> Operation:
    """Return the requested operation; raises ValueError: a value cannot be used."""
    consumer = values.get("consumer")
    if verb is OperationKind.RELEASE:
        partition = values.get("partition", "")
        if not values.get("topic") or not (partition.isascii() and partition.isdigit() and len(partition) < 10):
            raise ValueError("needs topic=NAME&partition=NUMBER")
        seconds = _positive(values["seconds"], "seconds") if "seconds" in values else None
        return Operation(verb, consumer, topic=values["topic"], partition=int(partition), seconds=seconds)
    if verb is OperationKind.RATE:
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

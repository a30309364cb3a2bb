"""The pages `/jmx` and `/jolokia` of the admin port."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from inbound.errors import ConfigError
from inbound.http.server.page import Page, text
from inbound.http.server.rights import Rights
from inbound.http.server.server import METHODS, TAKES_BODY, Request
from inbound.observe.jmx.beans import Beans, CounterResets, Operate
from inbound.observe.jmx.jolokia import BeansChanged, Jolokia, Refused, failure, forbidden
from inbound.observe.jmx.model import JmxError, bad_argument
from inbound.observe.jmx.names import MalformedNameError, ObjectName
from inbound.observe.jmx.policy import Policy, ReadPolicy
from inbound.observe.jmx.requests import of_json, of_path
from inbound.observe.metrics import Snapshot

JMX = "/jmx"
_TYPE = "application/json; charset=utf8"
_MIME_TYPES = ("application/json", "text/plain")
#: Nested lists and objects in a request; no request has so many.
_MOST_DEPTH = 100
#: Requests in a list, and characters of all answers to it; 1,000 partitions with all their attributes have a million.
_MOST_REQUESTS, _MOST_ANSWERED = 500, 8 * 1024 * 1024
#: CPU seconds for all answers to a list: a pattern that finds nothing looks at every bean, too.
_MOST_SECONDS = 5.0


def jmx_page(get: str | None, query: str | None, beans: Beans, policy: Policy) -> Page:
    """Return the beans of `query`, a name or pattern; `get` is `NAME::ATTRIBUTE`."""
    name, _, attribute = (get or "").rpartition("::")
    if get is not None and (not name or not attribute or "::" in name):
        return _error(HTTPStatus.BAD_REQUEST, "query format is not as expected.")
    try:
        wanted = ObjectName.parse(name if get is not None else query or "*:*")
    except MalformedNameError as error:
        return _error(HTTPStatus.BAD_REQUEST, str(error))
    shown: list[dict[str, Any]] = []
    for bean in beans.find(wanted):
        names = [a.name for a in bean.kind.attributes if get is None or a.name == attribute]
        values = {name: beans.value(bean, name) for name in names if policy.member("read", bean.name, name)}
        missing = get is not None and values.get(attribute) is None  # as in the servlet: null, or no such attribute
        if missing:
            values = {"result": "ERROR", "message": f"No attribute with name {attribute} was found."}
        shown.append({"name": str(bean.name), "modelerType": bean.kind.java_class, **values})
        if missing:
            return _page(HTTPStatus.NOT_FOUND, {"beans": shown})
    return _page(HTTPStatus.OK, {"beans": shown})


def _error(code: int, message: str) -> Page:
    return _page(code, {"result": "ERROR", "message": message})


def _page(code: int, body: dict[str, Any]) -> Page:
    return Page(code, f"{json.dumps(body, indent=2)}\n".encode(), _TYPE)


class JmxPages:
    """Answers for `/jmx` and `/jolokia`. Any thread."""

    def __init__(
        self,
        snapshot: Snapshot,
        operate: Operate | None,
        rights: Rights,
        policy: ReadPolicy | None,
        log: logging.Logger,
    ) -> None:
        """`rights` allow changes, `policy` allows requests; None: every request."""
        self._snapshot = snapshot
        self._operate = operate
        self._rights = rights
        self._policy = policy or Policy
        self._log = log
        self._counters = CounterResets()
        self._changed = BeansChanged()
        self._agent_id = f"{socket.gethostname()}-{os.getpid()}-inbound"

    def answer(self, request: Request, listening_at: str) -> Page | None:
        """Return the answer; None: the path belongs to other pages.

        `listening_at` is the listener's address.
        """
        jolokia = f"{request.path}/".startswith(f"{TAKES_BODY}/")
        if not jolokia and request.path != JMX:
            return None
        try:
            policy = self._policy()
        except ConfigError as error:
            self._log.error("admin: %s was refused: the policy cannot be read: %s", request.path, error)
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "the policy cannot be read; see the log of the process")
        try:
            return (self._jolokia if jolokia else self._jmx)(request, listening_at, policy)
        except Exception:
            self._log.exception("admin: %s could not be answered", request.path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "the status could not be read; see the log of the process")

    # -- inside ------------------------------------------------------------------------------------------------------

    def _beans(self) -> Beans:
        return Beans(self._snapshot, self._operate, self._counters)

    def _jmx(self, request: Request, listening_at: str, policy: Policy) -> Page:
        if request.method not in METHODS:
            page = text(HTTPStatus.METHOD_NOT_ALLOWED, f"{JMX} can be read only: {', '.join(METHODS)}")
            return page.with_header("Allow", ", ".join(METHODS))
        if not policy.lets_in(request.client):
            return text(HTTPStatus.FORBIDDEN, f"{request.client} is not among the hosts of the policy")
        given = _parameters(request.query)
        return jmx_page(given.get("get"), given.get("qry"), self._beans(), policy)

    def _jolokia(self, request: Request, listening_at: str, policy: Policy) -> Page:
        if request.method not in ("GET", "POST"):
            page = text(HTTPStatus.METHOD_NOT_ALLOWED, f"HTTP Method {request.method} is not supported.")
            return page.with_header("Allow", "GET, POST")
        parameters = _parameters(request.query)
        refusals: list[JmxError] = []

        def refused() -> JmxError | None:
            found = self._refused(request, listening_at)
            refusals.extend([found] if found is not None else [])
            return found

        try:
            answer = self._answers(request, policy, parameters, refused)
        except JmxError as error:
            answer = json.dumps(failure(error))
        mime = parameters.get("mimeType", _MIME_TYPES[0])
        kind = mime if mime in _MIME_TYPES else _MIME_TYPES[0]
        page = Page(HTTPStatus.OK, answer.encode(), f"{kind}; charset=utf-8")
        if all(refusal.status != HTTPStatus.UNAUTHORIZED for refusal in refusals):
            return page
        # Java's client sends its password only after a 401.
        return replace(page, code=HTTPStatus.UNAUTHORIZED).with_header("WWW-Authenticate", 'Basic realm="inbound"')

    def _answers(self, request: Request, policy: Policy, parameters: Mapping[str, str], refused: Refused) -> str:
        """Return the JSON answer to one request or a list.

        Raises:
            JmxError: no request is answered.
        """
        if not policy.lets_in(request.client):
            raise forbidden(f"access from {request.client}")
        if not policy.method(request.method):
            raise forbidden(f"HTTP method {request.method}")
        jolokia = Jolokia(self._beans(), policy, refused, self._changed, agent_id=self._agent_id)
        if request.method == "GET":
            path = parameters["p"] if "p" in parameters else unquote(request.path)[len(TAKES_BODY) :]
            return json.dumps(jolokia.answer(partial(of_path, path, parameters)))
        body = _json(request.body)
        if not isinstance(body, list):
            return json.dumps(jolokia.answer(partial(of_json, body, parameters)))
        if len(body) > _MOST_REQUESTS:
            raise bad_argument(f"{len(body)} requests in one; {_MOST_REQUESTS} are the most: send them in several")
        answers: list[str] = []
        size, began = 0, time.thread_time()
        for one in body:
            if request.gone():  # or it has only shut down its side, and waits: a short list must not pass for the whole
                raise bad_argument(
                    f"the client hung up when {len(answers)} of its {len(body)} requests were done; keep the connection open, in "
                    "both directions, until the answer has come"
                )
            answers.append(json.dumps(jolokia.answer(partial(of_json, one, parameters))))
            size += len(answers[-1])
            if time.thread_time() - began > _MOST_SECONDS:
                raise bad_argument(
                    f"the answers to {len(answers)} of {len(body)} requests took too long; send fewer in one"
                )
            if size > _MOST_ANSWERED:
                raise bad_argument(f"the answers to {len(answers)} of {len(body)} requests are too long; ask for less")
        return f"[{', '.join(answers)}]"

    def _refused(self, request: Request, listening_at: str) -> JmxError | None:
        with_token = request.with_password()
        page = self._rights.refused(with_token, listening_at)
        if page is None and with_token is not request and (request.from_browser or request.origin is not None):
            # A browser that knows the password sends it for every page.
            page = text(
                HTTPStatus.FORBIDDEN, "with a password nothing is changed for browsers; send the token as `Bearer`"
            )
        if page is None:
            return None
        return JmxError(page.body.decode().strip(), page.code, "java.lang.SecurityException")


def _parameters(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=50)) if query.count("&") < 50 else {}


def _json(body: bytes) -> Any:
    try:
        found = json.loads(body, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        raise bad_argument("Invalid JSON request") from None
    if _deeper(found, _MOST_DEPTH) or not isinstance(found, list | dict):
        raise bad_argument("Invalid JSON Request. Expected Object or Array")
    return found


def _finite(text: str) -> float:
    """Refuse numbers that JSON cannot write: the answer repeats the request."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number


def _deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects in `value` are nested more than `depth` times."""
    if not isinstance(value, list | dict):
        return False
    parts: Any = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_deeper(part, depth - 1) for part in parts)

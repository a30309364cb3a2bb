"""Jolokia's protocol, version 8.2, answers requests for beans."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import inbound
from inbound.observe.jmx.beans import Beans
from inbound.observe.jmx.model import Bean, JmxError, bad_argument, described, no_attribute, no_instance
from inbound.observe.jmx.names import MalformedNameError, ObjectName
from inbound.observe.jmx.policy import Policy
from inbound.observe.jmx.requests import CHANGES, Bounded, JolokiaRequest, RequestOptions, outlined, reached

#: The protocol's version.
PROTOCOL = "8.2"
_NOT_MODIFIED = 304

#: Returns why the client may change nothing; None: it may.
Refused = Callable[[], JmxError | None]


def forbidden(what: str) -> JmxError:
    """Return the error for a request that the policy does not allow."""
    return JmxError(f"{what}: forbidden by the policy of this agent", 403, "java.lang.SecurityException")


class BeansChanged:
    """The time of the last change of the beans, seen by requests.

    Any thread.
    """

    def __init__(self) -> None:
        self._known: frozenset[tuple[str, tuple[bool, ...]]] | None = None
        self._at = 0.0
        self._lock = threading.Lock()

    def since(self, beans: Beans, wall: float) -> float:
        """Return the Unix time of the last change; `wall` is now."""
        now = frozenset((b.name.canonical, tuple(b.writable(a) for a in b.kind.attributes)) for b in beans.all())
        with self._lock:
            if now != self._known:
                self._known, self._at = now, wall
            return self._at


class Jolokia:
    """Answers requests for one client during one HTTP request. One thread."""

    def __init__(
        self,
        beans: Beans,
        policy: Policy,
        refused: Refused,
        changed: BeansChanged,
        *,
        agent_id: str,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`refused` is called before each change; `agent_id` distinguishes processes."""
        self._beans = beans
        self._policy = policy
        self._refused = refused
        self._changed = changed
        self._agent_id = agent_id
        self._wall = wall
        self._commands: Mapping[str, Callable[[JolokiaRequest], Any]] = {
            "read": self._read,
            "write": self._write,
            "exec": self._exec,
            "search": self._search,
            "list": self._list,
            "version": self._version,
            "notification": self._notification,
        }

    def answer(self, parse: Callable[[], JolokiaRequest]) -> dict[str, Any]:
        """Return the answer to the request, or to the error, of `parse`."""
        request = None
        try:
            request = parse()
            value, status = self._value(request)
            answer = {"value": value, "status": status} if status != _NOT_MODIFIED else {"status": status}
        except MalformedNameError as error:
            answer = failure(JmxError(str(error), 400, "javax.management.MalformedObjectNameException"))
        except JmxError as error:
            answer = failure(error)
        if request is not None and request.options.include_request:
            answer = {"request": request.echo(), **answer}
        return {**answer, "timestamp": int(self._wall())}

    def _value(self, request: JolokiaRequest) -> tuple[Any, int]:
        """Return the value, within its bounds, and the status."""
        command, since = request.command, request.options.modified_since
        if command in CHANGES:
            refused = self._refused()
            if refused is not None:
                raise refused
        elif command != "read" and not self._policy.command(command):
            raise forbidden(f"command {command}")
        if since is not None and command in ("list", "search"):
            if self._changed.since(self._beans, self._wall()) < since:
                return None, _NOT_MODIFIED
        elif since is not None:
            raise bad_argument(f"ifModifiedSince is for list and search, not for {command}")
        value = self._commands[command](request)
        if command == "list":
            return value, 200
        if request.path:
            value = reached(value, request.path)
        return Bounded(request.options.bounds).cut(value), 200

    # -- commands ----------------------------------------------------------------------------------------------------

    def _read(self, request: JolokiaRequest) -> Any:
        name = _name(request)
        if not name.is_pattern:
            if isinstance(request.attribute, str):
                self._check("read", name, request.attribute)
                return self._beans.value(self._beans.get(name), request.attribute)
            return self._several(self._beans.get(name), request.attribute, request.options.ignore_errors)
        found = self._beans.find(name)
        if not found:
            raise no_instance(f"No MBean with pattern {name} found for READ request")
        names = [request.attribute] if isinstance(request.attribute, str) else request.attribute
        values = {}
        for bean in found:
            has = None if names is None else [one for one in names if bean.kind.attribute(one) is not None]
            if has is None or has:
                values[_written(bean, request.options)] = self._several(bean, has, request.options.ignore_errors)
        if not values:
            raise no_attribute(f"No attribute found for any MBean matching {name} pattern")
        return values

    def _check(self, command: str, name: ObjectName, member: str) -> None:
        """Raise JmxError unless the policy allows it.

        It is called before any look-up, so that a refusal reveals nothing.
        """
        if not self._policy.member(command, name, member):
            what = {"read": "reading attribute", "write": "writing attribute", "exec": "calling"}[command]
            raise forbidden(f"{what} {member} of {name}")

    def _several(self, bean: Bean, names: Sequence[str] | None, ignore_errors: bool) -> dict[str, Any]:
        """Return the values of `names`; None: of all readable attributes."""
        if names is None:
            readable = [a.name for a in bean.kind.attributes if self._policy.member("read", bean.name, a.name)]
            if not readable:
                raise forbidden(f"reading {bean.name}")
            return {name: self._beans.value(bean, name) for name in readable}
        values: dict[str, Any] = {}
        for name in names:
            try:
                self._check("read", bean.name, name)
                values[name] = self._beans.value(bean, name)
            except JmxError as error:
                if not ignore_errors:
                    raise
                values[name] = {"error_type": error.java, "error": str(error), ".error": True}
        return values

    def _write(self, request: JolokiaRequest) -> Any:
        name, attribute = _name(request), str(request.attribute)
        self._check("write", name, attribute)
        return self._beans.write(self._beans.get(name), attribute, request.value)

    def _exec(self, request: JolokiaRequest) -> Any:
        name, operation = _name(request), request.operation
        if name.is_pattern:
            raise bad_argument(f"exec: {name} is a pattern; name the one bean to call")
        self._check("exec", name, operation.partition("(")[0])
        return self._beans.call(self._beans.get(name), operation, request.arguments)

    def _search(self, request: JolokiaRequest) -> Any:
        return [_written(bean, request.options) for bean in self._beans.find(_name(request))]

    def _list(self, request: JolokiaRequest) -> Any:
        domain, keys, *rest = (*request.path, "", "")[: max(2, len(request.path))]
        found: dict[str, dict[str, Any]] = {}
        depth = int(request.options.bounds.depth)
        if keys:
            bean = self._beans.get(ObjectName.parse(f"{domain}:{keys}"))
            return outlined(_within(described(bean), rest, request), max(0, depth - 2))
        for bean in self._beans.all():
            if domain in ("", bean.name.domain):
                key = bean.name.sorted_keys if request.options.canonical_naming else bean.name.keys
                found.setdefault(bean.name.domain, {})[key] = described(bean)
        return outlined(found, depth) if not domain else outlined(found.get(domain, {}), max(0, depth - 1))

    def _version(self, request: JolokiaRequest) -> Any:
        bounds = RequestOptions().bounds
        return {
            "agent": inbound.__version__,
            "protocol": PROTOCOL,
            "id": self._agent_id,
            "details": {"agent_version": inbound.__version__, "agent_id": self._agent_id, "secured": False},
            "config": {
                "agentId": self._agent_id,
                "agentType": "inbound",
                "maxDepth": str(bounds.depth),
                "maxCollectionSize": str(bounds.collection),
                "maxObjects": str(bounds.objects),
                "canonicalNaming": "false",
            },
            "info": {"product": "inbound", "vendor": "inbound", "version": inbound.__version__},
        }

    def _notification(self, request: JolokiaRequest) -> Any:
        raise JmxError(
            "no bean here sends notifications; poll with read", 500, "java.lang.UnsupportedOperationException"
        )


def failure(error: JmxError) -> dict[str, Any]:
    return {"error_type": error.java, "error": str(error), "status": error.status}


def _name(request: JolokiaRequest) -> ObjectName:
    if request.bean is None:
        raise bad_argument(f"{request.command}: mbean is missing")
    return request.bean


def _written(bean: Bean, options: RequestOptions) -> str:
    return bean.name.canonical if options.canonical_naming else str(bean.name)


def _within(whole: Mapping[str, Any], path: Sequence[str], request: JolokiaRequest) -> Any:
    """Return the part of a bean's description that a path names."""
    value: Any = whole
    for part in path:
        if isinstance(value, Mapping) and part not in value:
            raise bad_argument(f"list: {'/'.join(request.path)} names nothing; there are: {', '.join(value)}")
        value = reached(value, [part])
    return value

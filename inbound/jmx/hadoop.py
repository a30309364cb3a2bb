"""`/jmx`: beans as Hadoop's JSON servlet shows them. Reading only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from inbound.http.pages import Page
from inbound.jmx.beans import Beans
from inbound.jmx.model import Bean, JmxError
from inbound.jmx.names import MalformedNameError, ObjectName
from inbound.jmx.policy import Policy

_TYPE = "application/json; charset=utf8"


def jmx_page(get: str | None, query: str | None, beans: Callable[[], Beans], policy: Policy) -> Page:
    """Return the beans that `query`, a name or pattern, stands for; or one attribute, for `get=NAME::ATTRIBUTE`."""
    if get is None:
        return _listed(query or "*:*", None, beans, policy)
    name, colons, attribute = get.rpartition("::")
    if not colons or not name or not attribute or "::" in name:
        return _error(HTTPStatus.BAD_REQUEST, "query format is not as expected.")
    return _listed(name, attribute, beans, policy)


def _listed(pattern: str, attribute: str | None, make: Callable[[], Beans], policy: Policy) -> Page:
    try:
        wanted = ObjectName.parse(pattern)
    except MalformedNameError as error:
        return _error(HTTPStatus.BAD_REQUEST, str(error))
    beans = make()
    shown: list[dict[str, Any]] = []
    for bean in beans.find(wanted):
        head = {"name": str(bean.name), "modelerType": bean.kind.java_class}
        if attribute is None:
            shown.append(head | _values(beans, bean, policy))
            continue
        value = _value(beans, bean, attribute, policy)
        if value is None:  # the servlet cannot tell an attribute that is null from one that is not there either
            message = f"No attribute with name {attribute} was found."
            shown.append(head | {"result": "ERROR", "message": message})
            return _page(HTTPStatus.NOT_FOUND, {"beans": shown})
        shown.append(head | {attribute: value})
    return _page(HTTPStatus.OK, {"beans": shown})


def _values(beans: Beans, bean: Bean, policy: Policy) -> dict[str, Any]:
    names: Sequence[str] = [a.name for a in bean.kind.attributes if not re.search("[=: ]", a.name)]
    return {name: beans.value(bean, name) for name in names if policy.member("read", bean.name, name)}


def _value(beans: Beans, bean: Bean, attribute: str, policy: Policy) -> Any:
    if not policy.member("read", bean.name, attribute):
        return None
    try:
        return beans.value(bean, attribute)
    except JmxError:
        return None


def _error(code: int, message: str) -> Page:
    return _page(code, {"result": "ERROR", "message": message})


def _page(code: int, body: dict[str, Any]) -> Page:
    return Page(code, f"{json.dumps(body, indent=2)}\n".encode(), _TYPE)

"""Finds, reads, writes and calls the beans behind one port."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import chain
from typing import Any

from inbound.group.operations import Operation
from inbound.http.server.page import Page
from inbound.observe.jmx import tables
from inbound.observe.jmx.model import (
    VOID,
    Attribute,
    Bean,
    BeanTarget,
    BeanType,
    JmxError,
    action_of,
    converted,
    no_attribute,
    no_instance,
)
from inbound.observe.jmx.names import ObjectName
from inbound.observe.metrics import Snapshot
from inbound.observe.status.status import ProcessStatus

#: Java's exception for the admin port's answer to an operation.
_JAVA = {
    HTTPStatus.BAD_REQUEST: "java.lang.IllegalArgumentException",
    HTTPStatus.NOT_FOUND: "java.lang.IllegalArgumentException",
    HTTPStatus.SERVICE_UNAVAILABLE: "java.lang.IllegalStateException",
    HTTPStatus.CONFLICT: "java.lang.UnsupportedOperationException",
}

#: Carries out an operation on a channel, and returns the answer to the request.
Operate = Callable[[str, Operation], Page]


def beans_of(found: ProcessStatus | Sequence[ProcessStatus]) -> Iterator[Bean]:
    """Return the beans of one process, or of several.

    With several, each name has the key `process`, the number of the process.
    """
    if isinstance(found, ProcessStatus):
        return _of_process(found, {})
    return chain.from_iterable(_of_process(one, {"process": number}) for number, one in enumerate(found))


def _of_process(process: ProcessStatus, which: Mapping[str, int]) -> Iterator[Bean]:
    life = (process.pid, process.started)

    def bean(kind: BeanType[Any], of: Any, target: BeanTarget | None = None, *more: Any, **keys: str | int) -> Bean:
        name = ObjectName.of(type=kind.type, **keys, **which)
        return Bean(name, kind, of, target, (*life, *more))

    yield bean(tables.RUNTIME, process)
    session = process.session if process.problem is None else None
    parts: Sequence[tuple[BeanType[Any], object]] = (
        (tables.CONTROLLER, session),
        (tables.CONFIGURATION, process.reload),
        (tables.INGRESS, process.ingress),
        (tables.SHIPPING, process.ledger_shipping),
    )
    yield from (bean(kind, part) for kind, part in parts if part is not None)
    for channel in process.channels:
        target = BeanTarget(channel.name, channel.consumer_id)
        yield bean(tables.CHANNEL, channel, target, name=channel.name)
        yield bean(tables.PROCESSOR, channel, target, channel=channel.name)
        if channel.ledger is not None:
            yield bean(tables.LEDGER, channel, target, channel=channel.name)
        if "subscriber" in channel.processor:
            yield bean(tables.DISPATCHER, channel.processor, target, channel=channel.name)
        for one in channel.partitions:
            yield bean(
                tables.PARTITION, one, BeanTarget(channel.name, channel.consumer_id, one.topic, one.partition), one.epoch,
                channel=channel.name, topic=one.topic, partition=one.partition,
            )  # fmt: skip


class CounterResets:
    """The values of counters at their last `resetCounters`. Any thread."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, tuple[Any, ...]], Mapping[str, int]] = {}

    def reset(self, bean: Bean, living: Collection[Bean]) -> None:
        """Reset the counters of `bean`; forget beans that are not `living`."""
        alive = {(one.name.canonical, one.life) for one in living}
        now = {a.name: a.read(bean.of) for a in bean.kind.attributes if a.counter}
        self._taken = {key: taken for key, taken in self._taken.items() if key in alive} | {
            (bean.name.canonical, bean.life): now
        }

    def value(self, bean: Bean, attribute: Attribute[Any]) -> Any:
        value = attribute.read(bean.of)
        taken = self._taken.get((bean.name.canonical, bean.life)) if attribute.counter else None
        return value if taken is None else value - taken[attribute.name]


class Beans:
    """The beans during one request. One thread.

    They show one snapshot, and another one after each change.
    """

    def __init__(self, snapshot: Snapshot, operate: Operate | None, counters: CounterResets) -> None:
        """`snapshot` is called at the first look; its errors are raised there."""
        self._snapshot = snapshot
        self._operate = operate
        self._counters = counters
        self._found: dict[str, Bean] | None = None

    def all(self) -> Collection[Bean]:
        return self._now().values()

    def find(self, pattern: ObjectName) -> list[Bean]:
        """Return the beans of a name, or of a pattern."""
        if not pattern.is_pattern:
            found = self._now().get(pattern.canonical)
            return [found] if found is not None else []
        return [bean for bean in self._now().values() if pattern.matches(bean.name)]

    def get(self, name: ObjectName) -> Bean:
        """Return the bean of that name; raises JmxError: there is none."""
        found = self._now().get(name.canonical)
        if found is None:
            raise no_instance(name)
        return found

    def value(self, bean: Bean, attribute: str) -> Any:
        """Return an attribute's value for JSON; raises JmxError: no such attribute."""
        return self._counters.value(bean, _attribute(bean, attribute))

    def write(self, bean: Bean, attribute: str, value: Any) -> Any:
        """Write an attribute; return its former value.

        Raises:
            JmxError: it cannot be written, or not this value.
        """
        found = _attribute(bean, attribute)
        if found.write is None or not bean.writable(found):
            why = "" if found.writable is None else f": {found.description}"
            raise no_attribute(f"Can't write attribute: {attribute}{why}")
        assert bean.target is not None
        wanted = found.write(bean.target, converted(value, found.type, attribute))
        before = self.value(bean, attribute)
        self._do(bean.target, wanted)
        return before

    def call(self, bean: Bean, operation: str, arguments: Sequence[Any] | None) -> Any:
        """Call an operation; return its answer.

        Raises:
            JmxError: there is no such operation, or it failed.
        """
        action = action_of(bean, operation, arguments)
        given = [
            converted(value, parameter.type, f"{action.name}: {parameter.name}")
            for value, parameter in zip(arguments or (), action.parameters, strict=True)
        ]
        if action.make is None:
            self._counters.reset(bean, self.all())
            return None
        assert bean.target is not None
        answer = self._do(bean.target, action.make(bean.target, *given))
        return None if action.returns == VOID else answer

    # -- inside ------------------------------------------------------------------------------------------------------

    def _now(self) -> dict[str, Bean]:
        if self._found is None:
            self._found = {bean.name.canonical: bean for bean in beans_of(self._snapshot())}
        return self._found

    def _do(self, target: BeanTarget, operation: Operation) -> str:
        if self._operate is None:
            raise JmxError("nothing can be changed here", 403, "java.lang.SecurityException")
        page = self._operate(target.channel, operation)
        self._found = None
        return _answer(page)


def _attribute(bean: Bean, name: str) -> Attribute[Any]:
    found = bean.kind.attribute(name)
    if found is None:
        raise no_attribute(f"No such attribute: {name}")
    return found


def _answer(page: Page) -> str:
    """Return the message of an operation's page; raise JmxError if it failed."""
    text = page.body.decode(errors="replace")
    if page.code == HTTPStatus.OK:
        return str(json.loads(text)["message"])
    raise JmxError(text.strip(), page.code, _JAVA.get(HTTPStatus(page.code), "javax.management.MBeanException"))

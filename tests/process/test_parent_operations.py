"""The parent of several processes passes operations on to them, and answers where some are silent."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from inbound.admin.listener import AdminServer
from inbound.admin.routes import answered
from inbound.cli.run.processes import Supervisor
from inbound.config import load
from inbound.group.operations import Operation, OperationKind, OperationResult
from inbound.http.server.page import Page
from inbound.observe.status.status import ProcessStatus
from tests.observe.status.made_status import channel, process

CONFIG = """\
zookeeper: {hosts: "127.0.0.1:1"}
kafka: {bootstrap.servers: "127.0.0.1:1"}
admin: {listen: "127.0.0.1:0"}
channels:
  orders: {topics: [orders], group: svc, processor: {type: simple, options: {sinks: [log]}}}
"""
RATE = Operation(OperationKind.RATE, per_second=50.0)

Answers = Callable[..., Page]


class Children:
    """The admin ports of children, each with one channel; some of them have ended, or have not begun."""

    def __init__(self, open_now: ExitStack) -> None:
        self._open_now = open_now
        self.done: list[str] = []

    def url(self, name: str) -> str:
        """Return where a child answers; it is `host-NAME` in the group."""

        def snapshot() -> ProcessStatus:
            return process(channels=[channel(consumer_id=f"host-{name}")])

        def operate(to: str, operation: Operation) -> Page:
            self.done.append(name)
            return answered(lambda: OperationResult(to, "svc", operation.verb.value, None, True, "done", [name], []))

        server = AdminServer(snapshot, host="127.0.0.1", port=0, port_given=True, operate=operate)
        self._open_now.callback(server.close)
        server.start()
        return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def children() -> Iterator[Children]:
    """End them all afterwards."""
    with ExitStack() as open_now:
        yield Children(open_now)


def told(urls: list[str | None], operation: Operation) -> tuple[int, str]:
    """Return what the parent of these answers: the code, and the text."""
    args = argparse.Namespace(processes=len(urls), config="inbound.yaml", verbose=False, set=[])
    parent = Supervisor(args, load(CONFIG, filename="inbound.yaml"))
    for child, url in zip(parent._children, urls, strict=True):
        child.url = url
    page = parent._operate("orders", operation)
    return page.code, page.body.decode()


DEAD = "http://127.0.0.1:1"
RATE_OF_B = Operation(OperationKind.RATE, consumer="host-b", per_second=50.0)
SILENT = "process 1 does not answer, and may still have the old rate"


@pytest.mark.parametrize(
    ("processes", "operation", "code", "done", "said"),
    [
        (["a", "b"], RATE, 200, ["a", "b"], ""),
        (["a", DEAD, "c"], RATE, 503, ["a", "c"], SILENT),  # asking again does no harm
        (["a", None, "c"], RATE, 503, ["a", "c"], SILENT),
        ([None, "a", "b"], RATE_OF_B, 200, ["b"], ""),  # a silent process may be that member only if no other is
        ([None, "b", "c"], Operation(OperationKind.PAUSE), 200, ["b"], ""),
        (
            [None, DEAD],
            Operation(OperationKind.PAUSE),
            503,
            [],
            "no process answers; ask again, or use the command line\n",
        ),
    ],
    ids=["a rate for all", "one is dead", "one starts", "a rate for one member", "for the group", "no answer"],
)
def test_what_the_parent_passes_on(
    children: Children, processes: list[str | None], operation: Operation, code: int, done: list[str], said: str
) -> None:
    """A rate goes to every process, and is no success if one has not taken it; a pause is done once, by any of them."""
    urls = [one if one in (None, DEAD) else children.url(one) for one in processes]
    found, text = told(urls, operation)
    assert (found, children.done, said in text) == (code, done, True)

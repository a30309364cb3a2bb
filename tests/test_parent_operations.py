"""What the parent of several processes passes on to them, and what it answers when not all of them can be asked."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from inbound.cli.processes import Supervisor
from inbound.config import load
from inbound.http.admin import AdminServer
from inbound.http.operations import answered
from inbound.http.pages import Page
from inbound.operations import Done, Operation, Verb
from inbound.status import ProcessStatus
from tests.made_status import channel, process

CONFIG = """\
zookeeper: {hosts: "127.0.0.1:1"}
kafka: {bootstrap.servers: "127.0.0.1:1"}
admin: {listen: "127.0.0.1:0"}
channels:
  orders: {topics: [orders], group: svc, processor: {type: simple, options: {sinks: [log]}}}
"""
RATE = Operation(Verb.RATE, per_second=50.0)

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
            return answered(lambda: Done(to, "svc", operation.verb.value, None, True, "done", [name], []))

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
    """Return what the parent of these answers: the code, and what it says."""
    args = argparse.Namespace(processes=len(urls), config="inbound.yaml", verbose=False, set=[])
    parent = Supervisor(args, load(CONFIG, filename="inbound.yaml"))
    for child, url in zip(parent._children, urls, strict=True):
        child.url = url
    page = parent._operate("orders", operation)
    return page.code, page.body.decode()


def test_a_rate_goes_to_every_process(children: Children) -> None:
    """Each has one of its own."""
    code, _ = told([children.url("a"), children.url("b")], RATE)
    assert (code, children.done) == (200, ["a", "b"])


@pytest.mark.parametrize("silent", ["http://127.0.0.1:1", None], ids=["dead", "starting"])
def test_a_rate_that_not_all_have_taken_is_no_success(children: Children, silent: str | None) -> None:
    """It names who has not; those who can be asked have it, and asking again does no harm."""
    code, said = told([children.url("a"), silent, children.url("c")], RATE)
    assert (code, children.done) == (503, ["a", "c"])
    assert "process 1 does not answer, and may have its rate as it was" in said


def test_a_rate_of_one_member_concerns_no_other(children: Children) -> None:
    """Whoever is silent may be that member only if nobody else says to be it."""
    operation = Operation(Verb.RATE, consumer="host-b", per_second=50.0)
    code, _ = told([None, children.url("a"), children.url("b")], operation)
    assert (code, children.done) == (200, ["b"])


def test_what_is_for_the_group_is_done_by_whoever_answers(children: Children) -> None:
    """Once."""
    code, _ = told([None, children.url("b"), children.url("c")], Operation(Verb.PAUSE))
    assert (code, children.done) == (200, ["b"])


def test_nobody_answers(children: Children) -> None:
    """It says what to do."""
    code, said = told([None, "http://127.0.0.1:1"], Operation(Verb.PAUSE))
    assert (code, said.strip()) == (503, "no process answers; ask again, or use the command line")

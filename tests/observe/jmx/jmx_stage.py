"""An admin port whose process is made by hand, for the tests of the JMX face."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from inbound.admin.listener import AdminServer
from inbound.admin.routes import answered
from inbound.config import load_policy
from inbound.errors import ConfigError
from inbound.group.operations import BadOperationError, Operation, OperationKind, OperationResult, UnknownTargetError
from inbound.http.server.rights import Token
from inbound.observe.jmx.policy import Policy
from inbound.observe.status.status import ProcessStatus
from tests.observe.status.made_status import Answer, channel, process, send

CHANNEL = "inbound:type=Channel,name=orders"
PARTITION = "inbound:type=Partition,channel=orders,topic=orders,partition=0"


@dataclass
class Made:
    """A process that carries out operations, as far as its status shows them."""

    status: ProcessStatus | list[ProcessStatus] = field(
        default_factory=lambda: process(channels=[channel(paced=True, max_read_rate=5.0)])
    )
    asked: list[tuple[str, Operation]] = field(default_factory=list)

    def snapshot(self) -> ProcessStatus | list[ProcessStatus]:
        return self.status

    def __call__(self, name: str, operation: Operation) -> OperationResult:
        self.asked.append((name, operation))
        if operation.verb is OperationKind.RATE:
            self.status = process(channels=[channel(paced=True, max_read_rate=operation.per_second)])
        if operation.topic == "nowhere":
            raise UnknownTargetError("member host-1 does not hold nowhere/0")
        if operation.reason == "bad":
            raise BadOperationError("it cannot be paused")
        verb = operation.verb.value
        return OperationResult(
            name, "orders-svc", verb, operation.consumer, True, f"{name}: {verb} done", ["host-1"], []
        )


@dataclass
class Port:
    """The admin port of a process."""

    url: str
    made: Made

    def ask(self, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        """Send a request on a connection of its own; `body` goes as JSON, or as it is if it is bytes."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return send(self.url, quote(path, safe="/?&=%:*,!()[]\"'"), method, given, sent)

    def jolokia(self, path: str = "", body: Any = None, **headers: str) -> Any:
        """Return what is answered to a request under /jolokia, without its time."""
        answer = self.ask(f"/jolokia{path}", method="GET" if body is None else "POST", body=body, **headers)
        found = json.loads(answer.text)
        statuses = {one["status"] for one in (found if isinstance(found, list) else [found])}
        assert answer.code == (401 if 401 in statuses else 200), answer
        for one in found if isinstance(found, list) else [found]:
            assert isinstance(one.pop("timestamp", 0), int)
        return found


MakePort = Callable[..., Port]


@pytest.fixture
def make_port() -> Iterator[MakePort]:
    """Serve a made process until the end of the test."""
    with ExitStack() as open_now:

        def start(
            made: Made | None = None,
            *,
            policy: str | Callable[[], Policy] | None = None,
            token: Token | None = None,
            host: str = "127.0.0.1",
        ) -> Port:
            one = made or Made()
            server = AdminServer(
                one.snapshot,
                host=host,
                port=0,
                port_given=True,
                operate=lambda name, operation: answered(lambda: one(name, operation)),
                policy=_policy(policy),
                token=token,
            )
            open_now.callback(server.close)
            server.start()
            return Port(f"http://127.0.0.1:{server.port}", one)

        yield start


@pytest.fixture
def port(make_port: MakePort) -> Port:
    return make_port()


def _policy(policy: str | Callable[[], Policy] | None) -> Callable[[], Policy] | None:
    if not isinstance(policy, str):
        return policy
    fixed = Policy(load_policy(policy, "policy.yaml"), "policy.yaml")
    return lambda: fixed


def unreadable() -> Policy:
    """Stand for a policy file that went bad."""
    raise ConfigError("policy.yaml:1: deny: need a list, got 3")

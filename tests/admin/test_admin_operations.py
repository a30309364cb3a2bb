"""Operations by POST on the admin port: what they answer, and who may ask."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from inbound.admin.routes import Operations, answered
from inbound.errors import ConfigError, ZkUnavailableError
from inbound.group.operations import Operation, OperationKind, OperationResult, UnknownTargetError
from inbound.http.server.rights import Rights
from inbound.http.server.server import Request
from tests.admin.admin_stage import Make, make
from tests.observe.status.made_status import ask

__all__ = ["make"]  # the fixture

Asked = list[tuple[str, Operation]]


class Recorder:
    """Notes each operation, and does it or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: Asked = []
        self.failure = failure

    def __call__(self, channel: str, operation: Operation) -> OperationResult:
        self.asked.append((channel, operation))
        if self.failure is not None:
            raise self.failure
        verb = operation.verb.value
        return OperationResult(channel, "svc", verb, operation.consumer, True, f"{channel}: done", ["a"], ["operator"])


def serve(make: Make, recorder: Recorder, **settings: Any) -> str:
    """Serve operations; gives back the URL."""
    server = make(operate=lambda channel, operation: answered(lambda: recorder(channel, operation)), **settings)
    return f"http://127.0.0.1:{server.port}"


def test_a_post_does_what_its_path_says_and_answers_what_was_done(make: Make) -> None:
    """Channel names and parameters are decoded; the index names the operations."""
    recorder = Recorder()
    url = serve(make, recorder)
    answer = ask(url, "/channels/my%20orders/pause?consumer=a-1&reason=a%20new%20disk", "POST")
    assert (answer.code, json.loads(answer.text)) == (
        200,
        {
            "v": 1, "channel": "my orders", "group": "svc", "operation": "pause", "consumer": "a-1", "changed": True,
            "message": "my orders: done", "members": ["a"], "held_by": ["operator"],
        },
    )  # fmt: skip
    ask(url, "/channels/orders/resume", "POST")
    ask(url, "/channels/orders/rebalance", "POST")
    assert recorder.asked == [
        ("my orders", Operation(OperationKind.PAUSE, "a-1", "a new disk")),
        ("orders", Operation(OperationKind.RESUME)),
        ("orders", Operation(OperationKind.REBALANCE)),
    ]
    assert "POST /channels/<name>/pause, /resume, /rebalance" in ask(url, "/").text


@pytest.mark.parametrize(
    ("method", "path", "code", "said"),
    [
        ("GET", "/channels/orders/pause", 405, "/channels/orders/pause is done by POST\n"),
        ("PUT", "/channels/orders/resume", 405, "/channels/orders/resume is done by POST\n"),
        ("POST", "/status", 405, "/status can be read only: GET, HEAD\n"),
        ("POST", "/channels/orders/stop", 404, "no such page; "),
        ("POST", "/channels//pause", 404, "no such page; "),
        ("POST", "/channels/orders/pause?consumr=a", 400, "pause: parameters are consumer, reason, each once; got consumr=a"),
        ("POST", "/channels/orders/pause?consumer=a&consumer=b", 400, "pause: parameters are consumer, reason, each once"),
        ("POST", "/channels/orders/rebalance?consumer=a", 400, "rebalance: parameters are none, each once"),
    ],
)  # fmt: skip
def test_what_is_no_operation_is_refused(make: Make, method: str, path: str, code: int, said: str) -> None:
    """Above all, nothing is done by reading a page: a crawler that follows links must not pause a group."""
    recorder = Recorder()
    answer = ask(serve(make, recorder), path, method)
    assert (answer.code, answer.text.startswith(said), recorder.asked) == (code, True, []), answer.text
    if code == 405:
        assert answer.headers["Allow"] == ("POST" if "channels" in path else "GET, HEAD")


@pytest.mark.parametrize(
    ("failure", "code", "said"),
    [
        (UnknownTargetError("no channel 'x'; there are: orders"), 404, "no channel 'x'; there are: orders\n"),
        (ZkUnavailableError("ZooKeeper: away"), 503, "ZooKeeper: away; ask again: that is safe\n"),
        (RuntimeError("a defect"), 500, "it failed; see the log of the process\n"),
    ],
)
def test_what_fails_says_so(make: Make, failure: Exception, code: int, said: str) -> None:
    """With a code that tells who must act; what a defect says stays in the log."""
    answer = ask(serve(make, Recorder(failure)), "/channels/orders/pause", "POST")
    assert (answer.code, answer.text) == (code, said)


# -- who may -------------------------------------------------------------------------------------------------------


def test_nothing_is_done_or_told_to_a_subscription(make: Make) -> None:
    """Who may name a subscriber could name this port, and is this process, which is let in everywhere."""
    recorder = Recorder()
    url = serve(make, recorder, token=lambda: "s3cret")
    mark = {"Inbound-Dispatched": "1", "Authorization": "Bearer s3cret"}
    answers = [ask(url, path, verb, **mark) for path, verb in (("/channels/orders/pause", "POST"), ("/status", "GET"))]
    assert ([answer.code for answer in answers], recorder.asked) == ([403, 403], [])
    assert "correct its subscriberUri, replyUri or deadLetterSink" in answers[0].text


def test_a_port_that_other_machines_reach_does_nothing_without_a_token(make: Make) -> None:
    """Reading goes on; the message says what to set."""
    recorder = Recorder()
    url = serve(make, recorder, host="0.0.0.0")
    answer = ask(url, "/channels/orders/pause", "POST")
    assert (answer.code, "set admin.token_file" in answer.text, recorder.asked) == (403, True, [])
    assert ask(url, "/status").code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer ", 401),
        ("Basic s3cret", 401),
        ("s3cret", 401),
        ("Bearer s3crét", 401),
        ("Bearer s3cret", 200),
        ("bearer  s3cret", 200),
    ],
)
def test_a_token_that_is_set_must_be_sent(make: Make, host: str, sent: str | None, code: int) -> None:
    """On loopback too. The token is never part of an answer."""
    url = serve(make, Recorder(), token=lambda: "s3cret", host=host)
    headers = {} if sent is None else {"Authorization": sent}
    answer = ask(url, "/channels/orders/pause", "POST", **headers)
    assert (answer.code, "s3cr" in answer.text) == (code, False)
    if code == 401:
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_token_that_cannot_be_read_any_more_refuses_every_client(make: Make) -> None:
    """A mounted secret may be gone; the reason is in the log only."""

    def gone() -> str:
        raise ConfigError("admin.token_file: /run/secret cannot be read: No such file or directory")

    recorder = Recorder()
    answer = ask(serve(make, recorder, token=gone), "/channels/orders/pause", "POST", Authorization="Bearer x")
    assert (answer.code, "secret" in answer.text, recorder.asked) == (503, False, [])


BROWSERS = [
    # Host, Origin, and whether it is done
    ("localhost:8081", None, True),
    ("127.0.0.1:8081", None, True),
    ("[::1]:8081", None, True),
    ("LOCALHOST:8081", "http://localhost:8081", True),
    ("localhost:8081", "https://evil.example", False),
    ("localhost:8081", "http://localhost:3000", False),
    ("localhost:8081", "null", False),
    ("localhost:8081", "", False),
    ("evil.example:8081", None, False),  # its name in the DNS was made to point here
    ("evil.example:8081", "http://evil.example:8081", False),
    ("127.0.0.1.evil.example", None, False),
    ("10.0.0.7:8081", None, False),
    ("[::1", None, False),
    ("", None, False),
    (None, None, False),
]


@pytest.mark.parametrize(("host", "origin", "done"), BROWSERS)
def test_pages_of_other_sites_cannot_have_anything_done(host: str | None, origin: str | None, done: bool) -> None:
    """A browser on the operator's machine reaches the loopback port with a page of any site."""
    recorder = Recorder()
    operations = Operations(
        Rights(None),
        operate=lambda channel, operation: answered(lambda: recorder(channel, operation)),
    )
    page = operations.answer(Request("POST", "/channels/orders/pause", host=host, origin=origin), "127.0.0.1")
    assert page is not None
    assert (page.code, len(recorder.asked)) == ((200, 1) if done else (403, 0))


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_token_that_travels_in_the_clear_is_warned_of(
    make: Make, host: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Where others could read it on its way."""
    with caplog.at_level(logging.WARNING):
        serve(make, Recorder(), token=lambda: "s3cret", host=host)
    assert ("the token can be read on its way" in caplog.text) == warned

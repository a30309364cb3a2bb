"""Bearer tokens: asked for, kept for most of their time, renewed, refused; against a server of this machine."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.kafka.auth.tokens import UNKNOWN_LIFE, Tokens
from tests.http_receiver import Receiver


@pytest.fixture
def server() -> Iterator[Receiver]:
    """A server for tokens."""
    with closing(Receiver()) as one:
        answers(one, 200, {"access_token": "tok-1", "expires_in": 100})
        one.answer_headers["location"] = "http://127.0.0.1:1/elsewhere"
        yield one


def answers(server: Receiver, status: int, answer: object) -> None:
    """Let the server answer this from now on."""
    server.status = lambda number: status
    server.answer_body = json.dumps(answer).encode()


def url(server: Receiver) -> str:
    return f"{server.url}/token"


class Wall:
    """The time, as a test sets it."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def properties(url: str, secret: str = "hunter2", **more: str) -> dict[str, Any]:
    """Return properties of a client `svc`."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "svc",
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        **more,
    }


def jwt(**claims: object) -> str:
    """Return an unsigned token."""
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def test_a_token_is_asked_for_as_the_standard_says(server: Receiver) -> None:
    """Who we are in the header, what we want in the body."""
    scope = {"sasl.oauthbearer.scope": "read write"}
    token, who = Tokens(lambda: properties(url(server), **scope), Wall()).get()

    assert (token.text, token.ends_at, who.user) == ("tok-1", Wall.now + 100, "svc")
    basic = base64.b64encode(b"svc:hunter2").decode()
    (request,) = server.requests
    assert (request.headers["authorization"], parse_qs(request.body.decode())) == (
        f"Basic {basic}",
        {"grant_type": ["client_credentials"], "scope": ["read write"]},
    )
    assert "tok-1" not in repr(token)
    assert "hunter2" not in repr(who)


def test_a_token_is_kept_for_most_of_its_time(server: Receiver) -> None:
    """Four fifths; a lock step with its end would come too late."""
    wall = Wall()
    tokens = Tokens(lambda: properties(url(server)), wall)
    for after in (0, 79, 81, 160, 162):
        wall.now = Wall.now + after
        tokens.get()

    assert len(server.requests) == 3


def test_when_a_token_ends_is_read_off_it(server: Receiver) -> None:
    """Its own claim counts, then the server's, then a guess."""
    ends = []
    for answer in (
        {"access_token": jwt(exp=Wall.now + 7, sub="me"), "expires_in": 100},
        {"access_token": jwt(sub="me"), "expires_in": 100},
        {"access_token": "opaque"},
        {"access_token": "a.%%%.c"},
    ):
        answers(server, 200, answer)
        ends.append(Tokens(lambda: properties(url(server)), Wall()).get()[0].ends_at - Wall.now)

    assert ends == [7, 100, UNKNOWN_LIFE, UNKNOWN_LIFE]


def test_a_secret_that_was_rotated_is_used_at_once(server: Receiver) -> None:
    """The token of the old one is not waited for."""
    given = properties(url(server))
    tokens = Tokens(lambda: given, Wall())
    tokens.get()
    given["sasl.oauthbearer.client.credentials.client.secret"] = "other"
    tokens.get()

    assert server.requests[1].headers["authorization"] == f"Basic {base64.b64encode(b'svc:other').decode()}"


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (401, {"error": "invalid_client", "error_description": "hunter2"},
         "refused client svc (HTTP 401, invalid_client); check the client's id and secret"),
        (400, {"error": "hunter2"}, "refused client svc (HTTP 400); check the client's id and secret"),
        (503, "busy", "refused client svc (HTTP 503); it is asked again"),
        (302, {}, "refused client svc (HTTP 302); it is asked again"),
        (200, {"token": "hunter2"}, "answered without an access_token; is it the right URL?"),
        (200, ["hunter2"], "answered without an access_token"),
    ],
)  # fmt: skip
def test_what_a_server_answers_instead_is_reported_without_secrets(
    server: Receiver, status: int, answer: object, words: str
) -> None:
    """Redirections are not followed: the secret would go with them."""
    answers(server, status, answer)
    with pytest.raises(BrokerUnavailableError) as caught:
        Tokens(lambda: properties(url(server) + "?key=hunter2"), Wall()).get()

    assert str(caught.value).startswith(f"no token for Kafka: {url(server)} ")
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(server.requests) == 1


def test_a_server_that_is_away_is_named(server: Receiver) -> None:
    """And asked again by the next connection."""
    where = url(server)
    tokens = Tokens(lambda: properties(where), Wall())
    assert tokens.get()[0].text == "tok-1"
    where = "http://127.0.0.1:1/token"
    with pytest.raises(BrokerUnavailableError, match=r"http://127\.0\.0\.1:1/token does not answer"):
        tokens.get()


def test_a_token_in_a_file_is_read_at_each_use(tmp_path: Path) -> None:
    """A new file is used without a restart."""
    place = tmp_path / "token"
    place.write_text(jwt(exp=Wall.now + 100, sub="dave") + "\n")
    tokens = Tokens(lambda: properties(place.as_uri()), Wall())
    first = tokens.get()[0]
    place.write_text("opaque")

    assert (first.subject, first.ends_at) == ("dave", Wall.now + 100)
    assert tokens.get()[0].text == "opaque"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (jwt(exp=Wall.now - 60), "has expired 60 s ago; put a new one there"),
        ("", "must hold one word: the token"),
        ("two words", "must hold one word: the token"),
    ],
)
def test_a_token_that_cannot_be_used_is_reported(tmp_path: Path, text: str, words: str) -> None:
    """By the name of its file."""
    place = tmp_path / "token"
    place.write_text(text)
    with pytest.raises(BrokerUnavailableError, match=words):
        Tokens(lambda: properties(place.as_uri()), Wall()).get()


def test_a_missing_file_is_the_configurations_fault(tmp_path: Path) -> None:
    """As any other file that it names."""
    with pytest.raises(ConfigError, match=r"token\.endpoint\.url: .*/none cannot be read"):
        Tokens(lambda: properties((tmp_path / "none").as_uri()), Wall()).get()

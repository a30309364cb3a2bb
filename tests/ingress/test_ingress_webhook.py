"""The handshake of webhooks: a sender asks by OPTIONS whether it may post here."""

from __future__ import annotations

import pytest

from inbound.config import IngressConfig
from tests.ingress.ingress_stage import EVENT, Stage, request, statuses

ORIGIN = {"WebHook-Request-Origin": "events.example.com"}


def asked(stage: Stage, headers: dict[str, str], target: str = "/topics/orders") -> tuple[int, dict[str, str]]:
    """Ask, and return the status and those headers of the answer that are the handshake's."""
    answer = stage.post(request(target, headers, b"", method="OPTIONS"))
    lines = [line.partition(": ") for line in answer.decode().partition("\r\n\r\n")[0].split("\r\n")[1:]]
    told = {name: value for name, _, value in lines if name == "Allow" or name.startswith("WebHook-")}
    return statuses(answer)[0], told


def test_every_sender_may_post_as_with_knatives_receivers() -> None:
    """At any rate. The callback that it names is never called."""
    stage = Stage()
    wishes = {"WebHook-Request-Rate": "120", "WebHook-Request-Callback": "http://169.254.169.254/latest/meta-data"}

    assert asked(stage, {**ORIGIN, **wishes}) == (
        200,
        {"Allow": "POST, OPTIONS", "WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "*"},
    )
    assert stage.receiver.counters.answers == {200: 1}


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("events.example.com", 200),
        ("EVENTS.example.com", 200),
        ("events.example.com:443", 403),
        ("evil.test", 403),
        ("example.com.evil.test", 403),
        ("a b.example.com", 403),
        ("", 403),
    ],
)
def test_only_senders_that_are_listed_may_post(origin: str, status: int) -> None:
    """The answer names the sender; without that header it is no permission."""
    stage = Stage(IngressConfig(webhook_origins=("*.example.com", "other.test")))

    told = asked(stage, {"webhook-request-origin": origin})

    permission = {"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"} if status == 200 else {}
    assert told == (status, {"Allow": "POST, OPTIONS", **permission})


@pytest.mark.parametrize(
    ("headers", "target", "status", "told"),
    [
        ({}, "/topics/orders", 200, {"Allow": "POST, OPTIONS"}),
        ({}, "*", 200, {"Allow": "POST, OPTIONS"}),
        ({"origin": "https://shop.example", "access-control-request-method": "POST"}, "/", 404, {}),
        (ORIGIN, "/nowhere", 404, {}),
        (ORIGIN, "/topics/__consumer_offsets", 404, {}),
        ({**ORIGIN, "webhook-request-origin": "b.example.com"}, "/topics/orders", 400, {"Allow": "POST, OPTIONS"}),
    ],
)
def test_what_is_no_handshake_is_no_permission(
    headers: dict[str, str], target: str, status: int, told: dict[str, str]
) -> None:
    """Without its header, for what is no target, with two senders."""
    assert asked(Stage(), headers, target) == (status, told)


def test_a_handshake_needs_no_token_and_says_nothing_of_topics_without() -> None:
    """The POST that follows needs the token."""
    stage = Stage(IngressConfig(topics=("orders",)))
    stage.receiver.token = "swordfish"

    stranger = [asked(stage, ORIGIN, target)[0] for target in ("/topics/orders", "/topics/secret")]
    known = [
        asked(stage, {**ORIGIN, "authorization": "Bearer swordfish"}, target)[0]
        for target in ("/topics/orders", "/topics/secret")
    ]

    assert (stranger, known) == ([200, 200], [200, 404])
    assert statuses(stage.post(request(headers={**EVENT, **ORIGIN}))) == [401]


@pytest.mark.parametrize("origin", ["", "https://a.example", "a b"])
def test_what_cannot_be_a_sender_is_refused(origin: str) -> None:
    """A sender is a name of the DNS."""
    with pytest.raises(ValueError, match=r"need the name of a sender such as \*\.example\.com"):
        IngressConfig(webhook_origins=(origin,))

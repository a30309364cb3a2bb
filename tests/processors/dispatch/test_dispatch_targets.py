"""Whom a subscription posts to: the header lines that go with every request, and the credentials in files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from inbound.config.secrets import KNOWN
from inbound.errors import ConfigError
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Targets, targets_of
from tests.http_receiver import CERTIFICATES

EVERYBODY = {
    "subscriberUri": "http://a/in",
    "replyUri": "http://b/replies",
    "delivery": {"deadLetterSink": {"uri": "http://c/dead"}},
}
#: As `TokenRequest` makes them: three parts, with dots between.
TOKEN, NEXT = "eyJhbGciOi.eyJhdWQiOi.c2lnbmF0dXJl", "eyJhbGciOj.eyJhdWQiOj.c2lnbmF0dXJm"


def targets(**given: Any) -> Targets:
    return targets_of(DispatchOptions.model_validate({**EVERYBODY, **given}))


def sent(found: Targets, name: bytes) -> list[list[bytes]]:
    """Return the values of a header, in what goes to the subscriber, for replies, and to the dead letter sink."""
    lines = [[line.split(b": ", 1) for line in target.headers] for target in found if target]
    return [[value for named, value in each if named.lower() == name] for each in lines]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("pipe", "must hold one line of printable ASCII; correct it"), ("endless", "(File too large)")],
)
def test_what_stands_in_place_of_a_token_s_file_is_not_waited_for(tmp_path: Path, kind: str, problem: str) -> None:
    """A pipe without a writer, and a device that has no end."""
    if kind == "pipe":
        os.mkfifo(tmp_path / "token")
    else:
        (tmp_path / "token").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=re.escape(problem)):
        targets(token_file=tmp_path / "token")


def test_every_request_of_a_subscription_has_its_mark() -> None:
    """To the subscriber, to whom replies go, and to the dead letter sink: admin ports refuse what has it."""
    assert sent(targets(), b"inbound-dispatched") == [[b"1"]] * 3


def test_a_subscriber_is_always_asked_for_a_reply() -> None:
    """As Knative's dispatchers do; others are not asked."""
    assert sent(targets(), b"prefer") == [[b"reply"], [], []]


def test_headers_of_the_options_take_the_place_of_our_own() -> None:
    """They go to the subscriber alone."""
    found = targets(headers={"User-Agent": "shop", "Prefer": "respond-async"})
    assert (sent(found, b"user-agent"), sent(found, b"prefer")) == (
        [[b"shop"], [b"inbound"], [b"inbound"]],
        [[b"respond-async"], [], []],
    )


def test_a_token_goes_to_the_subscriber_alone(tmp_path: Path) -> None:
    """It is for no other receiver. What the file holds is never shown."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")

    found = targets(token_file=tmp_path / "token")

    assert sent(found, b"authorization") == [[f"Bearer {TOKEN}".encode()], [], []]
    assert (TOKEN in repr(found), TOKEN in KNOWN.hide(f"sent {TOKEN}")) == (False, False)


def test_each_receiver_gets_the_token_of_its_own_audience(tmp_path: Path) -> None:
    """The audience names the file, percent-encoded: none of them leads out of the folder. Who has none gets no token."""
    (tmp_path / "messaging.knative.dev%2Fsubscription%2Fshop").write_text(TOKEN)
    (tmp_path / "dead").write_text(NEXT)
    found = targets(
        token_file=tmp_path / "{audience}",
        subscriberAudience="messaging.knative.dev/subscription/shop",
        delivery={"deadLetterSink": {"uri": "http://c/dead", "audience": "dead"}},
    )
    assert sent(found, b"authorization") == [[f"Bearer {TOKEN}".encode()], [], [f"Bearer {NEXT}".encode()]]


def test_a_token_that_was_renewed_is_taken_with_the_options(tmp_path: Path) -> None:
    """Hot reload reads them again when a file that they name changes."""
    options = DispatchOptions.model_validate({**EVERYBODY, "token_file": tmp_path / "token"})
    found = []
    for token in (TOKEN, NEXT):
        (tmp_path / "token").write_text(token)
        found += sent(targets_of(options), b"authorization")[0]
    assert found == [f"Bearer {TOKEN}".encode(), f"Bearer {NEXT}".encode()]


@pytest.mark.parametrize(
    ("content", "audience", "problem"),
    [
        (None, "a", "token_file: cannot read {file} (No such file or directory): correct the file, or `token_file`"),
        ("", "a", "token_file: {file} must hold one line of printable ASCII; correct it"),
        (f"{TOKEN}\n{TOKEN}", "a", "token_file: {file} must hold one line of printable ASCII; correct it"),
        (f"Bearer {TOKEN}", "a", "token_file: {file} must hold a token alone, without blanks or Bearer; correct it"),
        ("x" * 70_000, "a", "token_file: cannot read {file} (File too large): correct the file, or `token_file`"),
        (TOKEN, ".", "token_file: cannot read {folder} (Is a directory): correct the file, or `token_file`"),
        (TOKEN, "..", "token_file: cannot read {folder}/.. (Is a directory): correct the file, or `token_file`"),
        (TOKEN, "../a", "token_file: cannot read {folder}/..%2Fa (No such file or directory): correct the file, or "
                        "`token_file`"),
    ],
)  # fmt: skip
def test_a_token_that_cannot_be_sent_is_refused(
    tmp_path: Path, content: str | None, audience: str, problem: str
) -> None:
    """By the file's name, and no letter of its content."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    if content is not None:
        (folder / "a").write_text(content)

    with pytest.raises(ConfigError) as refused:
        targets(token_file=folder / "{audience}", subscriberAudience=audience)

    assert str(refused.value) == "dispatch: " + problem.format(file=folder / "a", folder=folder)


def test_each_receiver_has_authorities_of_its_own() -> None:
    """Under Knative's names; beside those of `ca_file`, or the system's."""
    pem = (CERTIFICATES / "ca.pem").read_text()
    found = targets(subscriberCACerts=pem, delivery={"deadLetterSink": {"uri": "https://c/dead", "CACerts": pem * 2}})
    assert [target.ca_text for target in found if target] == [pem, None, pem * 2]

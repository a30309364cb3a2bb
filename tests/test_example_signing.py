"""The example `signing`: what its subscriber gets."""

from __future__ import annotations

import hashlib
import hmac
import sys
import threading
from pathlib import Path

import pytest

from inbound.testing.world import World
from tests.dispatch_stage import event_headers
from tests.http_receiver import Receiver, receiver

__all__ = ["receiver"]  # the fixture

EXAMPLE = Path(__file__).parent.parent / "examples" / "signing"


@pytest.mark.slow  # virtual time runs on while real requests are under way
def test_each_request_is_signed(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the secret of the file, over the very bytes of the body."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    from signing import SigningDispatch  # type: ignore[import-not-found]

    (tmp_path / "secret").write_text("hush\n")
    world = World()
    world.kafka.create_topic("orders", 1)
    for number in range(3):
        world.kafka.publish("orders", 0, [b"%d" % number], headers=event_headers(str(number)))
    world.join("a", SigningDispatch(), options={"subscriberUri": receiver.url, "secret_file": str(tmp_path / "secret")})
    answered = threading.Event()  # never set: virtual time alone is over before real requests are answered
    world.run_until(lambda: answered.wait(0.005) or world.commits() == {0: 3}, within=100_000)
    signatures = [request.headers["x-signature"] for request in receiver.requests]
    assert [request.body for request in receiver.requests] == [b"0", b"1", b"2"]
    assert signatures == ["sha256=" + hmac.new(b"hush", r.body, hashlib.sha256).hexdigest() for r in receiver.requests]
    world.leave("a")
    world.consumers["a"].channel.close()

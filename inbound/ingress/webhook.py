"""The handshake of webhooks: a sender asks by OPTIONS whether it may post here.

The rules are those of CloudEvents' "HTTP 1.1 Web Hooks for Event Delivery" 1.0.2, section 4. The handshake protects other sites
from a sender that was given their address. It authenticates nobody: a POST needs the same credentials with it and without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from inbound.globs import glob
from inbound.http.answers import Answer

#: The methods of a target, as Knative's receivers name them.
ALLOW = "Allow: POST, OPTIONS"
_ORIGIN = b"webhook-request-origin"
#: Any sender, in the list of origins and in the answer.
_ANY = "*"
#: A DNS expression: the only thing that an answer repeats in its headers.
_NAME = re.compile(r"[A-Za-z0-9._*-]{1,253}(:[0-9]{1,5})?").fullmatch


class Webhook:
    """Says which senders may post. Pure."""

    def __init__(self, origins: Sequence[str]) -> None:
        """`origins` are names of senders, in which `*` stands for any text."""
        self._any = _ANY in origins
        self._patterns = [glob(origin.lower()) for origin in origins]

    def answer(self, headers: Iterable[tuple[bytes, bytes]]) -> Answer:
        """Answer an OPTIONS. The permission is two headers; no status stands for it.

        Any rate is allowed: the ingress answers 429 when it cannot write as fast as events come. It never calls the
        callback that a request may name: strangers would choose what this process requests, and from where.
        """
        origins = [value.strip().decode("latin-1") for name, value in headers if name.lower() == _ORIGIN]
        if not origins:
            return Answer(200, headers=(ALLOW,))
        if len(origins) > 1:
            return Answer(400, "the header WebHook-Request-Origin is there more than once", headers=(ALLOW,))
        (origin,) = origins
        if self._any:
            origin = _ANY
        elif not _NAME(origin) or not any(pattern.fullmatch(origin.lower()) for pattern in self._patterns):
            reason = f"the sender {origin[:200]} may not post: ingress.webhook_origins does not name it"
            return Answer(403, reason, headers=(ALLOW,))
        return Answer(200, headers=(ALLOW, f"WebHook-Allowed-Origin: {origin}", "WebHook-Allowed-Rate: *"))

"""The receivers of a subscription, and the interface of transports."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import quote

from inbound.config.http_values import AUDIENCE, DISPATCHED
from inbound.errors import ConfigError
from inbound.http.client.exchange import Answer, Done, Target
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.http_headers import header_text, line_in, tls_context

__all__ = ["Answer", "Done", "Target", "Targets", "Transport", "targets_of"]


class Transport(Protocol):
    """Posts requests concurrently, for the thread of one event loop.

    `inbound.http.client.client.Client` is the usual one.
    """

    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        """Send a request once; call `done` later, with the answer."""

    def retire(self, target: Target) -> None:
        """Close the connections to `target` after its requests in flight."""

    def close(self) -> None:
        """Close all connections; drop requests in flight without calling `done`."""


_USER_AGENT = b"user-agent: inbound"
#: Knative's dispatchers always ask for replies; a subscriber may depend on it.
_PREFER = b"prefer: reply"


class Targets(NamedTuple):
    """The receivers of one subscription."""

    subscriber: Target
    reply: Target | None
    dead_letters: Target | None


def targets_of(options: DispatchOptions) -> Targets:
    """Read the options' files, and return the targets.

    Raises:
        ConfigError: a file cannot be used.
    """
    if options.ca_file or options.client_cert:  # an error is raised now, not at the first request
        tls_context("dispatch", options.ca_file, options.client_cert, options.client_key)
    given = {name.lower() for name in options.headers}
    headers = [line for line in (_USER_AGENT, _PREFER) if line.partition(b":")[0].decode() not in given]
    headers += [f"{name}: {header_text('dispatch', name, value)}".encode() for name, value in options.headers.items()]
    file, reply, sink = options.token_file, options.replyUri, options.delivery.deadLetterSink
    each_its_own = file is not None and file.name == AUDIENCE

    def target(url: str, lines: list[bytes], token: Path | None, ca_text: str | None, *, wants_reply: bool) -> Target:
        authorization = [b"authorization: Bearer " + _token(token)] if token is not None else []
        return Target(
            url,
            options.delivery.timeout,
            min(options.connect_timeout, options.delivery.timeout),
            options.connections,
            (f"{DISPATCHED}: 1".encode(), *lines, *authorization),
            wants_reply,
            options.ca_file,
            options.client_cert,
            options.client_key,
            ca_text,
        )

    def of_audience(audience: str | None) -> Path | None:
        if file is None or audience is None or not each_its_own:
            return None
        return file.parent / quote(audience, safe="")

    def other(url: str | None, audience: str | None, ca_text: str | None) -> Target | None:
        return None if url is None else target(url, [_USER_AGENT], of_audience(audience), ca_text, wants_reply=False)

    token = of_audience(options.subscriberAudience) if each_its_own else file
    return Targets(
        target(options.subscriberUri, headers, token, options.subscriberCACerts, wants_reply=reply is not None),
        other(reply, options.replyAudience, options.replyCACerts),
        other(sink.uri, sink.audience, sink.CACerts) if sink is not None else None,
    )


def _token(file: Path) -> bytes:
    token = line_in(file, "dispatch: token_file", "token_file")
    if " " in token:
        raise ConfigError(f"dispatch: token_file: {file} must hold a token alone, without blanks or Bearer; correct it")
    return token.encode()

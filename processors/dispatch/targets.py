"""From the options of a subscription to those whom it posts to."""

from __future__ import annotations

from dataclasses import dataclass

from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Target
from inbound.processors.http_values import DISPATCHED, header_text, tls_context


@dataclass(frozen=True, eq=False)
class Targets:
    """Whom one subscription posts to."""

    subscriber: Target
    reply: Target | None
    dead_letters: Target | None

    def all(self) -> list[Target]:
        return [target for target in (self.subscriber, self.reply, self.dead_letters) if target is not None]


def targets_of(options: DispatchOptions) -> Targets:
    """Read the files that the options name, and return the targets.

    Raises:
        ConfigError: a file cannot be used.
    """
    if options.ca_file or options.client_cert:  # found out now, not with the first request
        tls_context("dispatch", options.ca_file, options.client_cert, options.client_key)
    headers = [f"{name}: {header_text('dispatch', name, value)}".encode() for name, value in options.headers.items()]
    own = [] if any(name.lower() == "user-agent" for name in options.headers) else [b"user-agent: inbound"]
    prefer = [b"prefer: reply"] if options.replyUri is not None else []  # as Knative asks for replies
    dead_letters = options.delivery.deadLetterSink

    def target(url: str, lines: list[bytes], *, wants_reply: bool = False) -> Target:
        return Target(
            url,
            options.delivery.timeout,
            min(options.connect_timeout, options.delivery.timeout),
            options.connections,
            (f"{DISPATCHED}: 1".encode(), *own, *lines),
            wants_reply,
            options.ca_file,
            options.client_cert,
            options.client_key,
        )

    return Targets(
        target(options.subscriberUri, headers + prefer, wants_reply=options.replyUri is not None),
        target(options.replyUri, []) if options.replyUri is not None else None,
        target(dead_letters.uri, []) if dead_letters is not None and dead_letters.uri is not None else None,
    )

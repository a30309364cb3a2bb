"""Dispatches to a subscriber that wants each request signed: what `transport: requests` is for."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import requests
from pydantic import Field
from requests.auth import AuthBase

from inbound.processors.base import Context
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.processor import DispatchProcessor
from inbound.processors.dispatch.requests_transport import RequestsTransport
from inbound.processors.dispatch.transport import Target


class Signature(AuthBase):
    """Adds a header with the HMAC of the body, as webhooks of many services have it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body if isinstance(request.body, bytes) else b""
        request.headers["X-Signature"] = "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        return request


class SigningOptions(DispatchOptions):
    """Those of every subscription, and the secret."""

    secret_file: Path = Field(description="the file that holds the shared secret, read once at the start")


class SigningDispatch(DispatchProcessor):
    """A dispatcher like any other, but for its transport."""

    Options = SigningOptions

    async def open(self, context: Context) -> None:
        """Read the secret first. Raises OSError."""
        secret = context.options.secret_file.read_bytes().strip()

        class Signing(RequestsTransport):
            def session(self, target: Target) -> requests.Session:
                session = super().session(target)
                session.auth = Signature(secret)
                return session

        self._make_transport = Signing
        await super().open(context)

"""Gets bearer tokens for OAUTHBEARER, and renews them before they expire."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from inbound.config.secrets import remember
from inbound.errors import BrokerUnavailableError
from inbound.kafka.auth.access import Login, login, read, token_file
from inbound.kafka.auth.tls import trust

#: Timeouts of a token server, for the connection and for its answer. Seconds.
CONNECT_TIMEOUT, READ_TIMEOUT = 3.0, 5.0
#: The share of a token's life after which it is renewed, as in Kafka's Java client.
WINDOW = 0.8
#: The assumed life of a token that names no end. Seconds.
UNKNOWN_LIFE = 300.0
#: No answer is longer than this; bytes.
_LARGEST = 2**20


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token and its end."""

    text: str = field(repr=False)
    ends_at: float  # seconds since 1970
    subject: str = ""  # empty: the token names none


class Tokens:
    """Caches a token, from a token server or a file. Any thread.

    Callers wait while a token is fetched.
    """

    def __init__(self, now: Callable[[], Mapping[str, Any]], wall: Callable[[], float] = time.time) -> None:
        """`now` returns resolved properties, `wall` the seconds since 1970."""
        self._now = now
        self._wall = wall
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_at = 0.0
        self._asked_as: Login | None = None

    def get(self) -> tuple[Token, Login]:
        """Return a valid token, and the login that it is for.

        Raises:
            BrokerUnavailableError: there is no token. The message has no secret.
            ConfigError: the properties cannot be used.
        """
        with self._lock:
            resolved = self._now()
            who = login(resolved)
            assert who is not None
            wall = self._wall()
            if self._token is None or wall >= self._renew_at or who != self._asked_as or token_file(who.token_url):
                self._token = self._fetch(who, resolved, wall)
                self._renew_at = wall + WINDOW * max(0.0, self._token.ends_at - wall)
                self._asked_as = who
            return self._token, who

    def _fetch(self, who: Login, resolved: Mapping[str, Any], wall: float) -> Token:
        path = token_file(who.token_url)
        if path is not None:
            text = read("sasl.oauthbearer.token.endpoint.url", path).strip()
            if not text or len(text.split()) != 1:
                raise BrokerUnavailableError(f"no token for Kafka: {path} must hold one word: the token")
            token = _token(text, None, wall)
            if token.ends_at <= wall:
                raise BrokerUnavailableError(
                    f"no token for Kafka: the one in {path} has expired {wall - token.ends_at:.0f} s ago; put a new one there"
                )
            return token
        return _ask(who, resolved, wall)


def _ask(who: Login, resolved: Mapping[str, Any], wall: float) -> Token:
    import urllib3  # other mechanisms do without it

    where = who.token_url.partition("?")[0].rpartition("@")[2]
    trusted = ssl.create_default_context()
    if any(name.startswith("ssl.truststore.") for name in resolved):
        trust(trusted, resolved)  # besides the system's: both may stand inside one house
    basic = base64.b64encode(f"{who.user}:{who.password}".encode()).decode()
    fields = {"grant_type": "client_credentials", **({"scope": who.scope} if who.scope else {})}
    try:
        with urllib3.PoolManager(ssl_context=trusted) as pool:
            answer = pool.request(
                "POST", who.token_url, body=urlencode(fields), redirect=False, retries=False, preload_content=False,
                headers={
                    "Authorization": f"Basic {basic}",
                    "Accept": "application/json",
                    "Content-Type": "application/x-www-form-urlencoded",
                },
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=READ_TIMEOUT),
            )  # fmt: skip
            body = answer.read(_LARGEST)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise BrokerUnavailableError(
            f"no token for Kafka: {where} does not answer ({type(error).__name__}); check sasl.oauthbearer.token.endpoint.url"
        ) from None
    said = _object(body)
    if answer.status != 200:
        reason = f", {said['error']}" if said.get("error") in _ERRORS else ""
        advice = "check the client's id and secret" if answer.status in (400, 401, 403) else "it is asked again"
        raise BrokerUnavailableError(
            f"no token for Kafka: {where} refused client {who.user} (HTTP {answer.status}{reason}); {advice}"
        )
    text, life = said.get("access_token"), said.get("expires_in")
    if not isinstance(text, str) or not text:
        raise BrokerUnavailableError(
            f"no token for Kafka: {where} answered without an access_token; is it the right URL?"
        )
    return _token(text, float(life) if isinstance(life, (int, float)) else None, wall)


#: Error codes of RFC 6749; another answer may be any text, and is not shown.
_ERRORS = (
    "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope",
)  # fmt: skip


def _token(text: str, life: float | None, wall: float) -> Token:
    remember(text)
    claims = _claims(text)
    ends = claims.get("exp")
    ends_at = float(ends) if isinstance(ends, (int, float)) else wall + (UNKNOWN_LIFE if life is None else life)
    return Token(text, ends_at, str(claims.get("sub", "")))


def _claims(text: str) -> dict[str, Any]:
    """Return a JSON Web Token's claims, unchecked; none of other tokens."""
    try:
        _, claims, _ = text.split(".")
        return _object(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except ValueError:  # it has other than three parts, or other characters
        return {}


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

"""Which values are never shown: not in logs, not in errors, not by `check --show`."""

from __future__ import annotations

import re

HIDDEN = "***"

_WORDS = ("password", "secret", "jaas", "passphrase", "token", "credential", "apikey", "privatekey", "authorization")


#: Kafka properties that only sound like secrets: a folder's path, URLs, whose credentials are hidden by themselves.
_PLAIN = ("secret", "sasl.oauthbearer.token.endpoint.url")


def is_secret_property(name: str) -> bool:
    """Say whether a Kafka property's value is hidden. Wide on purpose: `key` also hides where a key store lies."""
    if name in _PLAIN:
        return False
    return "key" in name.lower() or is_secret_option(name)


def is_secret_option(name: str) -> bool:
    """Say whether a processor's option is hidden, by its name."""
    folded = name.lower().replace("_", "").replace("-", "").replace(".", "")
    return any(word in folded for word in _WORDS)


def without_credentials(text: str) -> str:
    """Return `text` without what a URL or a header's value in it tells: the user and password, secret parameters."""
    text = re.sub(r"(?<=://)[^/?#\s@]*@", f"{HIDDEN}@", text)
    # A name without a value is taken, too, so that what has been looked at is never looked at again.
    text = re.sub(r"(?<=[?&])([^=&#\s]++)(=[^&#\s]*+)?", _parameter, text)
    return re.sub(r"(?i)\b(bearer|basic) [a-z0-9+/=._~-]{8,}", rf"\1 {HIDDEN}", text)


def _parameter(match: re.Match[str]) -> str:
    return f"{match[1]}={HIDDEN}" if match[2] and is_secret_option(match[1]) else match[0]

"""Which values are never shown: not in logs, not in errors, not by `check --show`."""

from __future__ import annotations

HIDDEN = "***"

_WORDS = ("password", "secret", "jaas", "passphrase", "token", "credential", "apikey", "privatekey", "authorization")


def is_secret_property(name: str) -> bool:
    """Say whether a Kafka property's value is hidden. Wide on purpose: `key` also hides where a key store lies."""
    return "key" in name.lower() or is_secret_option(name)


def is_secret_option(name: str) -> bool:
    """Say whether a processor's option is hidden, by its name."""
    folded = name.lower().replace("_", "").replace("-", "").replace(".", "")
    return any(word in folded for word in _WORDS)

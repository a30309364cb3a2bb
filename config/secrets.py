"""Hides secrets in logs, errors and `check --show`."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "***"

_WORDS = ("password", "secret", "jaas", "passphrase", "token", "credential", "apikey", "privatekey", "authorization")
#: Kafka properties that only sound like secrets: a folder's path, and a URL, whose credentials `without_credentials` hides.
_PLAIN = ("secret", "sasl.oauthbearer.token.endpoint.url")


def is_secret_property(name: str) -> bool:
    """Say whether a Kafka property's value is hidden."""
    if name in _PLAIN:
        return False
    # Wide on purpose: `key` also hides the path of a key store.
    return "key" in name.lower() or is_secret_option(name)


def is_secret_option(name: str) -> bool:
    """Say whether a processor's option is hidden, by its name."""
    folded = name.lower().replace("_", "").replace("-", "").replace(".", "")
    return any(word in folded for word in _WORDS)


def without_credentials(text: str) -> str:
    """Return `text` without users, passwords, secret parameters and tokens in URLs."""
    text = re.sub(r"(?<=://)[^/?#\s@]*@", f"{HIDDEN}@", text)
    # A name without a value matches, too, so that no character is looked at twice.
    text = re.sub(r"(?<=[?&])([^=&#\s]++)(=[^&#\s]*+)?", _parameter, text)
    return re.sub(r"(?i)\b(bearer|basic) [a-z0-9+/=._~-]{8,}", rf"\1 {HIDDEN}", text)


def _parameter(match: re.Match[str]) -> str:
    return f"{match[1]}={HIDDEN}" if match[2] and is_secret_option(match[1]) else match[0]


#: Shorter ones are hidden only as whole words: hidden anywhere, they would make other words unreadable.
LONG_ENOUGH = 6
#: A shorter text is no secret, but a letter that every line has.
SHORTEST = 3
#: The most values that are remembered: passwords that change every minute must not fill the memory.
MOST = 4096
_PASSWORD_IN_JAAS = re.compile(
    r"""password\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.IGNORECASE
)
_PLACES = ("file", "path", "location", "type", "url", "class", ".id")
_FURTHER_LINES = re.compile(r"[^\s-][^\r\n]{19,}")


class KnownSecrets:
    """Hides values in all their likely written forms. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forms: dict[str, None] = {}  # a dict for its order: the oldest go first
        self._pattern: re.Pattern[str] | None = None

    def remember(self, *values: str | bytes | None) -> None:
        """Hide `values` from now on, except None and those below `SHORTEST`."""
        forms = [form for value in values for form in _forms(value)]
        with self._lock:
            new = [form for form in forms if form not in self._forms]
            if not new:
                return
            self._forms.update(dict.fromkeys(new))
            while len(self._forms) > MOST:
                del self._forms[next(iter(self._forms))]
            # The longest first: a shorter one with the same beginning would leave the end visible.
            longest_first = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(_expression, longest_first)))

    def remember_in(self, settings: Any, secret: bool = False) -> None:
        """Hide the values with secret names in `settings`, at any depth."""
        if isinstance(settings, Mapping):
            for name, value in settings.items():
                self.remember_in(value, secret or is_secret_setting(str(name)))
        elif isinstance(settings, list | tuple):
            for value in settings:
                self.remember_in(value, secret)
        elif secret and isinstance(settings, str):
            self.remember(settings)

    def hide(self, text: str) -> str:
        """Return `text` without remembered values, and `without_credentials`."""
        pattern = self._pattern
        if pattern is not None:
            text = pattern.sub(HIDDEN, text)
        return without_credentials(text)


def _forms(value: str | bytes | None) -> list[str]:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value is None:
        return []
    parts = [value, value.strip(), *("".join(found) for found in _PASSWORD_IN_JAAS.findall(value))]
    if "\n" in value:  # a key, for example: a library may show one of its lines
        parts += _FURTHER_LINES.findall(value)
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() in {"bearer", "basic"}:
        parts.append(rest.strip())
    found = dict[str, None]()
    for part in parts:
        if len(part) < SHORTEST:
            continue
        encoded = base64.b64encode(part.encode("utf-8", "replace")).decode()
        escaped = (json.dumps(part)[1:-1], repr(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1])
        found |= dict.fromkeys(
            (part, *escaped, quote(part, errors="replace"), quote_plus(part, errors="replace"), encoded)
        )
    return list(found)


def _expression(form: str) -> str:
    return re.escape(form) if len(form) >= LONG_ENOUGH else rf"(?<!\w){re.escape(form)}(?!\w)"


def is_secret_setting(name: str) -> bool:
    """Say whether the setting holds a secret, and not a secret's path."""
    return (is_secret_option(name) or name == "ssl.keystore.key") and not name.lower().endswith(_PLACES)


#: The secrets of this process.
KNOWN = KnownSecrets()
remember, hide = KNOWN.remember, KNOWN.hide

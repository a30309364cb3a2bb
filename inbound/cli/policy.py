"""The policy file of the JMX face, read anew when it has changed."""

from __future__ import annotations

from pathlib import Path

from inbound.config import AdminConfig, load_policy
from inbound.errors import ConfigError
from inbound.jmx.policy import Policy, ReadPolicy


def admin_policy(admin: AdminConfig) -> ReadPolicy | None:
    """Return what reads the policy, as it is at each request; None: there is none.

    Raises:
        ConfigError: the file cannot be used; so does what is returned, if that comes later.
    """
    if admin.policy is None:
        return None
    file = _PolicyFile(admin.policy)
    file.read()
    return file.read


class _PolicyFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        #: What was read last, and what it means. Replaced as a whole.
        self._known: tuple[str, Policy] | None = None

    def read(self) -> Policy:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(f"admin.policy: {self._path} cannot be read: {reason}") from None
        known = self._known
        if known is None or known[0] != text:
            known = text, Policy(load_policy(text, str(self._path)), str(self._path))
            self._known = known
        return known[1]

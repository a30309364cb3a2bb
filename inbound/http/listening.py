"""The admin listener of a process: another one takes its place when its configuration changes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from inbound.config import AdminConfig, Config
from inbound.errors import ConfigError
from inbound.http.admin import AdminServer
from inbound.http.rights import Token
from inbound.jmx.policy import ReadPolicy

log = logging.getLogger(__name__)

#: Returns a listener of a configuration, not started; `Token` and `ReadPolicy` are those of `AdminServer`.
MakeAdmin = Callable[[Config, Token | None, ReadPolicy | None], AdminServer]


class AdminListener:
    """Starts, replaces and closes it; by the owner's thread, and that of changes."""

    def __init__(
        self,
        make: MakeAdmin,
        config: Config,
        token: Token | None,
        policy: ReadPolicy | None,
        *,
        read_token: Callable[[AdminConfig], Token | None],
        read_policy: Callable[[AdminConfig], ReadPolicy | None],
        tell: Callable[[str], object] = lambda url: log.info("admin: %s/status", url),
    ) -> None:
        """`tell` is given its address whenever it listens anew. `token` and `policy` are those of `config`; `read_token` and
        `read_policy` return those of another one.

        Raises:
            ConfigError: a certificate cannot be used.
        """
        self._make = make
        self._read_token = read_token
        self._read_policy = read_policy
        self._tell = tell
        self._given = config, token, policy
        self.server = make(config, token, policy)

    @property
    def url(self) -> str:
        """Where others reach it. Any thread."""
        return self.server.url

    @property
    def token(self) -> Token | None:
        """What returns the token for operations. Any thread."""
        return self._given[1]

    def start(self) -> None:
        """Listen. Raises ConfigError: the address cannot be used."""
        self.server.start()
        self._tell(self.url)

    def change(self, config: Config) -> None:
        """Let one made of `config` take its place.

        Where both want the same port the one before is closed first, and one as before listens if the new one cannot.

        Raises:
            ConfigError: the new one cannot listen, or a file cannot be used; it is as before then.
        """
        given = config, self._read_token(config.admin), self._read_policy(config.admin)
        before, new = self.server, self._make(*given)
        same_port = new.wanted_port == before.port
        if same_port:
            before.close()
        try:
            new.start()
        except ConfigError:
            if same_port:
                self.server = self._make(*self._given)
                self.server.start()
            raise
        self.server, self._given = new, given
        self._tell(self.url)
        if not same_port:
            before.close()

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self.server.close()

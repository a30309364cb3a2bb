"""What the command line makes for profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbound.cli.files import token_reader
from inbound.config import Config

if TYPE_CHECKING:
    from inbound.profiling.listener import ProfilingListener


def profiling_listener(config: Config, *, index: int | None = None) -> ProfilingListener | None:
    """Return the listener of profiles, not started; None: none is configured, and nothing of it is imported.

    `index` is this process's number under `--processes`.

    Raises:
        ConfigError: a file that it needs cannot be used, or there is no port so high.
    """
    if config.profiling is None:
        return None
    from inbound.profiling.listener import ProfilingListener

    token = token_reader(config.profiling.token_file, "profiling.token_file")
    return ProfilingListener(config.profiling, token=token, index=index, hosts=config.admin.hosts)

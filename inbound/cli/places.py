"""Where inbound keeps things on this machine, by the XDG base directories; the cli hands these down as arguments."""

from __future__ import annotations

import os
from pathlib import Path


def jar_cache() -> Path:
    """Return the folder of the embedded servers' jars: `$XDG_CACHE_HOME/inbound/jars`, by default below ~/.cache."""
    return _base("XDG_CACHE_HOME", ".cache") / "inbound" / "jars"


def state_dir() -> Path:
    """Return the folder of what outlives a command: `$XDG_STATE_HOME/inbound`, by default below ~/.local/state."""
    return _base("XDG_STATE_HOME", ".local/state") / "inbound"


def cluster_dir() -> Path:
    """Return the folder of the detached cluster, where no other is named."""
    return state_dir() / "cluster"


def java_command() -> str:
    """Return the Java to run the servers with: `$JAVA_HOME/bin/java` where that is set, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is to be ignored.
    return Path(value) if os.path.isabs(value) else Path.home() / default

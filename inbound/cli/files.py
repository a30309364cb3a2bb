"""How commands get at the configuration: file, environment, flags."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from inbound.config import AdminConfig, Loaded, load, read_text
from inbound.errors import ConfigError


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add `-c` and `--set`."""
    parser.add_argument(
        "-c", "--config", type=Path, default=Path("inbound.yaml"), metavar="FILE", help="default: inbound.yaml"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a value, such as channels.orders.workers=8",
    )


def load_config(args: argparse.Namespace) -> Loaded:
    """Return the configuration that `args` name; the file's folder is put on the import path, for plugins.

    Raises:
        ConfigError: every problem, one a line, with file and line.
    """
    overrides = {}
    for item in args.set:
        key, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"--set {item}: need KEY=VALUE")
        overrides[key] = value
    loaded = load(read_text(args.config), filename=str(args.config), environ=os.environ, overrides=overrides)
    folder = str(args.config.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return loaded


def admin_token(admin: AdminConfig) -> Callable[[], str] | None:
    """Return what reads the token for operations, anew each time, for a mounted secret changes; None: there is none.

    Raises:
        ConfigError: the file cannot be used; so does the reader, if that comes later.
    """
    path = admin.token_file
    if path is None:
        return None

    def read() -> str:
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(f"admin.token_file: {path} cannot be read: {reason}") from None
        if not token or len(token.split()) != 1:
            raise ConfigError(f"admin.token_file: {path} must hold one word: the token")
        return token

    read()
    return read

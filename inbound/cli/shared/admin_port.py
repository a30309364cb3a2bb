"""How commands reach the admin port of running processes: addresses and TLS."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from inbound.admin.client import ELSEWHERE
from inbound.cli.shared.command import argument, titled
from inbound.config import AdminConfig
from inbound.config.secrets import HIDDEN
from inbound.errors import ConfigError

#: How to reach a process that listens on all addresses.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

#: How to speak TLS to the admin port; see `client_tls`.
TLS = titled(
    "TLS",
    argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="PEM file with the authority of the admin port's certificate; default: the authorities that the system trusts",
    ),
    argument("--cert-file", type=Path, metavar="FILE", help="PEM file with our own certificate"),
    argument("--key-file", type=Path, metavar="FILE", help="its key; default: it is in --cert-file too"),
)


def admin_url(text: str) -> str:
    """Return the admin port's address that an option names.

    A user and a password become `***`: the admin port wants none, and errors show the address.
    """
    given = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(given)
        good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or a bad IPv6 address
        good = False
    if not good or " " in given or not given.isprintable():
        scheme, _, rest = given.partition("://")
        hidden = f"{scheme}://{HIDDEN}@{rest.rpartition('@')[2]}" if "@" in rest else text
        raise argparse.ArgumentTypeError(f"need http://HOST:PORT, got {hidden!r}")
    user, at, _ = parts.netloc.rpartition("@")
    return given.replace(f"//{user}@", f"//{HIDDEN}@", 1) if at else given


def admin_address(admin: AdminConfig) -> str:
    """Return a configuration's admin address. Raises ConfigError for any free port."""
    if admin.port == 0:
        raise ConfigError(f"admin.listen is {admin.listen}, which is any free port; {ELSEWHERE}")
    host = _EVERYWHERE.get(admin.host, admin.host)
    scheme = "http" if admin.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{admin.port}"


def client_tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS settings that options name; None if none.

    Raises:
        ConfigError: a file cannot be used.
    """
    if args.ca_file is None and args.cert_file is None:
        if args.key_file is not None:
            raise ConfigError("--key-file needs --cert-file")
        return None
    try:
        context = ssl.create_default_context(cafile=args.ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--ca-file: {args.ca_file} cannot be used: {error}; give a PEM file") from None
    if args.cert_file is not None:
        try:
            context.load_cert_chain(args.cert_file, args.key_file, password=_no_passphrase)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--cert-file: {args.cert_file} cannot be used: {error}; give PEM files") from None
    return context


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")

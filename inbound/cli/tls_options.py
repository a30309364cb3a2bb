"""How commands speak TLS to the admin port of running processes."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path

from inbound.errors import ConfigError


def add_tls_options(parser: argparse.ArgumentParser) -> None:
    """Add `--ca-file`, `--cert-file` and `--key-file`."""
    group = parser.add_argument_group("https")
    group.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="PEM file with the authority of the admin port's certificate; default: those that the system trusts",
    )
    group.add_argument("--cert-file", type=Path, metavar="FILE", help="PEM file with our own certificate")
    group.add_argument("--key-file", type=Path, metavar="FILE", help="its key; default: it stands in --cert-file too")


def client_tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    """Return what `add_tls_options` was given; None: nothing.

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

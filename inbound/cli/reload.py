"""`inbound reload`: have a running process look at its configuration now, and say what came of it."""

from __future__ import annotations

import argparse
import json
import ssl
import sys
from typing import Any

from inbound.cli.files import add_config_options, admin_token, load_config
from inbound.cli.help import examples
from inbound.cli.status import admin_address, admin_url
from inbound.cli.tls_options import add_tls_options, client_tls
from inbound.errors import ConfigError, InboundError
from inbound.http.client import ELSEWHERE, post
from inbound.http.reloads import ANSWER_SECONDS, PATH, VERSION
from inbound.reconfiguration import APPLIED, REFUSED, ROLLED_BACK, UNCHANGED

#: It is applied, or is what runs, but for manifests that cannot be used.
ALL_BUT_MANIFESTS = 3
#: Exit code by what came of it.
_CODES = {APPLIED: 0, UNCHANGED: 0, REFUSED: 2, ROLLED_BACK: 1}
_TOLD = {
    APPLIED: "applied",
    UNCHANGED: "nothing has changed",
    REFUSED: "refused: it cannot be used, and nothing of it is",
    ROLLED_BACK: "rolled back: it does not start, and what ran before runs again",
}
#: The answer comes from as many processes as there are, and may have to pass a parent.
_MORE_SECONDS = 10.0


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "reload",
        help="have running processes take in their configuration now",
        description="Ask a running process by its admin port to look at its configuration now, and wait for what comes of it. "
        "It follows the files by itself too; this tries again what did not start, and tells. Exit code 0 if it is applied, or "
        "nothing has changed; 3 if so, but for manifests that cannot be used; 2 if it is refused; 1 if it does not start and what "
        "ran before came back, or nobody answers.",
        **examples("inbound reload", "inbound reload --url http://127.0.0.1:8081"),
    )
    add_config_options(parser)
    parser.add_argument(
        "--url",
        type=admin_url,
        metavar="http://HOST:PORT",
        help="admin address; default: admin.listen of the configuration",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    add_tls_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask, and print what came of it. Returns the exit code."""
    token = None
    tls = client_tls(args)
    try:
        admin = load_config(args).config.admin
        read = admin_token(admin)
        token = read() if read is not None else None
        url = args.url or admin_address(admin)
    except ConfigError as error:
        if args.url is None:
            raise ConfigError(
                f"{error}\nno process is asked: it would refuse this too; the old configuration goes on"
            ) from None
        url = args.url
    answer = _asked(url, token, tls)
    if args.json:
        print(json.dumps(answer))
    else:
        _tell(answer)
    code = _CODES.get(str(answer["outcome"]), 1)
    return ALL_BUT_MANIFESTS if code == 0 and answer["problem"] else code


def _asked(url: str, token: str | None, tls: ssl.SSLContext | None) -> dict[str, Any]:
    code, _, body = post(url, PATH, token, ANSWER_SECONDS + _MORE_SECONDS, tls)
    if code != 200:
        first = body.decode(errors="replace").strip().partition("\n")[0][:300]
        raise InboundError(f"{url}: {code}: {first or '(nothing)'}")
    try:
        answer: dict[str, Any] = json.loads(body)
        if answer["v"] != VERSION:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InboundError(f"{url}: what answers there is not this version of inbound; {ELSEWHERE}") from None
    return answer


def _tell(answer: dict[str, Any]) -> None:
    outcome = str(answer["outcome"])
    print(_TOLD.get(outcome, outcome))
    for step in answer["steps"]:
        print(f"  {step}")
    if answer["problem"]:
        print("\n".join(f"error: {line}" for line in str(answer["problem"]).splitlines()), file=sys.stderr)

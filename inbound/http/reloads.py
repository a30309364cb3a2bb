"""`POST /reload`: look at the configuration now, and say what came of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus

from inbound.http.pages import Page, text
from inbound.http.rights import Rights
from inbound.http.server import Request
from inbound.reconfiguration import Outcome

#: Version of the JSON that is answered.
VERSION = 1
PATH = "/reload"
#: How long the answer may take, in seconds: a channel that leaves waits for its batches.
ANSWER_SECONDS = 90.0

#: Has the configuration looked at, and returns what came of it; None: that is not known after so many seconds.
Reload = Callable[[float], Outcome | None]


class Reloads:
    """Answers requests for a reload. Any thread."""

    def __init__(self, reload: Reload, rights: Rights, log: logging.Logger) -> None:
        self._reload = reload
        self._rights = rights
        self._log = log

    def answer(self, request: Request, listening_at: str) -> Page | None:
        """Return the answer; None where the path is another one. `listening_at` is the address we are bound to."""
        if request.path != PATH:
            return None
        if request.method != "POST":
            return text(HTTPStatus.METHOD_NOT_ALLOWED, f"{PATH} is done by POST").with_header("Allow", "POST")
        refused = self._rights.refused(request, listening_at)
        if refused is not None:
            return refused
        try:
            outcome = self._reload(ANSWER_SECONDS)
        except Exception:
            self._log.exception("admin: %s could not be done", PATH)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "it failed; see the log of the process")
        if outcome is None:
            return text(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"not done after {ANSWER_SECONDS:.0f} s; it goes on: see `reload` in /status, and the log of the process",
            )
        body = json.dumps({"v": VERSION, **asdict(outcome)})
        return Page(HTTPStatus.OK, f"{body}\n".encode(), "application/json")

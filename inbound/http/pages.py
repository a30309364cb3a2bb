"""What the admin port answers: one pure function per path, from one snapshot."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from inbound.http.answers import TEXT
from inbound.http.status_page import status_page, wants_html
from inbound.metrics import Exposition, Snapshot
from inbound.printable import printable
from inbound.status import ProcessStatus

HTML = "text/html; charset=utf-8"

#: Version of the JSON that `/status` answers with.
STATUS_VERSION = 1


@dataclass(frozen=True)
class Page:
    """One answer."""

    code: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    def with_header(self, name: str, value: str) -> Page:
        """Return this page with one more header."""
        return replace(self, headers=(*self.headers, (name, value)))


def text(code: int, *lines: str) -> Page:
    """Return a page of plain text."""
    return Page(code, "".join(f"{printable(line)}\n" for line in lines).encode())


class Pages:
    """The pages by path. Any thread; a page that fails answers 500 and says why in `log`."""

    def __init__(self, snapshot: Snapshot, log: logging.Logger) -> None:
        self._snapshot = snapshot
        self._log = log
        self._exposition = Exposition(snapshot)
        self._pages: Mapping[str, tuple[Callable[[str | None], Page], str]] = {
            "/": (self._index, "this list; to a browser the status page"),
            "/healthz": (self._healthz, "200 while every internal thread is well, else 500 and what is wrong"),
            "/readyz": (self._readyz, "200 while a member of all groups, else 503 and what is missing"),
            "/status": (self._status, "everything that the process knows of itself, as JSON"),
            "/metrics": (self._metrics, "metrics for Prometheus"),
        }
        #: What else there is to be said in the list of pages.
        self.operations: Sequence[str] = ()

    def knows(self, path: str) -> bool:
        """Whether there is such a page."""
        return path in self._pages

    def get(self, path: str, accept: str | None = None) -> Page:
        """Return the page at `path`; `accept` is the request's Accept header."""
        if path not in self._pages:
            return text(HTTPStatus.NOT_FOUND, f"no such page; there are: {' '.join(self._pages)}")
        page, _ = self._pages[path]
        try:
            return page(accept)
        except Exception:
            self._log.exception("admin: %s could not be answered", path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "the status could not be read; see the log of the process")

    # -- pages -------------------------------------------------------------------------------------------------------

    def _index(self, accept: str | None) -> Page:
        if wants_html(accept):
            found = status_page()
            return Page(HTTPStatus.OK, found.body, HTML, found.headers)
        pages = (f"{path:<10} {what}" for path, (_, what) in self._pages.items())
        return text(HTTPStatus.OK, *pages, *self.operations).with_header("Vary", "Accept")

    def _healthz(self, accept: str | None) -> Page:
        """Never fails because a server is away: restarting this process would not bring that back."""
        problems = self._of_all(ProcessStatus.stuck)
        return text(HTTPStatus.INTERNAL_SERVER_ERROR, *problems) if problems else text(HTTPStatus.OK, "ok")

    def _readyz(self, accept: str | None) -> Page:
        problems = self._of_all(ProcessStatus.ready, or_else=["no process has answered yet"])
        return text(HTTPStatus.SERVICE_UNAVAILABLE, *problems) if problems else text(HTTPStatus.OK, "ok")

    def _status(self, accept: str | None) -> Page:
        found = self._snapshot()
        if isinstance(found, ProcessStatus):
            return _json(found.as_dict())
        return _json({"processes": [process.as_dict() for process in found]})

    def _metrics(self, accept: str | None) -> Page:
        body, content_type = self._exposition.render(accept)
        return Page(HTTPStatus.OK, body, content_type)

    def _of_all(self, ask: Callable[[ProcessStatus], list[str]], or_else: Sequence[str] = ()) -> Sequence[str]:
        """Return what `ask` finds in every process; `or_else` where there are none."""
        found = self._snapshot()
        if isinstance(found, ProcessStatus):
            return ask(found)
        if not found:
            return or_else
        return [f"process {process.pid}: {problem}" for process in found for problem in ask(process)]


def _json(body: Mapping[str, Any]) -> Page:
    return Page(HTTPStatus.OK, f"{json.dumps({'v': STATUS_VERSION, **body})}\n".encode(), "application/json")

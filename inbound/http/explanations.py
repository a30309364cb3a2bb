"""`GET /explain`: why a partition stands still."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from inbound.explain.answer import BadQuestionError, Question
from inbound.http.pages import Page, text
from inbound.http.server import METHODS, Request

PATH = "/explain"
#: Version of the JSON.
EXPLAIN_VERSION = 1

Explain = Callable[[Question], Sequence[dict[str, Any]]]


class Explanations:
    """The page. Any thread."""

    def __init__(self, explain: Explain, log: logging.Logger) -> None:
        self._explain = explain
        self._log = log

    def answer(self, request: Request) -> Page | None:
        """Return the page; None: something else is asked for."""
        if request.path != PATH or request.method not in METHODS:
            return None
        try:
            question = Question.of(request.query)
        except BadQuestionError as error:
            return text(HTTPStatus.BAD_REQUEST, f"{PATH}: {error}")
        try:
            found = list(self._explain(question))
        except Exception:
            self._log.exception("admin: %s could not be answered", PATH)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "it could not be explained; see the log of the process")
        body = json.dumps({"v": EXPLAIN_VERSION, "answers": found})
        return Page(HTTPStatus.OK, f"{body}\n".encode(), "application/json")

"""A log line is text for people, or one JSON object."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from inbound.config.secrets import KNOWN

#: Takes secrets out of text.
Hide = Callable[[str], str]
#: Characters of one text of a line: a container's log reader cuts a longer line, and it is no JSON any more.
MOST = 32_768
#: Further characters that are searched for secrets, and left out: half a secret would not be recognized.
#: The longest secrets are keys in PEM, of 3.5 KiB, and some more in other forms.
MARGIN = 8192
#: Characters that move a terminal's cursor, or begin a line that looks like another one of ours.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_OWN = ("time", "level", "logger", "message")


def message_of(record: logging.LogRecord) -> str:
    """Return a record's message; one that cannot be formatted stays as written."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg!s} (its arguments do not fit: {type(error).__name__})"


def _shown(text: str, hide: Hide) -> str:
    """Return `text` without secrets, cut to `MOST`, which bounds the cost."""
    shown = hide(text[: MOST + MARGIN])
    if len(text) > MOST + MARGIN:
        shown = shown[:-MARGIN]
    whole = len(shown) <= MOST and len(text) <= MOST + MARGIN
    return shown if whole else f"{shown[:MOST]}... (of {len(text)} characters)"


def _trace_of(record: logging.LogRecord) -> str:
    """Return the record's traceback and stack; empty: there is neither."""
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append("".join(traceback.format_exception(*record.exc_info)))
    elif record.exc_text:
        parts.append(record.exc_text)
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(part.rstrip() for part in parts)


class ConsoleFormatter(logging.Formatter):
    """Makes lines for people; further lines of a message are indented.

    For example `2026-11-22 01:04:50,377 INFO    inbound.channel.turn: message`.
    """

    def __init__(self, hide: Hide = KNOWN.hide) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: ")
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        text = message_of(record) + repeated(getattr(record, "left_out", 0))
        trace = _trace_of(record)
        text = _shown(f"{text}\n{trace}" if trace else text, self._hide)
        text = _CONTROL.sub(_escaped, text).replace("\n", "\n    ")
        return f"{self.formatTime(record)} {record.levelname:<7} {record.name}: {text}"


class JsonFormatter(logging.Formatter):
    """Makes one JSON object per line.

    It has time, level, logger, message, the journal's fields (event, topic, ...), thread, exception.
    """

    def __init__(self, hide: Hide = KNOWN.hide) -> None:
        super().__init__()
        self._hide = hide
        self._encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ": ")).encode

    def format(self, record: logging.LogRecord) -> str:
        """Return the object in one line."""
        fields: dict[str, Any] = {
            "time": _rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._text(message_of(record)),
        }
        given = getattr(record, "inbound", None)
        if isinstance(given, Mapping):
            fields |= {str(k): self._plain(v) for k, v in given.items() if v is not None and k not in _OWN}
        if left_out := getattr(record, "left_out", 0):
            fields["left_out"] = left_out
        fields["thread"] = record.threadName
        fields["pid"] = record.process or os.getpid()
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, _ = record.exc_info
            fields["exception"] = {
                "type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
                "message": self._text(_said(error)),
                "trace": self._text(_trace_of(record)),
            }
        elif trace := _trace_of(record):
            fields["stack"] = self._text(trace)
        return self._encode(fields)

    def _text(self, text: str) -> str:
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", _shown(text, self._hide))

    def _plain(self, value: Any, depth: int = 4) -> Any:
        if isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, Mapping) and depth:
            return {self._text(str(name)): self._plain(inner, depth - 1) for name, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset) and depth:
            return [self._plain(inner, depth - 1) for inner in value]
        return self._text(_said(value))


def repeated(left_out: int) -> str:
    """Return the note on equal lines that were left out."""
    return f" (and {left_out} more like it since the last line)" if left_out else ""


def _rfc3339(created: float) -> str:
    seconds, milliseconds = divmod(round(created * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z"


def _said(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


#: By the names of the configuration.
FORMATS: Mapping[str, Callable[[], logging.Formatter]] = {"console": ConsoleFormatter, "json": JsonFormatter}


def to_bytes(line: str) -> bytes:
    """Return the bytes of a line, with its end."""
    return f"{line}\n".encode(sys.getdefaultencoding(), "replace")

"""librdkafka's own log, under the rules of every other log."""

from __future__ import annotations

import logging
from typing import Any

_log = logging.getLogger("confluent_kafka")
#: Levels of syslog, which librdkafka has, for those of Python.
_SYSLOG = ((logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3))


def log_settings() -> dict[str, Any]:
    """Return settings for a client that is made now: nothing is logged unless the level of `confluent_kafka` lets it."""
    level = _log.getEffectiveLevel()
    syslog = next((number for name, number in _SYSLOG if level <= name), 0)
    return {"log_level": syslog, "logger": _log} if syslog else {"log_level": 0}

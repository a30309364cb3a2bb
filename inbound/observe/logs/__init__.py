"""The log of a process: one format, no secrets, no floods, and no wait for a slow reader.

`install` adds the one handler, `apply` configures it, `flush` waits for its lines. The room knows the section `logging` of
the configuration and the known secrets, and no other room: every module logs by `logging.getLogger(__name__)`. A line goes
`handler.py` (repeats left out) -> `formats.py` (console or JSON, secrets hidden) -> `LogWriter` (a queue and a thread).
Begin with `handler.py`.
"""

from inbound.observe.logs.handler import apply, flush, install

__all__ = ["apply", "flush", "install"]

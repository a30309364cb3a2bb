"""The log of a process: one format, no secrets, no floods.

No thread waits for a slow reader of the log. Begin with `handler.py`: `install` adds the one handler, `apply` configures it,
`flush` waits for its lines. A line goes `handler.py` (repeats left out) -> `formats.py` (console or JSON, secrets hidden) ->
`writer.py` (a queue and a thread). The room knows the section `logging` of the configuration and the known secrets, and no
other room: every module logs by `logging.getLogger(__name__)`.
"""

from inbound.observe.logs.handler import apply, flush, install

__all__ = ["apply", "flush", "install"]

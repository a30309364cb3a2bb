"""Logging of a process: one format, one set of levels, no secret, no flood, and no harm from whoever reads it."""

from inbound.logs.setup import apply, flush, install

__all__ = ["apply", "flush", "install"]

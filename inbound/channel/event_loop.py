"""The event loop of asynchronous processors."""

from __future__ import annotations

import asyncio

import uvloop

from inbound.daemon_threads import DaemonThreads

#: How many calls of `asyncio.to_thread` run at a time, as many as asyncio allows on a large machine.
TO_THREAD = 32


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop. What it runs in threads does not keep the process from ending."""
    loop = uvloop.new_event_loop()
    loop.set_default_executor(DaemonThreads(TO_THREAD))
    return loop

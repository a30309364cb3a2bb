"""A TCP proxy on loopback that makes a ZooKeeper server slow: each write is answered late, one after another."""

from __future__ import annotations

import asyncio
import struct
import threading
from asyncio import StreamReader, StreamWriter
from types import TracebackType
from typing import Self

#: Frames have their length in front; then the request's number, and in a request what it is.
LENGTH, NUMBER, REQUEST = struct.Struct(">i"), struct.Struct(">i"), struct.Struct(">ii")
#: create, delete, setData, setACL, multi (a transaction), create with its Stat.
WRITES = frozenset({1, 2, 5, 7, 14, 15})


class SlowZooKeeper:
    """Forwards connections to a port of this machine until the `with` block ends.

    Answers of a connection stay in order, and those to writes come `delay` seconds apart at least: later ones wait.
    """

    def __init__(self, target: int) -> None:
        self.delay = 0.0  # may be changed at any time, by any thread
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._connections: dict[asyncio.Task[None], tuple[StreamWriter, StreamWriter]] = {}
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow-zookeeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for writers in self._connections.values():
            for writer in writers:
                writer.close()
        await asyncio.gather(*self._connections)

    async def _serve(self, from_client: StreamReader, to_client: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        self._connections[task] = to_client, to_server
        writes: set[int] = set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(from_client, to_server, writes))
                group.create_task(self._answers(from_server, to_client, writes))
        except* (OSError, EOFError):  # one side has closed
            pass
        finally:
            to_client.close()
            to_server.close()
            del self._connections[task]

    async def _requests(self, source: StreamReader, sink: StreamWriter, writes: set[int]) -> None:
        sink.write(await _frame(source))  # opens the session; it has no number
        while True:
            frame = await _frame(source)
            number, kind = REQUEST.unpack_from(frame, LENGTH.size)
            if kind in WRITES:
                writes.add(number)
            sink.write(frame)

    async def _answers(self, source: StreamReader, sink: StreamWriter, writes: set[int]) -> None:
        sink.write(await _frame(source))
        while True:
            frame = await _frame(source)
            (number,) = NUMBER.unpack_from(frame, LENGTH.size)
            if number in writes:
                writes.discard(number)
                await asyncio.sleep(self.delay)
            sink.write(frame)


async def _frame(source: StreamReader) -> bytes:
    """Return the next frame, with its length. Raises EOFError: there is none."""
    length = await source.readexactly(LENGTH.size)
    return length + await source.readexactly(*LENGTH.unpack(length))

"""Sockets of many connections, read and written by one thread that keeps the interpreter."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop

from inbound.http.client.sockets import AVAILABLE, TOGETHER, Sockets

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="no epoll on this system")
Pair = tuple[socket.socket, socket.socket]


class Heard(asyncio.Protocol):
    """What a protocol was told."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.data = b""
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(type(error).__name__ if error else "end")


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Connections over TCP: our end, and the receiver's."""
    made: list[Pair] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(TOGETHER + 3):
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
            theirs.settimeout(5)
            made.append((ours, theirs))
    yield made
    for ours, theirs in made:
        ours.close()
        theirs.close()


def play(scene: Callable[[Sockets], Awaitable[None]]) -> None:
    """Run a scene on a loop; at its end no descriptor is left."""

    async def run() -> None:
        sockets = Sockets(asyncio.get_running_loop())
        await scene(sockets)
        sockets.close()

    uvloop.run(run())


async def until(fulfilled: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not fulfilled():
            await asyncio.sleep(0)


def test_many_requests_at_once_all_go(pairs: list[Pair]) -> None:
    """More than go together, and each to its own receiver."""

    async def scene(sockets: Sockets) -> None:
        for number, (ours, _) in enumerate(pairs):
            heard = Heard()
            sockets.add(ours, heard)
            heard.transport.write(b"request %d" % number)
            heard.transport.write(b", whole")
        await asyncio.sleep(0)
        assert [theirs.recv(100) for _, theirs in pairs] == [b"request %d, whole" % n for n in range(len(pairs))]

    play(scene)


def test_answers_that_come_together_reach_each_its_own(pairs: list[Pair]) -> None:
    async def scene(sockets: Sockets) -> None:
        heard = [Heard() for _ in pairs]
        for one, (ours, _) in zip(heard, pairs, strict=True):
            sockets.add(ours, one)
        for number, (_, theirs) in enumerate(pairs):
            theirs.sendall(b"answer %d" % number)
        await until(lambda: all(one.data for one in heard))
        assert [one.data for one in heard] == [b"answer %d" % number for number in range(len(pairs))]

    play(scene)


def test_what_a_receiver_takes_slowly_goes_whole(pairs: list[Pair]) -> None:
    """Far more than the system's buffers hold; later writes come behind it."""
    body = bytes(range(256)) * (32 * 1024)

    async def scene(sockets: Sockets) -> None:
        (ours, theirs), heard = pairs[0], Heard()
        sockets.add(ours, heard)
        heard.transport.write(body)
        await asyncio.sleep(0)
        left = heard.transport.get_write_buffer_size()
        heard.transport.write(b"end")
        theirs.setblocking(False)
        came = bytearray()
        while len(came) < len(body) + 3:
            await asyncio.sleep(0)
            try:
                came += theirs.recv(2**20)
            except BlockingIOError:
                continue
        assert (0 < left < len(body), bytes(came) == body + b"end") == (True, True)

    play(scene)


def test_a_protocol_that_raises_keeps_back_no_request(pairs: list[Pair]) -> None:
    """A defect of ours: the loop's handler gets it, and the writes of that round are sent."""

    class Defect(Heard):
        def data_received(self, data: bytes) -> None:
            other.transport.write(b"request")
            raise ValueError("a defect")

    other = Heard()

    async def scene(sockets: Sockets) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(told["exception"]))
        sockets.add(pairs[0][0], Defect())
        sockets.add(pairs[1][0], other)
        pairs[0][1].sendall(b"x")
        await until(lambda: bool(complaints))
        other.transport.write(b", whole")
        await asyncio.sleep(0)
        assert (pairs[1][1].recv(100), [str(one) for one in complaints]) == (b"request, whole", ["a defect"])

    play(scene)


@pytest.mark.parametrize("way", ["end", "ConnectionResetError"])
def test_a_close_of_the_receiver_is_reported_once(pairs: list[Pair], way: str) -> None:
    """In order, and in the middle; what came before is read first."""

    async def scene(sockets: Sockets) -> None:
        (ours, theirs), heard = pairs[0], Heard()
        sockets.add(ours, heard)
        if way == "end":
            theirs.sendall(b"before")
        else:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        await until(lambda: bool(heard.told))
        heard.transport.abort()
        await asyncio.sleep(0)
        assert (heard.data, heard.told) == (b"before" if way == "end" else b"", [way])

    play(scene)


def test_an_answer_is_read_though_the_receiver_takes_no_more(pairs: list[Pair]) -> None:
    """It has answered early and closed: what is left of the request does not go, and counts as left."""

    async def scene(sockets: Sockets) -> None:
        (ours, theirs), heard = pairs[0], Heard()
        sockets.add(ours, heard)
        theirs.sendall(b"refused")
        theirs.shutdown(socket.SHUT_RD)
        ours.shutdown(socket.SHUT_WR)  # from now on each write fails
        heard.transport.write(b"request")
        await until(lambda: bool(heard.data))
        await asyncio.sleep(0)
        assert (heard.data, heard.told, heard.transport.get_write_buffer_size()) == (b"refused", [], 7)

    play(scene)


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def test_a_protocol_that_fails_costs_its_own_connection_alone(
    pairs: list[Pair], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """It gets the error and is closed; its writes for others are sent, and so are their later ones."""

    class Failing(Heard):
        def data_received(self, data: bytes) -> None:
            other.transport.write(b"begun by it")
            raise RuntimeError("no")

    other, later, failing = Heard(), Heard(), Failing()
    said: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(f"{context['exception']!r}"))
        sockets = Sockets(loop)
        for (ours, _), heard in zip(pairs, (failing, other, later), strict=False):
            sockets.add(ours, heard)
        pairs[0][1].sendall(b"x")
        await until(lambda: bool(failing.told))
        later.transport.write(b"later")
        await asyncio.sleep(0)
        sockets.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    assert ([theirs.recv(100) for _, theirs in pairs[:3]], failing.told, said) == (
        [b"", b"begun by it", b"later"], ["RuntimeError"], ["RuntimeError('no')"],
    )  # fmt: skip


def test_closing_closes_all_and_tells_nobody(pairs: list[Pair]) -> None:
    async def run() -> tuple[list[bytes], list[str]]:
        sockets, heard = Sockets(asyncio.get_running_loop()), Heard()
        for ours, _ in pairs:
            sockets.add(ours, heard)
        sockets.close()
        await asyncio.sleep(0)
        return [theirs.recv(1) for _, theirs in pairs], heard.told

    assert uvloop.run(run()) == ([b""] * len(pairs), [])


def test_all_clients_of_a_loop_share_one_until_the_last_has_left() -> None:
    """Each of them would give the interpreter up as often as all together should."""

    async def run() -> list[bool]:
        loop = asyncio.get_running_loop()
        first, second = Sockets.of(loop), Sockets.of(loop)
        first.leave()
        third = Sockets.of(loop)
        second.leave()
        third.leave()
        fourth = Sockets.of(loop)
        fourth.leave()
        return [first is second, first is third, first is fourth]

    assert uvloop.run(run()) == [True, True, False]

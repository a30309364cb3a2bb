"""Trying to have ZooKeeper execute an old request of a lost connection after a later one of the same session."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

from inbound.embedded import EmbeddedCluster
from inbound.embedded.zookeeper import ZooKeeperServer
from integration.proxy import Proxy
from integration.wire import Connection, Session
from tests.waiting import until

#: How long released requests are given to execute. Seconds; they need milliseconds.
SETTLE = 0.3

_paths = count()


@dataclass
class Outcome:
    """What became of the old requests."""

    before: int = 0  # executed before the later one: what order allows
    never: int = 0
    after: list[str] = field(default_factory=list)  # executed after the later one

    def __iadd__(self, other: Outcome) -> Outcome:
        self.before += other.before
        self.never += other.never
        self.after += other.after
        return self

    @property
    def tried(self) -> int:
        return self.before + self.never + len(self.after)


class Ensemble:
    """Three servers by their roles, and proxies in front of them and between them."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        #: (from, to): the connection of one server, as a follower, to another one as its leader.
        self.links: dict[tuple[int, int], Proxy] = {}
        self.fronts = [Proxy(server.port) for server in cluster.zookeepers]

    def put_proxies_between(self) -> None:
        """Restart the servers so that followers reach their leader through proxies."""
        for number, server in enumerate(self.cluster.zookeepers):
            config = server.folder / "zoo.cfg"
            lines = config.read_text().splitlines()
            for at, line in enumerate(lines):
                key, _, value = line.partition("=")
                other = int(key.removeprefix("server.")) - 1 if key.startswith("server.") else number
                if other != number:
                    host, peer, election = value.split(":")
                    link = self.links[number, other] = Proxy(int(peer))
                    lines[at] = f"{key}={host}:{link.port}:{election}"
            config.write_text("\n".join(lines) + "\n")
        for server in self.cluster.zookeepers:
            server.kill()
        for server in self.cluster.zookeepers:
            server.start(wait=False)
        self.await_all()

    def await_all(self) -> None:
        """Wait until all three serve."""
        until(lambda: self._modes() == ["follower", "follower", "leader"], 90, "all three servers serve")

    def _modes(self) -> list[str]:
        return sorted(str(server.mode(1.0)) for server in self.cluster.zookeepers)

    @property
    def leader(self) -> int:
        return next(i for i, server in enumerate(self.cluster.zookeepers) if server.mode() == "leader")

    @property
    def followers(self) -> list[int]:
        return [i for i, server in enumerate(self.cluster.zookeepers) if server.mode() == "follower"]

    def server(self, number: int) -> ZooKeeperServer:
        return self.cluster.zookeepers[number]

    def close(self) -> None:
        for proxy in (*self.fronts, *self.links.values()):
            proxy.close()


#: Something that requests wait at; its value clears it.
Obstacle = Callable[[], AbstractContextManager[Callable[[], None]]]


@contextmanager
def frozen(server: ZooKeeperServer) -> Iterator[Callable[[], None]]:
    """A stopped process; the value lets it go on."""
    server.pause()

    def go_on() -> None:
        if server.paused:
            server.resume()

    try:
        yield go_on
    finally:
        go_on()


@contextmanager
def held(proxy: Proxy) -> Iterator[Callable[[], None]]:
    """A proxy that holds back its input; the value releases it."""
    proxy.hold()
    try:
        yield proxy.release
    finally:
        proxy.release()


def attempt(
    old_port: int,
    new_port: int,
    obstacle: Obstacle,
    *,
    sessions: int = 5,
    transaction: bool = False,
    cut: bool = True,
) -> Outcome:
    """Send an old request into an obstacle, move its session to another connection, write again, clear the obstacle.

    `cut`: the client closes the old connection before it reconnects; else both are open. Several sessions at once,
    each with a node of its own.
    """
    paths, old = _opened(old_port, sessions)
    later = []
    with obstacle() as clear:
        for connection, path in zip(old, paths, strict=True):
            (connection.send_transaction if transaction else connection.send_set)(path, b"old")
            if cut:
                connection.close()
        for connection, path in zip(old, paths, strict=True):
            moved = _move(new_port, connection.session)
            (moved.send_transaction if transaction else moved.send_set)(path, b"later")
            reply = moved.reply()
            assert reply.error == 0, f"the later write of {path!r} was answered with {reply}"
            later.append((moved, moved.get(path)))
        clear()
    time.sleep(SETTLE)
    return _judge(paths, old, later, new_port)


def _opened(port: int, sessions: int) -> tuple[list[bytes], list[Connection]]:
    """Return nodes of so many new sessions, and their connections."""
    paths = [b"/order-%d" % next(_paths) for _ in range(sessions)]
    connections = [Connection(port) for _ in paths]
    for connection, path in zip(connections, paths, strict=True):
        connection.create(path)
    return paths, connections


def _move(port: int, session: Session) -> Connection:
    """Take a session to another server, which may be electing a leader first."""

    def moved() -> Connection | None:
        with suppress(OSError):
            return Connection(port, session)
        return None

    return until(moved, 25, "a server takes the session")  # type: ignore[return-value]


def _judge(
    paths: list[bytes], old: list[Connection], later: list[tuple[Connection, tuple[bytes, int]]], port: int
) -> Outcome:
    outcome = Outcome()
    with Connection(port) as reader:
        for path, (_, (data, version)) in zip(paths, later, strict=True):
            now = reader.get(path)
            if now != (data, version):
                outcome.after.append(f"{path.decode()}: {data!r} version {version}, then {now[0]!r} version {now[1]}")
            elif version == 2:
                outcome.before += 1
            else:
                outcome.never += 1
    for connection in (*old, *(one for one, _ in later)):
        with suppress(OSError):
            connection.close()
    return outcome


def control(old_port: int, obstacle: Obstacle) -> bool:
    """Whether a request does execute once the obstacle is cleared, if its session did not move: that it gets there."""
    path = b"/order-%d" % next(_paths)
    connection = Connection(old_port)
    connection.create(path)
    with obstacle() as clear:
        connection.send_set(path, b"old")
        connection.close()
        time.sleep(SETTLE)
        clear()
    with Connection(old_port) as reader, suppress(AssertionError):
        until(lambda: reader.get(path) == (b"old", 1), 20, "it has executed")
        return True
    return False


def ways(e: Ensemble) -> dict[str, tuple[int, int, Obstacle]]:
    """Return where a request can wait: the old connection's port, the new one's, and what is in the way."""
    one, two = e.followers
    leader = e.leader
    port = [proxy.port for proxy in e.fronts]
    direct = [server.port for server in e.cluster.zookeepers]
    link = e.links[one, leader]
    return {
        "on the way to a follower, on to the other": (port[one], direct[two], lambda: held(e.fronts[one])),
        "on the way to a follower, on to the leader": (port[one], direct[leader], lambda: held(e.fronts[one])),
        "on the way to the leader, on to a follower": (port[leader], direct[two], lambda: held(e.fronts[leader])),
        "on the way to a follower, on to the same": (port[one], direct[one], lambda: held(e.fronts[one])),
        "on the way to the leader, on to the same": (port[leader], direct[leader], lambda: held(e.fronts[leader])),
        "at a frozen follower, on to the other": (direct[one], direct[two], lambda: frozen(e.server(one))),
        "at a frozen follower, on to the leader": (direct[one], direct[leader], lambda: frozen(e.server(one))),
        "between a follower and the leader, on to the other": (direct[one], direct[two], lambda: held(link)),
        "between a follower and the leader, on to the leader": (direct[one], direct[leader], lambda: held(link)),
    }


def variants(e: Ensemble, rounds: int) -> tuple[Counter[str], dict[str, Outcome]]:
    """Try every place where a request can wait, `rounds` times each. Returns how often controls executed, and outcomes."""
    executed: Counter[str] = Counter()
    outcomes: dict[str, Outcome] = {}
    for name in ways(e):
        e.await_all()
        old, new, obstacle = ways(e)[name]  # who leads may have changed
        executed[name] += control(old, obstacle)
        outcomes[name] = Outcome()
        for number in range(rounds):
            outcomes[name] += attempt(old, new, obstacle, transaction=number % 2 == 0, cut=number % 4 < 2)
    return executed, outcomes


def there_and_back(e: Ensemble, sessions: int, *, moved_epoch: bool) -> Outcome:
    """Like `attempt` with a frozen follower, but each session is on its way back to that follower when it wakes up.

    `moved_epoch`: the later write moves the epoch that all writes check.
    """
    one, two = (e.server(number) for number in e.followers)
    paths, old = _opened(one.port, sessions)
    for connection, path in zip(old, paths, strict=True):
        connection.create(path + b"-epoch")
    later, back = [], []
    with frozen(one) as wake:
        for connection, path in zip(old, paths, strict=True):
            epoch = path + b"-epoch"
            connection.send_transaction(path, b"old", epoch=epoch)
            moved = Connection(two.port, connection.session)
            moved.send_transaction(path, b"later", epoch=epoch, move_epoch=moved_epoch)
            assert moved.reply().error == 0
            later.append((moved, moved.get(path)))
            moved.close()
            back.append(Connection(one.port, connection.session, wait=False))
        wake()
    for connection in back:
        connection.finish()
    time.sleep(SETTLE)
    return _judge(paths, [*old, *back], later, two.port)


def on_to_the_same_frozen(server: ZooKeeperServer, sessions: int) -> Outcome:
    """The session reconnects to the frozen server that has the old request, and writes once it has woken up."""
    paths, old = _opened(server.port, sessions)
    with frozen(server) as wake:
        for connection, path in zip(old, paths, strict=True):
            connection.send_set(path, b"old")
        again = [Connection(server.port, connection.session, wait=False) for connection in old]
        wake()
    later = []
    for connection, path in zip(again, paths, strict=True):
        connection.finish()
        connection.send_set(path, b"later")
        assert connection.reply().error == 0
        later.append((connection, connection.get(path)))
    time.sleep(SETTLE)
    return _judge(paths, old, later, server.port)

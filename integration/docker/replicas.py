"""Replicas of inbound, each in a container, on a topic and a group of their own; with load and account as elsewhere."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docker.errors import APIError
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient

from integration.books import Books
from integration.docker.engine import labels, remove, unique
from integration.docker.site import PORTS, Link, Site
from tests.waiting import until

PLUGINS = Path(__file__).parents[1] / "plugins"
#: A process that stops has its `shutdown_timeout` (25 s); then the engine kills it. Seconds.
GRACE = 40
_REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()"


class Replica:
    """One container of inbound, and what can happen to it."""

    def __init__(self, site: Site, name: str, container: Any) -> None:
        self._site = site
        self.name = name
        self.container = container

    def start(self) -> None:
        """Start it, for the first time or again: its file system is still there."""
        self.container.start()

    def stop(self) -> int:
        """Stop it as `docker stop` does: SIGTERM, then SIGKILL after the grace. Returns the exit code."""
        self.container.stop(timeout=GRACE)
        return self.exit_code()

    def kill(self) -> int:
        """Kill it: nothing in it gets to do anything. Returns the exit code."""
        self.container.kill(signal.SIGKILL)
        return self.exit_code()

    def exit_code(self) -> int:
        """Wait until it has ended; return its exit code."""
        code: int = self.container.wait(timeout=120)["StatusCode"]
        return code

    def cut(self, *links: Link) -> None:
        """Take it off the networks of these servers, and make sure that it reaches them no more."""
        self.disconnect(*links)
        self.check_cut(*links)

    def disconnect(self, *links: Link) -> None:
        """Take it off the networks of these servers."""
        for link in links:
            self._site.networks[link].disconnect(self.container)

    def check_cut(self, *links: Link) -> None:
        """Make sure that it does not reach these servers."""
        for link in links:
            assert not self.reaches(link, 1.0), (
                f"{self.name} still reaches {link}: the engine lets one network into another"
            )

    def mend(self, *links: Link) -> None:
        """Put it back on these networks."""
        for link in links:
            self._site.networks[link].connect(self.container)

    def reaches(self, link: Link, seconds: float) -> bool:
        """Whether a connection from inside to that server comes about in time."""
        python = ["python", "-c", _REACH, link, str(PORTS[link]), str(seconds)]
        code: int = self.container.exec_run(python).exit_code
        return code == 0

    def inbound(self, *arguments: str) -> tuple[int, str]:
        """Run a command of inbound in it; returns exit code and output."""
        done = self.container.exec_run(["inbound", *arguments], demux=True)
        return done.exit_code, (done.output[0] or b"").decode()

    def user_id(self) -> str:
        """Return the number of the user that its programs run as."""
        said: bytes = self.container.exec_run(["id", "-u"]).output
        return said.decode().strip()

    def log(self) -> str:
        """Return what it logged since it was made."""
        text: str = self.container.logs().decode(errors="replace")
        return text

    def health(self) -> str:
        """Return what the image's own health check says by now: starting, healthy or unhealthy."""
        self.container.reload()
        status: str = self.container.attrs["State"]["Health"]["Status"]
        return status


class Replicas(Books):
    """A topic, its group, and replicas that read it; `close` removes them.

    The folder is seen in every container under the name that it has here: configuration, journals, ledger.
    """

    def __init__(
        self,
        site: Site,
        folder: Path,
        *,
        partitions: int = 6,
        session: float = 10.0,
        join_delay: float = 1.0,
        seconds_per_record: float = 0.0,
    ) -> None:
        """Make the topic. `session`: of ZooKeeper; `join_delay`: who has a new one claims nothing new for so long. Seconds."""
        self.site = site
        self.folder = folder
        self.partitions = partitions
        self.session = session
        self.join_delay = join_delay
        self.seconds_per_record = seconds_per_record
        self.bootstrap_servers = site.bootstrap_servers
        self.published = Counter()
        self.running: list[Replica] = []
        self._load: threading.Thread | None = None
        self._stop_load = threading.Event()
        self.topic = f"orders-{folder.name}"
        self.group = f"orders-svc-{folder.name}"
        self.seen_folder = folder / "seen"
        for place in (folder, self.seen_folder, folder / "ledger"):
            place.mkdir(exist_ok=True)
            place.chmod(0o777)  # the image's user is another than that of the test
        shutil.copy(PLUGINS / "recorder.py", folder)
        self.config = self._write("inbound.yaml", "zookeeper:2181", "kafka:9092")
        #: The same group, as it is reached from here.
        self.outside = self._write("outside.yaml", site.zookeeper_hosts, site.bootstrap_servers)
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            admin.create_topics([NewTopic(self.topic, partitions, 1)])
        finally:
            admin.close()
        self.zk = KazooClient(site.zookeeper_hosts, timeout=30)
        self.zk.start(timeout=30)

    def _write(self, name: str, zookeeper: str, kafka: str) -> Path:
        options = {"folder": str(self.seen_folder), "seconds_per_record": self.seconds_per_record}
        place = self.folder / name
        place.write_text(
            f'zookeeper: {{hosts: "{zookeeper}", session_timeout: {self.session}s}}\n'
            f'kafka: {{bootstrap.servers: "{kafka}"}}\n'
            f"controller: {{join_delay: {self.join_delay}s}}\n"
            f"ledger: {{path: {self.folder / 'ledger'}}}\n"
            f"channels:\n  orders:\n    topics: [{self.topic}]\n    group: {self.group}\n"
            # Else commits that are on their way when a replica is killed or cut off are repeated, too, and not its batch alone.
            "    max_uncommitted_records: 0\n"
            f'    processor: {{type: "recorder:Recorder", options: {json.dumps(options)}}}\n'
        )
        return place

    def start(self, count: int = 1) -> list[Replica]:
        """Start so many new replicas; returns them."""
        hosts = {link: self.site.address(link) for link in PORTS}  # a link that is cut takes no name away
        new = []
        for _ in range(count):
            name = f"replica-{len(self.running) + 1}"
            container = self.site.client.containers.create(
                self.site.images.replica, ["run", "-c", str(self.config)], name=unique(name), hostname=name,
                user=self.site.user(), labels=labels(), network=self.site.networks["zookeeper"].name, extra_hosts=hosts,
                environment={
                    "INBOUND__CHANNELS__ORDERS__PROCESSOR__OPTIONS__NAME": name,
                    "XDG_STATE_HOME": str(self.folder),  # its user may write there
                },
                volumes={str(self.folder): {"bind": str(self.folder), "mode": "rw"}},
            )  # fmt: skip
            new.append(Replica(self.site, name, container))
            self.running.append(new[-1])
            self.site.networks["kafka"].connect(container)
            container.start()
        return new

    def cut_all(self, *links: Link) -> None:
        """Take all replicas off the networks of these servers, one right after the other; then make sure of it."""
        for one in self.running:
            one.disconnect(*links)
        for one in self.running:
            one.check_cut(*links)

    def owned(self) -> dict[str, set[int]]:
        """Return the partitions of each replica that owns any, by its name."""
        found: dict[str, set[int]] = {}
        for partition, owner in self.owners().items():
            found.setdefault(owner.rpartition("-")[0].rpartition("-")[0], set()).add(partition)
        return found

    def shared_by(self, replicas: Sequence[Replica]) -> bool:
        """Whether these own everything, each its share, and nobody else any."""
        owned = self.owned()
        sizes = [len(share) for share in owned.values()]
        return (
            owned.keys() == {one.name for one in replicas}
            and sum(sizes) == self.partitions
            and max(sizes) - min(sizes) <= 1
        )

    def wait_shared(self, replicas: Sequence[Replica], seconds: float = 90.0) -> None:
        """Wait until it is so."""
        until(
            lambda: self.shared_by(replicas),
            seconds,
            lambda: f"{[r.name for r in replicas]}: {self.owned()}\n{self.logs()}",
        )

    def repeated_beyond(self, allowed: dict[int, set[int]]) -> dict[int, set[int]]:
        """Return the offsets that were delivered more than once although they are not among these."""
        repeated = self.account().repeated.items()
        return {p: beyond for p, offsets in repeated if (beyond := set(offsets) - allowed.get(p, set()))}

    def logs(self) -> str:
        """Return the last lines of every replica, for a message."""
        return "\n".join(f"-- {one.name}\n" + "\n".join(one.log().splitlines()[-15:]) for one in self.running)

    def close(self) -> None:
        """Remove the replicas, end the load."""
        self._stop_load.set()
        for one in self.running:
            try:
                remove(one.container)
            except APIError as error:  # the sweep at the end tries again
                print(f"{one.name} could not be removed: {error}")
        if self._load is not None:
            self._load.join(timeout=90)
        self.zk.stop()
        self.zk.close()

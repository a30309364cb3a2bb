"""An ingress as a process of its own, clients that note what they were answered, and what is in the topic then."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import kafka
import kafka.errors
from kafka.admin import KafkaAdminClient, NewTopic

from integration.whole_topic import read_topic
from tests.waiting import until


class Found(NamedTuple):
    """One record of a topic."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def records(bootstrap: str, topic: str) -> list[Found]:
    """Return every record that is in a topic now."""
    return [Found(record.key, record.value, dict(record.headers)) for record in read_topic(bootstrap, topic)]


class IngressScene:
    """One test's topic and ingress; `close` ends everything it started."""

    def __init__(
        self, bootstrap: str, folder: Path, *, client: str = "auto", partitions: int = 4, extra: str = ""
    ) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.topic = f"ingress-{uuid.uuid4().hex[:8]}"
        self.make_topic(self.topic, partitions)
        self.config = folder / "inbound.yaml"
        self.config.write_text(
            f'kafka: {{bootstrap.servers: "{bootstrap}"}}\nadmin: {{listen: "127.0.0.1:0"}}\n'
            f'ingress: {{listen: "127.0.0.1:0", client: {client}{extra}}}\n'
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def make_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        """Make a topic, with what its configuration is to say."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        with suppress(kafka.errors.TopicAlreadyExistsError):  # other tests of the session may share it
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
        admin.close()

    def start(self, *command: str) -> None:
        """Start the ingress, and wait until it is ready."""
        arguments = command or ("ingress",)
        with open(self.folder / "ingress.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "inbound", *arguments, "-c", str(self.config)], stderr=log, env={**os.environ}
            )
        until(lambda: "ingress: http" in self.log() or self.ended(), 60, "the ingress listens")
        line = next(line for line in self.log().splitlines() if "ingress: http" in line)
        self.port = int(line.partition("://")[2].partition(",")[0].rpartition(":")[2])
        until(lambda: self.ask("/readyz", method="GET")[0] == 200, 60, lambda: f"the ingress is ready: {self.log()}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return (self.folder / "ingress.log").read_text()

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=90)

    def ask(
        self, target: str, body: bytes = b"", headers: dict[str, str] | None = None, method: str = "POST"
    ) -> tuple[int, str, dict[str, str]]:
        """Ask on a connection of its own. Returns status, body and headers of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode().strip(), {k.lower(): v for k, v in answer.headers.items()}
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Return a connection to speak on by hand."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def post(self, number: int, body: bytes = b"hello") -> tuple[int, str, dict[str, str]]:
        """Post one event in binary mode to the topic."""
        return self.ask(f"/topics/{self.topic}", body, event(str(number)))

    def ids(self) -> Counter[str]:
        """Return how often each event is in the topic."""
        return Counter(id_of(record) for record in records(self.bootstrap, self.topic))

    def close(self) -> None:
        """End what still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Load:
    """Clients that post one event, or a batch, after the other on kept-alive connections until the ingress ends it.

    `accepted` are the ids whose request was answered with 202, `unanswered` those whose connection broke instead. With
    `returning` a client whose connection was closed makes another one, until `end`.
    """

    def __init__(self, scene: IngressScene, clients: int = 8, batch: int = 1, *, returning: bool = False) -> None:
        self.accepted: set[str] = set()
        self.unanswered: set[str] = set()
        self.answers: Counter[int] = Counter()
        self._served: set[int] = set()  # threads
        self._scene = scene
        self._batch = batch
        self._returning = returning
        self._over = threading.Event()
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    @property
    def under_way(self) -> bool:
        """Whether every client was answered, and the load is considerable."""
        return len(self._served) == len(self._threads) and len(self.accepted) > 500

    def end(self) -> None:
        """Wait until every client has ended."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._scene.port, timeout=60)
        connection.connect()
        connection.auto_open = 0  # a connection that was closed in order stays so
        while not self._over.is_set():
            ids = [str(next(self._numbers)) for _ in range(self._batch)]
            try:
                connection.request("POST", f"/topics/{self._scene.topic}", *self._message(ids))
                answer = connection.getresponse()
                answer.read()
            except http.client.NotConnected:
                if not self._returning:
                    return
                connection.close()  # forgets the request that was begun
                with suppress(OSError):  # nothing listens for a moment
                    connection.connect()
                    continue
                self._over.wait(0.01)
                continue
            except (OSError, http.client.HTTPException):
                self.unanswered.update(ids)
                if not self._returning:
                    return
                connection.close()
                continue
            self.answers[answer.status] += 1
            self._served.add(threading.get_ident())
            if answer.status == 202:
                self.accepted.update(ids)

    def _message(self, ids: list[str]) -> tuple[bytes, dict[str, str]]:
        if self._batch == 1:
            return b"x" * 200, event(ids[0])
        events = [{"specversion": "1.0", "id": i, "source": "/tests", "type": "t", "data": "x" * 200} for i in ids]
        return json.dumps(events).encode(), {"content-type": "application/cloudevents-batch+json"}


def event(identity: str) -> dict[str, str]:
    """Return the headers of an event in binary mode."""
    return {
        "ce-specversion": "1.0", "ce-id": identity, "ce-source": "/tests", "ce-type": "t", "content-type": "text/plain",
    }  # fmt: skip


def id_of(record: Found) -> str:
    """Return the id of the event in a record of either mode."""
    if "ce_id" in record.headers:
        return record.headers["ce_id"].decode()
    return str(json.loads(record.value or b"")["id"])

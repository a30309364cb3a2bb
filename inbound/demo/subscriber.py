"""The demo's second path: announcements from an ingress to a subscriber.

They pass through Kafka. The demo counts the announcements that the ingress answered with 202, and those that the subscriber got.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from inbound.config import IngressConfig
from inbound.demo.consumers import DemoError
from inbound.ingress.server import Ingress
from inbound.processors.dispatch.options import DispatchOptions

TOPIC, GROUP, PARTITIONS = "announcements", "subscriber", 4
#: What a kill may repeat of each partition: the dispatcher's `max_in_flight`.
WINDOW: int = DispatchOptions.model_fields["max_in_flight"].default
#: An announcement is posted every so many seconds.
EVERY = 0.02
_START_LIMIT = 30.0
_TIMEOUT = 10.0


class CountingSubscriber:
    """Counts how often each event arrives. Its thread ends with `close`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        subscriber = self
        lock = threading.Lock()

        class CountingHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                with lock:
                    subscriber.counts[self.headers.get("ce-id", "")] += 1
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        class CountingServer(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A dispatcher that is killed breaks its connections: that is the demo."""

        self._server = CountingServer(("127.0.0.1", 0), CountingHandler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/announcements"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="subscriber", daemon=True)
        self._thread.start()

    def dispatched(self, accepted: int) -> Dispatched:
        """Return the account of so many accepted announcements."""
        counts = Counter(self.counts)
        return Dispatched(accepted, len(counts), counts.total() - len(counts))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def make_ingress(kafka: str) -> Ingress:
    """Return an ingress for the announcements, in this process, not started."""
    logging.getLogger("inbound.ingress").setLevel(logging.WARNING)  # the demo tells its own story
    return Ingress(IngressConfig(listen="127.0.0.1:0", topics=(TOPIC,)), {"bootstrap.servers": kafka})


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The account of the announcements."""

    accepted: int  # answered with 202 by the ingress
    received: int  # that came to the subscriber at least once
    repeated: int  # further times that one came

    def problems(self) -> list[str]:
        """Return a line for each figure that is wrong."""
        found = []
        if self.accepted != self.received:
            found.append(
                f"the ingress accepted {self.accepted} announcements, but {self.received} came to the subscriber"
            )
        if self.repeated > PARTITIONS * WINDOW:
            found.append(
                f"{self.repeated} announcements were repeated, but a kill explains {PARTITIONS * WINDOW} at most"
            )
        return found


class Announcements:
    """Posts each announcement until a 202, in a thread of its own."""

    def __init__(self, ingress: Ingress) -> None:
        """`ingress` is started."""
        self.accepted = 0
        self._address = urlsplit(ingress.url).netloc
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcements", daemon=True)

    def start(self) -> None:
        """Wait until the ingress answers, and begin. Raises DemoError: it does not."""
        if not self._posted("first"):
            raise DemoError(
                f"the ingress at {self._address} takes nothing within {_START_LIMIT:.0f} s; see Kafka's log"
            )
        self.accepted = 1
        self._thread.start()

    def finish(self) -> int:
        """Post nothing more. Returns how many the ingress has accepted."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        return self.accepted

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(EVERY):
            number += 1
            if not self._posted(str(number)):
                return
            self.accepted += 1

    def _posted(self, name: str) -> bool:
        """Post until accepted: an announcement without an answer may have arrived."""
        deadline = time.monotonic() + _START_LIMIT
        while not self._post(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def _post(self, name: str) -> bool:
        connection = http.client.HTTPConnection(self._address, timeout=_TIMEOUT)
        try:
            headers = {
                "ce-specversion": "1.0", "ce-id": name, "ce-source": "/demo", "ce-type": "announcement",
                "ce-partitionkey": name, "content-type": "text/plain",
            }  # fmt: skip
            connection.request("POST", f"/topics/{TOPIC}", f"announcement {name}", headers)
            return connection.getresponse().status == 202
        except OSError:
            return False
        finally:
            connection.close()


def channel(url: str) -> str:
    """Return the configuration of the channel that dispatches to the subscriber."""
    return f"""\
  {GROUP}:
    topics: [{TOPIC}]
    group: {GROUP}
    shutdown_timeout: 10s
    processor: {{type: dispatch, options: {{subscriberUri: {json.dumps(url)}}}}}
"""

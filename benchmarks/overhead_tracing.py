"""A collector of spans for one run: it takes them, and throws them away. What it computes is the benchmark's own CPU time."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: What a process that is traced has in its configuration.
TRACING = 'tracing: {{backend: otlp, endpoint: "{url}", sample_rate: 0.1}}'


class Collector:
    """Listens on a free port of this machine until `end`."""

    def __init__(self) -> None:
        collector = self
        self._requests = 0

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                collector._requests += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: the benchmark prints what there is to see."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def configuration(self) -> str:
        """The section of a process that sends its spans here."""
        return TRACING.format(url=f"http://127.0.0.1:{self._server.server_port}")

    def end(self) -> int:
        """Stop, and return how many requests with spans came.

        Raises:
            SystemExit: none, so the run has measured nothing.
        """
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if not self._requests:
            raise SystemExit("no spans came to the collector")
        return self._requests

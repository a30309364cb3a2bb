"""A subscriber to try things on: takes every event that is posted, and prints its attributes, one line each."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, b"ok\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        attributes = {key.lower()[3:]: value for key, value in self.headers.items() if key.lower().startswith("ce-")}
        told = " ".join(f"{key}={value}" for key, value in sorted(attributes.items()))
        print(f"{told or self.headers.get('Content-Type')} ({len(body)} bytes)", flush=True)
        self._answer(202, b"")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what matters is printed."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("", int(sys.argv[1]) if sys.argv[1:] else 8080), Sink)
    server.serve_forever()

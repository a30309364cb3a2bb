"""The transport over `requests`, in threads: slower, but with adapters."""

from __future__ import annotations

import asyncio
import time
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ReadTimeoutError
from urllib3.util.ssl_ import create_urllib3_context

from inbound.config.units import format_duration
from inbound.http.client.client import retry_after
from inbound.processors.dispatch.transport import Answer, Done, Target, Transport
from inbound.processors.sinks.http_client import TIMED_POOLS
from inbound.runtime.driver import DaemonThreads

#: Requests at a time, for all targets; each has a thread.
THREADS = 64
_CHUNK = 16 * 1024


class TimedAdapter(HTTPAdapter):
    """An adapter whose read timeout bounds the answer, not each read."""

    def __init__(self, *args: Any, ca_text: str | None = None, **more: Any) -> None:
        """`ca_text`: PEM of authorities besides those that `requests` knows."""
        self._ca_text = ca_text
        super().__init__(*args, **more)

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        if self._ca_text is not None:
            more["ssl_context"] = context = create_urllib3_context()
            context.load_verify_locations(cadata=self._ca_text)
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = TIMED_POOLS


class RequestsTransport(Transport):
    """Posts by one `requests.Session` per target.

    To add adapters, make a subclass and override `session`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = DaemonThreads(THREADS)  # a hanging receiver must not keep the process from ending
        self._sessions: dict[Target, requests.Session] = {}
        self._closed = False

    def session(self, target: Target) -> requests.Session:
        """Make a target's session; override it to mount adapters, set `auth`."""
        session = requests.Session()
        session.trust_env = False
        # Cookies of a subscriber must not be kept and sent.
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        adapter = TimedAdapter(
            pool_connections=1, pool_maxsize=target.connections, max_retries=0, pool_block=True, ca_text=target.ca_text
        )
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        session.verify = str(target.ca_file) if target.ca_file is not None else True
        if target.client_cert is not None:
            session.cert = (str(target.client_cert), str(target.client_key or target.client_cert))
        return session

    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        if target not in self._sessions:
            self._sessions[target] = self.session(target)
        self._threads.submit(self._post, self._sessions[target], target, lines, body, done)

    def retire(self, target: Target) -> None:
        session = self._sessions.pop(target, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for session in self._sessions.values():
            session.close()

    def _post(self, session: requests.Session, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        answer = self._answer(session, target, lines, body)
        if not self._closed:
            self._loop.call_soon_threadsafe(done, answer)

    def _answer(self, session: requests.Session, target: Target, lines: list[bytes], body: bytes) -> Answer:
        headers: dict[str, str | None] = {"Accept-Encoding": "identity"}
        for line in (*target.headers, *lines):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name] = value.strip()
        deadline = time.monotonic() + target.timeout
        late = Answer(0, problem=f"no whole answer within timeout ({format_duration(target.timeout)})")
        try:
            with session.post(
                target.url, data=body, headers=headers, timeout=(target.connect_timeout, target.timeout),
                allow_redirects=False, stream=True,
            ) as response:  # fmt: skip
                taken = bytearray()  # a list of pieces of one byte would take a hundred times their size
                for chunk in response.raw.stream(_CHUNK, decode_content=False):
                    if time.monotonic() > deadline:
                        return late
                    taken += chunk
                    if len(taken) > target.most_read:
                        break
                received = [(n.lower().encode(), v.encode("latin-1")) for n, v in response.headers.items()]
                return Answer(
                    response.status_code,
                    received if target.wants_reply else (),
                    bytes(taken[: target.most_read]),
                    retry_after(received) if response.status_code >= 300 else None,
                    cut=len(taken) > target.most_read,
                )
        except requests.ConnectTimeout:
            return Answer(
                0, problem=f"no connection within connect_timeout ({format_duration(target.connect_timeout)})"
            )
        except (requests.Timeout, ReadTimeoutError):  # the second is of the body, which `requests` does not read
            return late
        except requests.exceptions.SSLError as error:
            return Answer(0, problem=f"TLS: {error}; correct `ca_file` or `client_cert`, or the receiver's certificate")
        except Exception as error:  # an adapter may raise anything
            return Answer(0, problem=f"the connection broke ({type(error).__name__}: {error})")

"""The head of a request: its topic, forwarded headers, and webhook handshake."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from urllib.parse import unquote

from inbound.config import IngressConfig
from inbound.config.values import topic_name
from inbound.http.server.page import ServerAnswer
from inbound.processors.http_headers import MOST_BYTES, MOST_HEADERS, MOST_LOOKED_AT, Forwarding
from inbound.runtime.patterns import glob

#: Suffixes of the names of a channel's Kubernetes service: of eventing-kafka, of its first versions.
_SERVICE_SUFFIXES = ("-kn-channel", "-kafkachannel")
#: Kafka's own topics, such as `__consumer_offsets`.
_INTERNAL = "__"
RULES = "/topics/<topic>, /<namespace>/<channel>, or Host: <channel>.<namespace>..."


class NoTopicError(Exception):
    """The request names no topic that may be posted to."""


class Router:
    """Finds the topic of a request. Pure."""

    def __init__(self, config: IngressConfig) -> None:
        self._hosts: Mapping[str, str] = config.hosts
        self._paths: Mapping[str, str] = config.paths
        self._topics = frozenset(config.topics)
        self._pattern = re.compile(config.topics_pattern) if config.topics_pattern is not None else None

    def candidates(self, host: str, target: str) -> tuple[str, ...]:
        """Return a request's possible topics, the likeliest first.

        `target` is its request target.

        Raises:
            NoTopicError: there is none, or none that may be posted to.
        """
        path = target.partition("?")[0]
        if not path.startswith("/") and "://" in path:  # as proxies write it
            host, _, path = path.partition("://")[2].partition("/")
            path = f"/{path}"
        host = _without_port(host).lower()
        if path in self._paths:
            found: tuple[str, ...] = (self._paths[path],)
        elif path != "/":
            found = _of_path(path)
        elif host in self._hosts:
            found = (self._hosts[host],)
        else:
            found = _of_host(host)
        allowed = tuple(topic for topic in found if self._may(topic))
        if not found:
            raise NoTopicError(
                f"neither the path {path[:200]} nor the host {host[:200]} names a topic; post to {RULES}"
            )
        if not allowed:
            raise NoTopicError(f"topic {found[0][:200]}: not one that may be posted to here; see ingress.topics")
        return allowed

    def choose(self, candidates: tuple[str, ...], existing: Collection[str]) -> str:
        """Return the first of `candidates` that exists; raises NoTopicError: none does."""
        for topic in candidates:
            if topic in existing:
                return topic
        raise NoTopicError(f"topic {candidates[0]}: does not exist; create it, or check the name")

    def _may(self, topic: str) -> bool:
        if not topic_name.matches(topic):
            return False
        if topic in self._topics or topic in self._hosts.values() or topic in self._paths.values():
            return True
        if self._pattern is not None:
            return self._pattern.fullmatch(topic) is not None
        return not self._topics and not topic.startswith(_INTERNAL)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


def _of_path(path: str) -> tuple[str, ...]:
    parts = [unquote(part) for part in path.removesuffix("/").split("/")[1:]]  # split first: a `%2f` is no separator
    if len(parts) == 2 and all(parts):
        return (parts[1],) if parts[0] == "topics" else (f"{parts[0]}.{parts[1]}",)
    return ()


def _of_host(host: str) -> tuple[str, ...]:
    """Return the topics of a host, by eventing-kafka's names.

    `my-channel.mynamespace.svc.cluster.local` is the topic `mynamespace.my-channel`.
    """
    channel, _, rest = host.partition(".")
    namespace = rest.partition(".")[0]
    if not channel or not namespace or re.fullmatch(r"[0-9.]+", host):
        return ()
    bare = [channel.removesuffix(suffix) for suffix in _SERVICE_SUFFIXES if channel.endswith(suffix)]
    return tuple(f"{namespace}.{name}" for name in (channel, *bare) if name)


#: The methods of a target, as Knative's receivers name them.
ALLOW = "Allow: POST, OPTIONS"
_ORIGIN = b"webhook-request-origin"
#: Any sender, in the list of origins and in the answer.
_ANY = "*"
#: A DNS expression: an answer repeats nothing else in its headers.
_NAME = re.compile(r"[A-Za-z0-9._*-]{1,253}(:[0-9]{1,5})?").fullmatch


class Webhook:
    """Answers senders that ask whether they may post. Pure."""

    def __init__(self, origins: Sequence[str]) -> None:
        """`origins` are names of senders, in which `*` stands for any text."""
        self._any = _ANY in origins
        self._patterns = [glob(origin.lower()) for origin in origins]

    def answer(self, headers: Iterable[tuple[bytes, bytes]]) -> ServerAnswer:
        """Answer an OPTIONS; the permission is two headers, not a status.

        Any rate is allowed: the ingress answers 429 when it cannot write as fast as events come. It never calls the
        callback that a request may name: strangers would choose this process's requests.
        """
        origins = [value.strip().decode("latin-1") for name, value in headers if name.lower() == _ORIGIN]
        if not origins:
            return ServerAnswer(200, headers=(ALLOW,))
        if len(origins) > 1:
            return ServerAnswer(400, "the header WebHook-Request-Origin is there more than once", headers=(ALLOW,))
        (origin,) = origins
        if self._any:
            origin = _ANY
        elif not _NAME(origin) or not any(pattern.fullmatch(origin.lower()) for pattern in self._patterns):
            reason = f"the sender {origin[:200]} may not post: ingress.webhook_origins does not name it"
            return ServerAnswer(403, reason, headers=(ALLOW,))
        return ServerAnswer(200, headers=(ALLOW, f"WebHook-Allowed-Origin: {origin}", "WebHook-Allowed-Rate: *"))


Headers = list[tuple[str, bytes]]

#: Bounds of the remembered names: they come from the network.
_NAMES_KEPT, _LONGEST_KEPT = 4096, 64
#: At the ends of a value: the parser leaves trailing ones.
_BLANKS = b" \t"


class PassedHeaders:
    """Picks a request's headers for its records. One thread."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """`patterns` are globs of names of headers."""
        self._forwarding = Forwarding(patterns)
        self._stay: set[bytes] = set()  # received names that are not forwarded
        self._names: dict[bytes, str] = {}  # those that are, in lower case
        self.left_out = 0  # headers that had no room

    def of(self, headers: Sequence[tuple[bytes, bytes]], size: int) -> Headers:
        """Return the forwarded headers, with names in lower case.

        The values of a header in several lines are joined by commas (RFC 9110, 5.3). `size` is a bound of the bytes of
        `headers`.
        """
        stay = self._stay
        found = [header for header in headers if header[0] not in stay]
        return self._named(found[:MOST_LOOKED_AT], size) if found else []

    def _named(self, headers: Sequence[tuple[bytes, bytes]], size: int) -> Headers:
        names = self._names
        found = [(name, value.strip(_BLANKS)) for raw, value in headers if (name := names.get(raw) or self._learn(raw))]
        if size <= MOST_BYTES and len(found) <= MOST_HEADERS and len(dict(found)) == len(found):  # as nearly always
            return found
        kept = _bounded(found)
        self.left_out += len(dict(found)) - len(kept)
        return kept

    def _learn(self, raw: bytes) -> str:
        """Learn a header's name for records; empty: it is not forwarded."""
        name = raw.decode("latin-1").lower()
        passes = self._forwarding.passes(name)
        if len(self._stay) + len(self._names) < _NAMES_KEPT and len(raw) <= _LONGEST_KEPT:
            if passes:
                self._names[raw] = name
            else:
                self._stay.add(raw)
        return name if passes else ""


def size_of(headers: Headers) -> int:
    """Return the bytes of names and values."""
    return sum(len(name) + len(value) for name, value in headers)


def _bounded(found: Headers) -> Headers:
    lines: dict[str, list[bytes]] = {}
    for name, value in found:
        lines.setdefault(name, []).append(value)
    kept: Headers = []
    room = MOST_BYTES
    for name, values in lines.items():
        value = b",".join(values)
        size = len(name) + len(value)
        if size <= room and len(kept) < MOST_HEADERS:
            kept.append((name, value))
            room -= size
    return kept

"""Which topic a request is for: by the configuration's hosts and paths, by its path, or by its host as Knative has it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import unquote

from inbound.config import IngressConfig

#: What stands behind a channel's name in the name of its Kubernetes service: of eventing-kafka, of its first versions.
_SERVICE_SUFFIXES = ("-kn-channel", "-kafkachannel")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}").fullmatch
#: Kafka's own topics, such as `__consumer_offsets`.
_INTERNAL = "__"
RULES = "/topics/<topic>, /<namespace>/<channel>, or Host: <channel>.<namespace>..."


class NoTopicError(Exception):
    """The request names no topic that may be posted to; the message says why."""


class Router:
    """Pure. `candidates` depends on the request alone, `choose` on which topics there are."""

    def __init__(self, config: IngressConfig) -> None:
        self._hosts: Mapping[str, str] = config.hosts
        self._paths: Mapping[str, str] = config.paths
        self._topics = frozenset(config.topics)
        self._pattern = re.compile(config.topics_pattern) if config.topics_pattern is not None else None

    def candidates(self, host: str, target: str) -> tuple[str, ...]:
        """Return the topics that a request may be for, the likeliest first; `target` is its request target.

        Raises NoTopicError: none, or none that may be posted to.
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
        """Return the first of `candidates` that exists. Raises NoTopicError: none does."""
        for topic in candidates:
            if topic in existing:
                return topic
        raise NoTopicError(f"topic {candidates[0]}: does not exist; create it, or check the name")

    def _may(self, topic: str) -> bool:
        if not _TOPIC(topic) or topic in (".", ".."):
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
    parts = [unquote(part) for part in path.removesuffix("/").split("/")[1:]]  # parted first: a `%2f` parts nothing
    if len(parts) == 2 and all(parts):
        return (parts[1],) if parts[0] == "topics" else (f"{parts[0]}.{parts[1]}",)
    return ()


def _of_host(host: str) -> tuple[str, ...]:
    """`my-channel.mynamespace.svc.cluster.local` is the topic `mynamespace.my-channel`, as eventing-kafka names it."""
    channel, _, rest = host.partition(".")
    namespace = rest.partition(".")[0]
    if not channel or not namespace or re.fullmatch(r"[0-9.]+", host):
        return ()
    bare = [channel.removesuffix(suffix) for suffix in _SERVICE_SUFFIXES if channel.endswith(suffix)]
    return tuple(f"{namespace}.{name}" for name in (channel, *bare) if name)

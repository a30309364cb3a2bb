"""What the objects of a `KafkaChannel` are called: names that Kubernetes takes, stable, and one channel's only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from inbound.config import Manifest
from inbound.errors import ConfigError

#: Names end here. A Service's has to be a DNS label of 63 characters at most; a StatefulSet puts ten digits of a revision
#: and a dash behind its own into such a label.
LONGEST = 52
#: Hexadecimal digits that tell names apart which had to be changed.
DIGEST = 8
#: Names begin so: a KafkaChannel's may begin with a digit, a Service's may not.
PREFIX = "inbound-"


def object_name(manifest: Manifest, *, with_namespace: bool) -> str:
    """Return the name of the objects of a channel, a DNS label; where it is not the channel's own, a hash ends it."""
    metadata = manifest.channel.metadata
    plain = PREFIX + (f"{metadata.namespace}-{metadata.name}" if with_namespace else metadata.name)
    label = re.sub(r"[^a-z0-9-]", "-", plain.lower()).rstrip("-")
    if label == plain and len(label) <= LONGEST:
        return label
    digest = hashlib.sha256(f"{metadata.namespace}/{metadata.name}".encode()).hexdigest()[:DIGEST]
    return f"{label[: LONGEST - DIGEST - 1].rstrip('-')}-{digest}"


def object_names(manifests: Iterable[Manifest], namespace: str | None) -> Mapping[str, tuple[str, str]]:
    """Return namespace and name of the objects of each channel, by the channel's own name (`namespace.name`).

    `namespace` takes all of them in; without one each channel's own does.

    Raises:
        ConfigError: two channels' objects would be called the same.
    """
    found: dict[str, tuple[str, str]] = {}
    taken: dict[tuple[str, str], Manifest] = {}
    problems = []
    for manifest in manifests:
        place = namespace or manifest.channel.metadata.namespace
        key = (place, object_name(manifest, with_namespace=namespace is not None))
        other = taken.setdefault(key, manifest)
        if other is not manifest:
            problems.append(
                f"{where(manifest)}: metadata.name: the objects of {manifest.name} would be called {key[1]}, like those of "
                f"{other.name} ({where(other)}); leave out --namespace, or rename one of the two"
            )
        found[manifest.name] = key
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def where(manifest: Manifest) -> str:
    """Return file and line of a channel's name."""
    return manifest.places.locate(manifest.at("metadata.name"))

"""Destinations in Knative's manifests name an object, a URI, or both.

Only the cluster knows where most objects listen. It writes the address into each subscriber and into the channel's status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urljoin

from pydantic import ValidationError

from inbound.config import ChannelManifest, validation_problems
from inbound.config.manifest_models import KIND, RESOLVED_SINK, Destination, Subscriber
from inbound.config.values import WRITTEN
from inbound.errors import ConfigError
from inbound.processors.dispatch.options import DeadLetterSink

#: What a Service's host name ends in.
CLUSTER_DOMAIN = "svc.cluster.local"
_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?//").match


def posted_to(subscriber: Subscriber) -> Subscriber:
    """Return the subscriber with the URI that events are posted to.

    As in Knative, a subscriber with a reply alone gets the events themselves at its `replyUri`.
    """
    if subscriber.subscriberUri is not None or subscriber.replyUri is None:
        return subscriber
    return subscriber.model_copy(
        update={
            "subscriberUri": subscriber.replyUri,
            "subscriberCACerts": subscriber.replyCACerts,
            "subscriberAudience": subscriber.replyAudience,
            "replyUri": None,
            "replyCACerts": None,
            "replyAudience": None,
        }
    )


def dead_letter_sink(
    manifest: ChannelManifest, path: str, subscriber: Subscriber, topics: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the dead letter sink of the subscriber at `path`.

    The subscriber's own sink takes precedence over the channel's. `topics` has the topics of the channels that the manifests
    name, by namespace.name.

    Returns:
        The dispatcher's option: a `uri`, with the `CACerts` and the `audience` of that receiver, or a `topic`; None: there
        is no sink.

    Raises:
        ConfigError: the manifests do not give its address; with file and line.
    """
    if subscriber.deadLetterSinkUri is not None:
        return _uri(manifest, f"{path}.deadLetterSinkUri", subscriber.deadLetterSinkUri, {})
    spec = manifest.channel.spec
    own = subscriber.delivery.deadLetterSink if subscriber.delivery is not None else None
    shared = spec.delivery.deadLetterSink if spec.delivery is not None else None
    if own is not None:
        # The cluster resolves the channel's sink alone: its address serves this subscriber if both sinks are the same.
        resolved = manifest.resolved_sink if own == shared else {}
        return _sink(manifest, f"{path}.delivery.deadLetterSink", own, topics, resolved)
    if shared is not None:
        return _sink(manifest, manifest.at("spec.delivery.deadLetterSink"), shared, topics, manifest.resolved_sink)
    return None


def _sink(
    manifest: ChannelManifest, path: str, sink: Destination, topics: Mapping[str, str], resolved: Mapping[str, str]
) -> dict[str, str]:
    """Return a sink; a URI precedes a reference, a topic an address."""
    whom = sink.model_dump(include={"CACerts", "audience"}, exclude_none=True)
    if sink.uri is not None and _ABSOLUTE(sink.uri):
        return _uri(manifest, f"{path}.uri", sink.uri, whom)
    if sink.ref is None:
        needs = f"needs a uri with http:// or https://, or a ref to a Service or a {KIND}"
        if sink.uri is not None:
            needs = (
                f"the uri {sink.uri!r} has no http:// or https:// before it, nor a ref beside it; give it one of them"
            )
        raise ConfigError(f"{manifest.places.locate(path)}: {path}: {needs}")
    namespace = sink.ref.namespace or manifest.channel.metadata.namespace
    named = f"{namespace}.{sink.ref.name}"
    if sink.ref.kind == KIND and sink.uri is None and named in topics:
        return {"topic": topics[named]}
    if resolved:
        uri, *others = (resolved.get(key) for key in RESOLVED_SINK)
        whom |= {key: value for key, value in zip(("CACerts", "audience"), others, strict=True) if value is not None}
        return _uri(manifest, manifest.at("status.deadLetterSinkUri"), uri or "", whom)
    version = sink.ref.apiVersion or sink.ref.group or "v1"
    # A Service of Kubernetes or of Knative: both listen at the same name.
    if sink.ref.kind == "Service" and (version == "v1" or version.startswith("serving.knative.dev")):
        base = f"http://{sink.ref.name}.{namespace}.{CLUSTER_DOMAIN}"
        return _uri(manifest, path, urljoin(f"{base}/", sink.uri) if sink.uri else base, whom)
    raise ConfigError(
        f"{manifest.places.locate(path)}: {path}: only the cluster knows where the {sink.ref.kind} {named} listens; give its "
        "uri, or leave the status of the KafkaChannel in the manifest: its deadLetterSinkUri has the address"
    )


def _uri(manifest: ChannelManifest, path: str, uri: str, whom: Mapping[str, str]) -> dict[str, str]:
    """Return the URI at `path` as a sink.

    Raises:
        ConfigError: it is no URI.
    """
    sink = {"uri": uri, **whom}
    beside = path[: -len("uri")] if path.lower().endswith("uri") else f"{path}."

    def locate(name: str) -> str:
        key = name.removeprefix(f"{path}.")
        return manifest.places.locate(path if key == "uri" else beside + key)

    try:
        DeadLetterSink.model_validate(sink, context=WRITTEN)
    except ValidationError as error:
        lines = validation_problems(error, path, locate, model=DeadLetterSink)
        said = "\n".join(lines).replace(f"{path}.uri: ", f"{path}: ")
        raise ConfigError(said.replace(f"{path}.", beside)) from None
    return sink

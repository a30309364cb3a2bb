"""The `KafkaChannel` that a pod is given: what counts of it, in the same words and always in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inbound.config import Manifest
from inbound.config.kafka_channel import ANNOTATION, KIND, SUBSCRIBERS, Delivery


def channel_documents(manifest: Manifest, all_channels: Sequence[Manifest]) -> list[dict[str, Any]]:
    """Return the manifests that a pod of this channel needs, as they are written to its file.

    The first is the channel itself without what the cluster alone uses (status but where dead letters go, other people's
    annotations). Then those whose
    topics it names as dead letter sinks: by their names, without their subscribers, for those have pods of their own.
    """
    channel, metadata = manifest.channel, manifest.channel.metadata
    annotations = {key: metadata.annotations[key] for key in sorted(metadata.annotations) if key.startswith(ANNOTATION)}
    named = {"name": metadata.name, "namespace": metadata.namespace}
    own: dict[str, Any] = {
        "apiVersion": channel.apiVersion,
        "kind": KIND,
        "metadata": named | ({"annotations": annotations} if annotations else {}),
        "spec": _spec(manifest),
    }
    if manifest.resolved_sink and channel.spec.delivery and channel.spec.delivery.deadLetterSink:
        own["status"] = manifest.resolved_sink
    by_name = {other.name: other for other in all_channels}
    sinks = sorted({name for name in _sinks(manifest) if name in by_name and name != manifest.name})
    return [own, *(_nothing_but_its_name(by_name[name]) for name in sinks)]


def _spec(manifest: Manifest) -> dict[str, Any]:
    """Return what is asked for, with those subscribers that cannot be used where they stand: its pod stops them alone."""
    spec: dict[str, Any] = manifest.channel.spec.model_dump(mode="json", exclude_unset=True)
    for path, written in sorted(manifest.left_out.items(), key=lambda item: _index(item[0])):
        holder = spec if path.startswith(SUBSCRIBERS) else spec["subscribable"]
        holder["subscribers"].insert(_index(path), written)
    return spec


def _index(path: str) -> int:
    return int(path[path.rindex("[") + 1 : -1])


def _nothing_but_its_name(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest.channel.metadata
    named: Mapping[str, Any] = {"name": metadata.name, "namespace": metadata.namespace}
    return {"apiVersion": manifest.channel.apiVersion, "kind": KIND, "metadata": named}


def _sinks(manifest: Manifest) -> Iterator[str]:
    """Yield the names of the KafkaChannels that the channel or a subscriber of it dead-letters to."""
    deliveries = [manifest.channel.spec.delivery, *(subscriber.delivery for _, subscriber in manifest.subscribers)]
    for delivery in deliveries:
        yield from _sink(delivery, manifest.channel.metadata.namespace)


def _sink(delivery: Delivery | None, namespace: str) -> Iterator[str]:
    sink = delivery.deadLetterSink if delivery is not None else None
    if sink is not None and sink.ref is not None and sink.ref.kind == KIND:
        yield f"{sink.ref.namespace or namespace}.{sink.ref.name}"

"""Knative's manifests set the dispatcher's options of each subscriber.

Later ones win: `manifests.options` of the configuration, the channel's annotations and delivery, the subscriber's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from inbound.config import ChannelManifest, Loaded, validation_problems
from inbound.config.document import resolve
from inbound.config.http_values import AUDIENCE
from inbound.config.loader import validated
from inbound.config.manifest_models import ANNOTATION, KnativeDelivery, Subscriber
from inbound.config.values import WRITTEN
from inbound.errors import ConfigError
from inbound.plan.destinations import dead_letter_sink
from inbound.processors.dispatch.options import DeliverySpec, DispatchOptions

#: The options of annotations, for all subscribers of a channel (`inbound.dev/ordering`) or for one (`inbound.dev/ordering.<uid>`).
#: None of them names a file: the right to write a manifest is no right to have files read.
ANNOTATIONS = (
    "batch",
    "connect_timeout",
    "connections",
    "filters",
    "limits",
    "max_in_flight",
    "mode",
    "on_undecodable",
    "ordering",
)
#: Keys of a subscriber that are options of the same name; audiences only if `token_file` has a file for each audience.
_CERTIFICATES, _AUDIENCES = ("subscriberCACerts", "replyCACerts"), ("subscriberAudience", "replyAudience")
_FORMATS = {"json": "structured", "binary": "binary"}


@dataclass(frozen=True)
class Given:
    """The options that a manifest gives to one subscriber, or to all."""

    delivery: Mapping[str, Any]  # without a sink
    options: Mapping[str, Any]  # of annotations


def options_given(manifest: ChannelManifest, path: str, delivery: KnativeDelivery | None, uid: str = "") -> Given:
    """Return the options of the `delivery` at `path` and of annotations.

    An empty `uid` means the annotations for all subscribers.

    Raises:
        ConfigError: one of them cannot be used; with file and line.
    """
    return Given(delivery=_delivery(manifest, path, delivery), options=_annotations(manifest, uid))


def check_defaults(loaded: Loaded) -> None:
    """Raise ConfigError if `manifests.options` cannot be used."""
    options = dict(loaded.config.manifests.options)
    if isinstance(options.get("delivery"), dict):
        options["delivery"] = {key: value for key, value in options["delivery"].items() if key != "format"}
    loaded.validate(DispatchOptions, "manifests.options", {**options, "subscriberUri": "http://localhost"})


def dispatch_options(
    loaded: Loaded,
    manifest: ChannelManifest,
    path: str,
    subscriber: Subscriber,
    topics: Mapping[str, str],
    shared: Given,
) -> DispatchOptions:
    """Return the dispatcher's options of the subscriber at `path`.

    `topics` is as in `dead_letter_sink`; `shared` has the options of all subscribers of the channel.

    Raises:
        ConfigError: they cannot be used; a line for each problem, with its place.
    """
    own = options_given(manifest, f"{path}.delivery", subscriber.delivery, subscriber.uid)
    given: dict[str, Any] = {**loaded.config.manifests.options, **shared.options, **own.options}
    has_tokens = str(given.get("token_file", "")).endswith(f"/{AUDIENCE}")
    delivery = {**given.get("delivery", {}), **shared.delivery, **own.delivery}
    if (sink := dead_letter_sink(manifest, path, subscriber, topics)) is not None:
        delivery["deadLetterSink"] = sink if has_tokens else {key: sink[key] for key in sink if key != "audience"}
    if (format := delivery.pop("format", None)) is not None:
        given["mode"] = format
    given |= {"subscriberUri": subscriber.subscriberUri, "delivery": delivery}
    if subscriber.replyUri is not None:
        given["replyUri"] = subscriber.replyUri
    for key in _CERTIFICATES + (_AUDIENCES if has_tokens else ()):
        if (value := getattr(subscriber, key)) is not None:
            given[key] = value
    try:
        return DispatchOptions.model_validate(given, context=WRITTEN)
    except ValidationError as error:

        def locate(name: str) -> str:
            key = name.removeprefix(f"{path}.").partition(".")[0].partition("[")[0]
            if key in own.options:
                return manifest.places.locate(manifest.at(f"metadata.annotations.{ANNOTATION}{key}.{subscriber.uid}"))
            if key in shared.options:
                return manifest.places.locate(manifest.at(f"metadata.annotations.{ANNOTATION}{key}"))
            if key in loaded.config.manifests.options and name not in manifest.places.where:
                return loaded.locate(f"manifests.options.{key}")
            return manifest.places.locate(name)

        raise ConfigError("\n".join(validation_problems(error, path, locate, model=DispatchOptions))) from None


def _delivery(manifest: ChannelManifest, path: str, said: KnativeDelivery | None) -> dict[str, Any]:
    """Return the keys that one `delivery` sets, checked, without its sink."""
    given = {} if said is None else said.model_dump(exclude_none=True)
    result = {key: value for key, value in given.items() if key not in ("deadLetterSink", "format")}
    format, where = given.get("format"), f"{path}.format"
    mode = _FORMATS.get(str(format).lower())
    if format is not None and mode is None:
        raise ConfigError(f"{manifest.places.locate(where)}: {where}: need one of json, binary, got {format!r}")
    validated(DeliverySpec, path, result, manifest.places)
    return result if mode is None else {**result, "format": mode}


def _annotations(manifest: ChannelManifest, uid: str = "") -> dict[str, Any]:
    """Return the options of the annotations; each value is read as YAML."""
    found = {}
    for name, value in manifest.annotations().items():
        key, _, of = name.partition(".")
        if of != uid:
            continue
        where = manifest.at(f"metadata.annotations.{ANNOTATION}{name}")
        if key not in ANNOTATIONS:
            raise ConfigError(f"{manifest.places.locate(where)}: {where}: unknown; allowed: {', '.join(ANNOTATIONS)}")
        try:
            found[key] = resolve(value) if isinstance(value, str) else value
        except ConfigError as error:
            raise ConfigError(f"{manifest.places.locate(where)}: {where}: {error}") from None
    return found
